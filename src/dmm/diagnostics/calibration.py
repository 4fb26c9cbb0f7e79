"""Calibration of an amortised posterior, over parameters from the prior and their simulations."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .._types import Key
from .draws import enough
from .points import flattened
from .ranks import Ranks, sbc
from .tarp import ExpectedCoverage, nearest_truths, tarp


@dataclass(frozen=True, eq=False)
class Calibration:
    """Draws of the posterior of every simulation, and what they say of it."""

    names: tuple[str, ...]
    truths: Float[np.ndarray, "n d"]
    samples: Float[np.ndarray, "n m d"]
    ranks: Ranks
    coverage: ExpectedCoverage

    @property
    def p_value(self) -> float:
        """Of ranks and coverage together, by Bonferroni."""
        return min(1.0, 2 * min(self.ranks.p_value, self.coverage.p_value))


def calibrate(
    posterior: Any,
    truths: Any,
    observations: Any,
    *,
    key: Key,
    draws: int = 100,
    **settings: Any,
) -> Calibration:
    """`sbc` and `tarp` of a posterior, over its own draws.

    `truths` are stacked parameters from the prior, in the posterior's form, and `observations` what
    was simulated from each, fresh ones: not those that the posterior learned from. All posteriors
    are drawn by one call, posterior.sample(key, draws, given=observations, **settings). `tarp`
    measures around `nearest_truths`, so that a posterior that overlooks its observation fails.
    """
    seen = flattened(observations, "observations")
    true = _columns(posterior, truths, 1)
    if len(true) != len(seen):
        raise ValueError(f"observations: expected {len(true)}, one a truth, got {len(seen)}")
    enough(len(true), draws)
    sample_key, tie_key, coverage_key = jax.random.split(key, 3)
    drawn = posterior.sample(sample_key, draws, given=observations, **settings)
    samples = _columns(posterior, drawn, 2)
    ranks = sbc(true, samples, names=getattr(posterior, "names", None), key=tie_key)
    references = nearest_truths(true, seen)
    coverage = tarp(true, samples, key=coverage_key, references=references)
    return Calibration(ranks.names, true, samples, ranks, coverage)


def _columns(posterior: Any, theta: Any, axes: int) -> np.ndarray:
    """Parameters stacked along some axes as numbers along one more, in the posterior's order."""
    if hasattr(posterior, "parameters"):
        return np.asarray(posterior.parameters.flat(theta), np.float64)
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(theta)]
    return np.concatenate([leaf.reshape(*leaf.shape[:axes], -1) for leaf in leaves], axis=-1)
