"""Rotations whose density is known: the paper's mixtures of wrapped normal laws on SO(3).

Brownian motion models of mixtures of 16, 32 and 64 laws, each on the paper's own, a seed each: the
log-likelihood by probability flow beside the truth and the paper's, w.r.t. the volume 8π². For the
first seed also the model that is told the law. At the paper's batch, what a step takes with exact
noise and with the baseline of its table, a simulated walk with Varadhan's score. And samplers, from
25 steps to 1000, with an exact score.
"""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm.datasets import RotationMixture
from dmm.plots import figure, rotation_map, tangent_histograms
from dmm.processes.rotation_kernel import log_kernel, slope
from dmm.spaces.rotations import angle, log_map, product

from .._checks import whole_numbers
from ..runs import Run, Table
from ._fits import timed_fit

PRESETS = {
    "smoke": {
        "components": "4", "steps": 20, "width": 16, "batch_size": 32, "pool": 8,
        "baseline_steps": 4, "baseline_batch": 8, "test_points": 20, "flow_steps": 4,
        "sampler_steps": "2", "sampler_draws": 200,
    },
    "laptop": {
        "components": "16", "steps": 10_000, "width": 256, "batch_size": 256, "pool": 64,
        "baseline_steps": 200,
        "test_points": 4_000, "flow_steps": 50, "sampler_draws": 4_000,
        "sampler_steps": "25,50,100",
    },
    "paper": {"seeds": "0,1,2,3,4"},
}  # fmt: skip

# The paper's table: mean and standard deviation over its five data sets, and ms an iteration.
PAPER = {16: "0.872 ± 0.026", 32: "0.175 ± 0.025", 64: "-0.515 ± 0.016"}
PAPER_PACE, PAPER_WALK_PACE = 47.23, 55.18

SAMPLERS = {
    "geodesic walk": dmm.Euler(),
    "Heun": dmm.Heun(),
    "splitting": dmm.Splitting(),
    "probability flow": dmm.ProbabilityFlow(),
}


class Result(NamedTuple):
    """What one model gave: its log-likelihood, the truth's at the same points, and its pace."""

    ours: float
    truth: float
    error: float  # the standard error of their difference
    pace: float  # seconds a step of training


def so3(
    run: Run,
    *,
    components: str = "16,32,64",
    seeds: str = "0",
    steps: int = 20_000,
    width: int = 512,
    batch_size: int = 4_096,
    pool: int = 1_024,
    degree: int = 4,
    given_class: bool = True,
    learning_rate: float = 2e-3,
    baseline_steps: int = 5_000,
    baseline_batch: int = 512,
    test_points: int = 20_000,
    flow_steps: int = 100,
    sampler_steps: str = "25,50,100,1000",
    sampler_draws: int = 20_000,
) -> Table:
    """Log-likelihoods beside the truth; the class given, the baseline and samplers for one seed.

    The targets of models that are not told the class are averaged over `pool` points
    of the batch (`dmm.Pooled`; 0: not at all); networks see harmonics up to `degree`.
    `baseline_steps` or `sampler_draws` of 0 leave the baseline or the samplers out.
    """
    settings = {
        "width": width, "learning_rate": learning_rate, "batch_size": batch_size, "degree": degree
    }  # fmt: skip
    tests: dict[str, Any] = {"test_points": test_points, "flow_steps": flow_steps}
    space = dmm.SO3(measure="volume")
    exact = dmm.RotationalBrownian(space)
    grids = whole_numbers(sampler_steps=sampler_steps)
    rows: Table = []
    sizes, chosen = whole_numbers(components=components), whole_numbers(seeds=seeds)
    for m in sizes:
        ours = []
        for seed in chosen:
            truth = RotationMixture.paper(m, seed)
            name = f"components_{m}_seed_{seed}"
            model, pace = fit(run, name, truth, exact, seed, steps=steps, pool=pool, **settings)
            ours.append(measure(model, truth, seed, pace, **tests))
            run.log(measured=name, log_likelihood=ours[-1].ours, truth=ours[-1].truth)
            if seed == chosen[0]:
                _draw(run, m, model, truth)
        rows.append(_row(m, "unconditional", ours, steps, batch_size, PAPER.get(m)))
        if given_class:
            rows += _given_class(run, m, chosen[0], exact, settings, tests, steps)
        if baseline_steps and m == sizes[0]:
            brief = settings | {"batch_size": baseline_batch}
            rows += _paces(run, m, chosen[0], exact, brief, tests, baseline_steps)
    return rows + (samplers(run, sizes[0], grids, sampler_draws) if sampler_draws else [])


