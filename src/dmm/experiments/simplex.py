"""Proportions whose density is known: the paper's mixtures of four Dirichlet laws.

Wright–Fisher models of 3, 5, 10 and 20 parts, each on the paper's own mixtures, a seed each: the
evidence bound and the log-likelihood by probability flow beside the truth and the paper's. Then
the paper's way of training, by the implicit objective, for as long as ours took. Other numbers of
parts, as `--parts 100`, have mixtures of the same kind. The reference is uniform; the paper's is
`--mutation 3`.
"""

from typing import Any, NamedTuple

import jax
import numpy as np

import dmm
from dmm.datasets import DirichletMixture
from dmm.plots import marginals, ternary

from .._checks import whole_numbers
from ..runs import Run, Table
from ._fits import timed_fit

PRESETS = {
    "smoke": {
        "parts": "3", "steps": 50, "width": 16, "batch_size": 32, "implicit": "3",
        "test_points": 50, "draws": 4, "flow_points": 20, "sampling_steps": 5,
    },
    "laptop": {},
    "paper": {
        "seeds": "0,1,2,3,4", "width": 512, "batch_size": 512,
        "test_points": 20_000, "draws": 512, "flow_points": 20_000,
    },
}  # fmt: skip

# Table 3 of the paper: mean log-density of its data, and its bound, over five seeds.
PAPER = {3: (1.321, 1.158), 5: (4.122, 4.017), 10: (15.288, 15.061), 20: (45.914, 45.494)}
AIMS = {3: (0.03, 0.02), 5: (0.04, 0.02), 10: (0.1, 0.05), 20: (0.2, 0.1)}  # bound, flow
PROBES_FROM = 50  # parts, from which a divergence is estimated by a random probe


class Gap(NamedTuple):
    """A model's log-density less the truth, over test points: mean, standard error, the lowest."""

    mean: float
    error: float
    lowest: float

    @classmethod
    def of(cls, values: jax.Array) -> "Gap":
        error = float(values.std() / len(values) ** 0.5)
        return cls(float(values.mean()), error, float(values.min()))


class Result(NamedTuple):
    """What one model gave."""

    truth: float
    bound: Gap
    flow: Gap
    steps: int = 0
    pace: float = 0.0  # seconds a step


