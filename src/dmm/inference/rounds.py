"""Sequential rounds: the prior, cut to where the posterior at one observation has its mass."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Given, Key
from ..processes import AbstractDiffusion, supports
from .posterior import Posterior
from .priors import Prior
from .store import packed, read_tree, write_arrays

DRAWS = 2_000  # of the posterior, to find its mass
OUTSIDE = 1e-3  # share of the posterior left out, as of its least probable draws
TRIES = 200  # blocks of proposals before giving up
BLOCK = 10_000


def claim(folder: Path, observation: Given, shares: list[int], *, note: bool = False) -> None:
    """Check that a folder's rounds, if any, are for the same; or note what they are for.

    Later rounds are drawn where the observation's posterior is: they serve no other one, and no
    other numbers of simulations.
    """
    path, named = folder / "rounds.npz", {"observation": observation, "shares": np.array(shares)}
    known = read_tree(path, "rounds")
    if known is None:
        if note:
            write_arrays(path, packed(named, "rounds"))
        return
    alike = jax.tree.structure(known) == jax.tree.structure(named)
    if not alike or not all(jax.tree.leaves(jax.tree.map(np.array_equal, known, named))):
        raise ValueError(
            f"run: {folder} holds rounds for another observation or number of simulations; name "
            "another folder"
        )


class Truncated:
    """The prior on the region {θ : log p(θ | x_o) > level}, inside a box about it.

    A posterior learned from such simulations is that of the prior at x_o, but for the share of it
    that is cut off: no weights are needed (Deistler et al., 2022). Where a parameter is discrete
    there is no density, and the box alone cuts.
    """

    def __init__(self, prior: Prior, posterior: Posterior, observation: Given, level: float, box):
        self.prior, self.posterior, self.observation = prior, posterior, observation
        self.level, self.low, self.high = level, *box

    @classmethod
    def around(
        cls, prior: Prior, posterior: Posterior, observation: Given, key: Key
    ) -> "Truncated":
        """The region that holds nearly all draws of a posterior."""
        theta = posterior.sample(key, DRAWS, given=observation)
        flat = prior.parameters.flat(theta)
        low, high = flat.min(0), flat.max(0)
        margin = 0.1 * (high - low)
        level = -np.inf
        if supports(posterior.model.process, AbstractDiffusion):
            level = float(np.quantile(_log_prob(posterior, theta, observation), OUTSIDE))
        return cls(prior, posterior, observation, level, (low - margin, high + margin))

    def sample(self, key: Key, n: int) -> Any:
        """n draws, by rejection."""
        kept: list[Any] = []
        found = 0
        for i in range(TRIES):
            theta = self.prior.sample(jax.random.fold_in(key, i), BLOCK)
            rows = np.flatnonzero(self._holds(theta))
            kept.append(jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[rows], theta))
            found += len(rows)
            if found >= n:
                return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:n], *kept)
        raise ValueError(
            f"rounds: of {TRIES * BLOCK} draws of the prior only {found} lie where the posterior "
            "does, too few to go on by; use fewer rounds, or more simulations in one"
        )

    def inside(self, theta: Any, x: Any) -> tuple[Any, Any]:
        """Of pairs, stacked, those whose parameters it may draw."""
        rows = np.flatnonzero(self._holds(theta))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows], (theta, x))

    def _holds(self, theta: Any) -> np.ndarray:
        flat = self.prior.parameters.flat(theta)
        holds = np.all((flat >= self.low) & (flat <= self.high), axis=1)
        rows = np.flatnonzero(holds)
        if len(rows) and np.isfinite(self.level):
            few = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], theta)
            logs = _log_prob(self.posterior, few, self.observation)
            holds[rows] = logs > self.level
        return holds


def _log_prob(posterior: Posterior, theta: Any, observation: Given) -> np.ndarray:
    return np.asarray(posterior.log_prob(theta, given=observation, steps=40))
