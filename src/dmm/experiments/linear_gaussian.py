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
    "smoke": {"simulations": 500, "steps": 200, "observations": 2, "samples": 200, "width": 32},
    "laptop": {},
    "paper": {"simulations": 100_000, "steps": 50_000, "samples": 10_000},
}


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
    draw = jax.vmap(task.posterior_sample, in_axes=(0, None))
    truth = jnp.stack([draw(jax.random.split(k, samples), x)
                       for k, x in zip(jax.random.split(keys[4], observations), observed, strict=True)])  # fmt: skip
    scores = [c2st(jax.random.fold_in(keys[5], i), ours[i], truth[i]) for i in range(observations)]
    run.log(c2st=scores)

    shown = min(dim, 4)
    clouds = {"exact": truth[0, :, :shown], "model": ours[0, :, :shown]}
    names = [f"θ{i + 1}" for i in range(shown)]
    run.figure("posterior_first_observation", pairs(clouds, names=names))
    mean = jnp.abs(ours.mean(1) - truth.mean(1)).mean()
    spread = (ours.std(1) / truth.std(1)).mean()
    return [
        {"quantity": f"C2ST, mean of {observations}", "ours": float(np.mean(scores)), "truth": 0.5, "aim": "at most 0.55"},
        {"quantity": "C2ST, worst", "ours": float(np.max(scores)), "truth": 0.5, "aim": None},
        {"quantity": "error of the posterior mean", "ours": float(mean), "truth": 0.0, "aim": None},
        {"quantity": "posterior sd, ours over exact", "ours": float(spread), "truth": 1.0, "aim": None},
    ]  # fmt: skip