def simplex(
    run: Run,
    *,
    parts: str = "3,5,10,20",
    seeds: str = "0",
    mutation: float = 1.0,
    steps: int = 40_000,
    width: int = 256,
    batch_size: int = 256,
    implicit: str = "3,20",
    test_points: int = 10_000,
    draws: int = 128,
    flow_points: int = 2_000,
    sampling_steps: int = 50,
) -> Table:
    """Bound and flow likelihood against the truth; sizes in `implicit` are trained so too."""
    settings = {"mutation": mutation, "width": width, "batch_size": batch_size}
    tests = {"test_points": test_points, "draws": draws, "flow_points": flow_points}
    rows: Table = []
    chosen, sizes = whole_numbers(seeds=seeds), whole_numbers(parts=parts)
    trained_implicitly = [] if implicit == "none" else whole_numbers(implicit=implicit)
    for n in sizes:
        ours = []
        for seed in chosen:
            truth = DirichletMixture.paper(n, seed)
            name = f"parts_{n}_seed_{seed}"
            model, pace = fit(run, name, truth, seed, dmm.denoising, steps=steps, **settings)
            ours.append(measure(model, truth, seed, **tests)._replace(steps=steps, pace=pace))
            run.log(measured=name, truth=ours[-1].truth, bound=ours[-1].bound, flow=ours[-1].flow)
            if seed == chosen[0]:
                _draw(run, f"parts_{n}", model, truth, sampling_steps)
        rows += table(n, "denoising", ours)
        if n in trained_implicitly:
            truth, name = DirichletMixture.paper(n, chosen[0]), f"parts_{n}_implicit"
            trial = {"steps": max(steps // 40, 20), **settings}
            _, theirs = fit(run, f"{name}_trial", truth, chosen[0], dmm.implicit, **trial)
            equal = max(int(steps * ours[0].pace / theirs), 10)
            model, pace = fit(run, name, truth, chosen[0], dmm.implicit, steps=equal, **settings)
            result = measure(model, truth, chosen[0], **tests)._replace(steps=equal, pace=pace)
            rows += table(n, "implicit, equal time", [result])
    return rows


def fit(
    run: Run, name: str, truth: DirichletMixture, seed: int, objective: Any,
    *, mutation: float, steps: int, width: int, batch_size: int,
) -> tuple[dmm.Model, float]:  # fmt: skip
    """A model, and the seconds that a step of its training took."""
    parts = truth.alphas.shape[1]
    return timed_fit(
        run,
        name,
        dmm.Simulator(truth.sample),
        process=dmm.WrightFisher(dmm.Simplex(parts), mutation),
        key=jax.random.fold_in(jax.random.key(seed), parts),
        network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=4),
        objective=objective,
        steps=steps,
        batch_size=batch_size,
    )


def measure(
    model: dmm.Model, truth: DirichletMixture, seed: int,
    *, test_points: int, draws: int, flow_points: int,
) -> Result:  # fmt: skip
    """Bound and flow likelihood on fresh points."""
    test_key, bound_key, flow_key = jax.random.split(jax.random.key(1000 + seed), 3)
    test = jax.vmap(truth.sample)(jax.random.split(test_key, test_points))
    log_truth = jax.vmap(truth.log_prob)(test)
    bound = model.elbo(bound_key, test, draws=draws) - log_truth
    probe = {"probe": True, "key": flow_key} if test.shape[1] >= PROBES_FROM else {}
    flow = model.log_likelihood(test[:flow_points], **probe) - log_truth[:flow_points]
    return Result(float(log_truth.mean()), Gap.of(bound), Gap.of(flow))


def table(n: int, training: str, results: list[Result]) -> Table:
    """Means over seeds, beside the truth, the paper's and the aims."""
    data, paper = PAPER.get(n, (None, None))
    truth = float(np.mean([r.truth for r in results]))
    rows: Table = []
    for quantity, gaps, theirs, aim in (
        ("evidence bound", [r.bound for r in results], paper, 0),
        ("flow log-likelihood", [r.flow for r in results], None, 1),
    ):
        gap = float(np.mean([g.mean for g in gaps]))
        rows.append({
            "parts": n, "training": training, "quantity": f"{quantity} (nats)",
            "ours": truth + gap, "truth": truth, "gap": -gap,
            "standard error": float(np.sqrt(np.sum([g.error**2 for g in gaps])) / len(gaps)),
            "aim": f"gap at most {AIMS[n][aim]}" if n in AIMS else None,
            "paper": theirs, "paper's gap": None if theirs is None or not data else data - theirs,
            "seeds": len(results), "steps": results[0].steps,
            "ms a step": 1e3 * float(np.mean([r.pace for r in results])),
        })  # fmt: skip
    return rows


def _draw(run: Run, name: str, model: dmm.Model, truth: DirichletMixture, steps: int) -> None:
    samples_key, data_key = jax.random.split(jax.random.key(7))
    samples = model.sample(samples_key, 5_000, steps=steps)
    run.save_samples(name, samples)
    data = jax.vmap(truth.sample)(jax.random.split(data_key, 5_000))
    parts = samples.shape[1]
    if parts == 3:
        panels = {"truth": truth.log_prob, "model": _density(model), "samples": samples[:2000]}
        run.figure(f"{name}_ternary", ternary(panels))
    columns = None if parts <= 12 else list(range(12))
    run.figure(f"{name}_marginals", marginals({"data": data, "model": samples}, columns=columns))


def _density(model: dmm.Model):
    """The flow's log-density of one point."""

    def log_density(x):
        return model.log_likelihood(x[None], steps=40)[0]

    return log_density
