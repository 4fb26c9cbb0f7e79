"""Importance weights: what a likelihood mends of an approximate posterior."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Given, Key


@dataclasses.dataclass(frozen=True)
class Weighted:
    """Draws and their weights, which sum to one."""

    theta: Any
    weights: Array
    log_evidence: float  # log p(x)

    @property
    def effective_size(self) -> float:
        """1/Σw²: as many independent draws of the posterior are worth as much."""
        return float(1 / jnp.sum(self.weights**2))

    def resample(self, key: Key, n: int) -> Any:
        """n draws with equal weights, some of them more than once."""
        # Systematic: a draw of weight w comes nw times, rounded down or up.
        places = (jnp.arange(n) + jax.random.uniform(key)) / n
        sums = jnp.cumsum(self.weights)
        rows = jnp.searchsorted(sums / sums[-1], places)
        shuffled = jax.random.permutation(jax.random.fold_in(key, 1), rows)
        return jax.tree.map(lambda leaf: leaf[shuffled], self.theta)


def reweighted(
    theta: Any,
    given: Given,
    *,
    log_prior: Callable[[Any], Array],
    log_likelihood: Callable[[Any, Any], Array],
    log_proposal: Array,
) -> Weighted:
    """Weights p(θ) p(x | θ)/q(θ) of draws from q, normalised; their mean estimates p(x)."""
    log_target = jax.jit(jax.vmap(lambda t: log_prior(t) + log_likelihood(t, given)))(theta)
    if log_target.shape != log_proposal.shape:
        raise ValueError(
            f"log_likelihood: must return one number a set of parameters, got {log_target.shape}"
        )
    # A draw without a density, of the target or of the proposal, would make all weights NaN.
    logs = log_target - log_proposal
    logs = jnp.where(jnp.isfinite(logs), logs, -jnp.inf)
    if not bool(jnp.any(jnp.isfinite(logs))):
        raise ValueError(
            "log_likelihood: is not finite at any draw of the posterior; check it at one of them"
        )
    return Weighted(theta, jax.nn.softmax(logs), float(jax.nn.logsumexp(logs) - jnp.log(len(logs))))
