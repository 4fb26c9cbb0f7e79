"""The posterior of a linear Gaussian simulator, whose truth has a closed form.

θ ~ N(0, 0.1 I) in ten dimensions, x | θ ~ N(θ, 0.1 I): the benchmark's first task. One model,
fitted to simulated pairs, answers for every observation.
"""

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm.datasets import LinearGaussian
from dmm.diagnostics import c2st
from dmm.plots import pairs

from ..runs import Run, Table

PRESETS = {
    "smoke": {
        "simulations": 200, "steps": 40, "width": 16, "batch_size": 64,
        "observations": 2, "samples": 40,
    },
    "laptop": {},
    "paper": {"simulations": 100_000, "steps": 50_000, "samples": 10_000},
}  # fmt: skip


def linear_gaussian(
    run: Run,
    *,
    simulations: int = 10_000,
    dim: int = 10,
    steps: int = 10_000,
    width: int = 64,
    depth: int = 1,
    batch_size: int = 1024,
    observations: int = 10,
    samples: int = 5000,
    seed: int = 0,
) -> Table:
    """Posterior samples against the exact posterior, by a classifier, at several observations."""
    task = LinearGaussian(dim)
    keys = jax.random.split(jax.random.key(seed), 6)
    theta, x = jax.vmap(task.sample)(jax.random.split(keys[0], simulations))
    posterior = dmm.fit(
        theta,
        given=x,
        space=dmm.Euclidean(dim),
        key=keys[1],
        network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=depth),
        steps=steps,
        batch_size=batch_size,
        early_stopping=10,
        run=run.folder("posterior"),
    )
    _, observed = jax.vmap(task.sample)(jax.random.split(keys[2], observations))
    ours = posterior.sample(keys[3], samples, given=observed)
    run.save_samples("posterior", ours)
    truth_keys = jax.random.split(keys[4], (observations, samples))
    draw = jax.vmap(jax.vmap(task.posterior_sample, in_axes=(0, None)))
    truth = draw(truth_keys, observed)
    scores = [c2st(jax.random.fold_in(keys[5], i), ours[i], truth[i]) for i in range(observations)]
    run.log(c2st=scores)

    shown = min(dim, 4)
    clouds = {"exact": truth[0, :, :shown], "model": ours[0, :, :shown]}
    names = [f"θ{i + 1}" for i in range(shown)]
    run.figure("posterior_first_observation", pairs(clouds, names=names))
    mean = jnp.abs(ours.mean(1) - truth.mean(1)).mean()
    spread = (ours.std(1) / truth.std(1)).mean()

    def row(quantity, ours, truth, aim=None):
        return {"quantity": quantity, "ours": float(ours), "truth": truth, "aim": aim}

    return [
        row(f"C2ST, mean of {observations}", np.mean(scores), 0.5, "at most 0.55"),
        row("C2ST, worst", np.max(scores), 0.5),
        row("error of the posterior mean", mean, 0.0),
        row("posterior sd, ours over exact", spread, 1.0),
    ]
