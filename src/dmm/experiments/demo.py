"""What dmm does, in minutes: densities on the plane and a posterior, each beside its truth.

A generative model of a ring of Gaussians, one of two moons, and the posterior of a linear Gaussian
simulator. Small settings: see the experiments `mixture` and `linear_gaussian` for the full ones.
"""

import jax

from dmm.datasets import GaussianMixture, TwoMoons

from ..runs import Run, Table
from .linear_gaussian import linear_gaussian
from .mixture import compare

PRESETS = {
    "smoke": {"steps": 100, "width": 32, "points": 200},
    "laptop": {},
    "paper": {"steps": 20_000, "width": 256},
}


def demo(
    run: Run, *, steps: int = 10_000, width: int = 128, points: int = 2000, seed: int = 0
) -> Table:
    """Three small fits, each with its pictures, and one table."""
    keys = jax.random.split(jax.random.key(seed), 2)
    settings = {"steps": steps, "width": width, "batch_size": 512, "test_points": points}
    rows = compare(run, "ring", GaussianMixture.ring(), keys[0], **settings)
    rows += compare(run, "moons", TwoMoons(), keys[1], **settings)
    posterior = linear_gaussian(
        run, dim=4, steps=steps // 4, observations=3, samples=points, seed=seed
    )
    return rows + [{"target": "posterior", **row} for row in posterior]