def fit(
    run: Run, name: str, truth: RotationMixture, process: dmm.Process, seed: int,
    *, steps: int, width: int, batch_size: int, learning_rate: float, degree: int, pool: int = 0,
    given_class: bool = False,
) -> tuple[dmm.Model, float]:  # fmt: skip
    """A model, and the seconds that a step of its training took."""

    def draw(key):
        x, which = truth.sample_with_class(key)
        return dmm.Example(x, given=which if given_class else None)

    return timed_fit(
        run,
        name,
        dmm.Simulator(draw),
        process=process,
        key=jax.random.fold_in(jax.random.key(seed), len(truth.sigmas)),
        network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=5),
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        parameterisation=dmm.WithHarmonics(dmm.Relative(), degree),
        objective=dmm.Pooled(pool) if pool else dmm.denoising,
    )


def measure(
    model: dmm.Model, truth: RotationMixture, seed: int, pace: float,
    *, test_points: int, flow_steps: int, given_class: bool = False,
) -> Result:  # fmt: skip
    """The flow's log-likelihood and the truth's on fresh points."""
    keys = jax.random.split(jax.random.key(1000 + seed), test_points)
    x, which = jax.vmap(truth.sample_with_class)(keys)
    log_truth = jax.vmap(truth.log_prob)(x, which) if given_class else jax.vmap(truth.log_prob)(x)
    found = model.log_likelihood(x, given=which if given_class else None, steps=flow_steps)
    error = float((found - log_truth).std() / test_points**0.5)
    return Result(float(found.mean()), float(log_truth.mean()), error, pace)


def _given_class(
    run: Run, m: int, seed: int, process: dmm.Process, settings: dict, tests: dict, steps: int
) -> Table:
    truth, name = RotationMixture.paper(m, seed), f"components_{m}_given_class"
    model, pace = fit(run, name, truth, process, seed, steps=steps, given_class=True, **settings)
    result = measure(model, truth, seed, pace, given_class=True, **tests)
    samples = model.sample(jax.random.key(8), 5_000, given=jnp.asarray(0), steps=100)
    run.save_samples(name, samples)
    deviation = float(truth.sigmas[0]) / math.sqrt(2)

    def density(v):
        return -0.5 * (v / deviation) ** 2 - math.log(deviation * math.sqrt(2 * math.pi))

    at = truth.means[0]
    run.figure(name, tangent_histograms({"model": samples}, at=at, density=density))
    return [_row(m, "class given", [result], steps, settings["batch_size"])]


def _paces(
    run: Run, m: int, seed: int, exact: dmm.RotationalBrownian, settings: dict, tests: dict,
    steps: int,
) -> Table:  # fmt: skip
    """The walk with Varadhan's score beside exact noise: after as many steps, of what time."""
    truth, rows = RotationMixture.paper(m, seed), []
    walk = dmm.SimulatedRotationalBrownian(exact.data)
    ways = {"exact noise": (exact, PAPER_PACE),
            f"walk of {walk.substeps} steps, Varadhan": (walk, PAPER_WALK_PACE)}  # fmt: skip
    for name, (process, paper) in ways.items():
        folder = f"components_{m}_{name.split()[0]}"
        model, pace = fit(run, folder, truth, process, seed, steps=steps, **settings)
        result = measure(model, truth, seed, pace, **tests)
        rows.append(_row(m, name, [result], steps, settings["batch_size"], None, paper))
    return rows


def _row(
    m: int, training: str, results: list[Result], steps: int, batch_size: int,
    paper: str | None = None, paper_pace: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    ours, truth = (float(np.mean([getattr(r, f) for r in results])) for f in ("ours", "truth"))
    error = float(np.sqrt(np.sum([r.error**2 for r in results])) / len(results))
    return {
        "laws": m, "training": training, "quantity": "log-likelihood w.r.t. 8π² (nats)",
        "ours": ours, "truth": truth, "gap": truth - ours, "standard error of the gap": error,
        "paper": paper, "seeds": len(results), "steps": steps, "batch": batch_size,
        "ms a step": 1e3 * float(np.mean([r.pace for r in results])), "paper's ms": paper_pace,
    }  # fmt: skip


def _draw(run: Run, m: int, model: dmm.Model, truth: RotationMixture) -> None:
    samples = model.sample(jax.random.key(7), 5_000, steps=100)
    run.save_samples(f"components_{m}", samples)
    data = jax.vmap(truth.sample)(jax.random.split(jax.random.key(6), 5_000))
    panels = {"data": data, "samples": samples}
    run.figure(f"components_{m}", rotation_map(panels, truths=truth.means))


# --- Samplers, with an exact score ---------------------------------------------------------------


class HeatKernels(eqx.Module):
    """Equal heat kernels on SO(3), whose score stays known as noise is added."""

    process: dmm.RotationalBrownian
    means: jax.Array
    width: float = eqx.field(static=True)  # τ at which each is the kernel

    def log_prob(self, x, tau=0.0):
        """log q_τ(x)."""
        each = jax.vmap(self.process.log_transition, (None, 0, None))
        logs = each(x, self.means, tau + self.width)
        return jax.nn.logsumexp(logs) - math.log(len(self.means))

    def score(self, x, tau):
        """∇log q_τ(x), in the body's frame."""
        turns = jax.vmap(lambda m: log_map(product(m.T, x)))(self.means)
        angles = jax.vmap(angle)(turns)
        tau = tau + self.width
        logs = jax.vmap(log_kernel, (0, None))(angles, tau)
        slopes = jax.vmap(slope, (0, None))(angles, tau)
        return jnp.sum((jax.nn.softmax(logs) * slopes)[:, None] * turns, 0)

    def draw(self, key):
        """One rotation."""
        which_key, key = jax.random.split(key)
        which = jax.random.randint(which_key, (), 0, len(self.means))
        return self.process.draw(key, self.means[which], self.width)


def samplers(run: Run, m: int, grids: list[int], draws: int) -> Table:
    """How far samplers with an exact score are from the law, by their steps.

    The law is that of `m` heat kernels as wide as the paper's wrapped normals. The distance is
    Kolmogorov and Smirnov's, of the log-density at the draws from that at as many exact draws:
    chance gives about 0.9/√draws.
    """
    process = dmm.RotationalBrownian(dmm.SO3())
    law = HeatKernels(process, RotationMixture.paper(m, 0).means, width=0.005)
    schedule = dmm.default_schedule(process)
    keys = jax.random.split(jax.random.key(20), draws)
    density = jax.jit(jax.vmap(law.log_prob))
    truth = density(jax.vmap(law.draw)(jax.random.split(jax.random.key(21), draws)))
    chance = density(jax.vmap(law.draw)(jax.random.split(jax.random.key(22), draws)))
    rows, lines = [], {}
    for name, sampler in SAMPLERS.items():
        distances = []
        for steps in grids:
            drawn = _sampled(sampler, law, schedule, steps, keys)
            distances.append(_distance(density(drawn), truth))
            run.log(sampler=name, steps=steps, distance=distances[-1])
        lines[name] = np.array(distances)
        rows += [
            {"laws": m, "training": "none: exact score", "quantity": f"{name}, {steps} steps: "
             "distance of densities", "ours": d, "truth": _distance(chance, truth), "steps": steps}
            for steps, d in zip(grids, distances, strict=True)
        ]  # fmt: skip
    result, axes = figure(1, 1, size=(4.6, 3.2))
    ax = axes[0, 0]
    for name, distances in lines.items():
        ax.plot(grids, distances, marker="o", label=name)
    ax.axhline(_distance(chance, truth), color="0.4", linestyle="--", label="exact draws")
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="distance of log-densities")
    ax.legend()
    run.figure("samplers", result)
    return rows


@eqx.filter_jit
def _sampled(sampler: dmm.Sampler, law: HeatKernels, schedule: dmm.Schedule, steps: int, keys):
    process, taus = law.process, schedule.grid(steps)

    def at(tau):
        return process.reverse(lambda x: law.score(x, jnp.maximum(tau, schedule.tau_min)))

    def draw(key):
        start_key, key = jax.random.split(key)
        return dmm.simulate(key, sampler, at, process.reference.sample(start_key), taus)

    return jax.vmap(draw)(keys)


def _distance(one: jax.Array, other: jax.Array) -> float:
    """Kolmogorov and Smirnov's distance of two samples of numbers."""
    both = np.sort(np.concatenate([one, other]))
    ranks = [np.searchsorted(np.sort(a), both, side="right") / len(a) for a in (one, other)]
    return float(np.abs(ranks[0] - ranks[1]).max())
