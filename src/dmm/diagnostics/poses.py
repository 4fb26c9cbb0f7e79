"""Samples of a rotation whose truth is known up to a symmetry."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy import stats

from .._checks import at_least


class Coverage(NamedTuple):
    """How samples (n, 3, 3) lie about the poses that are equally true.

    A cell holds what lies nearest to one mode, or to one stretch of a continuous symmetry.
    """

    spread: float  # mean angle to the nearest pose, in degrees
    close: float  # the share of samples that lie close to a pose
    counts: np.ndarray  # samples in each cell
    close_counts: np.ndarray  # those of them that lie close to a pose
    shares: np.ndarray  # of the poses, in each cell

    @property
    def found(self) -> float:
        """The share of cells with a sample close to one of their poses."""
        return float(np.mean(self.close_counts > 0))

    @property
    def p_value(self) -> float:
        """Of Pearson's χ² test that the cells have their shares of the samples."""
        return float(stats.chisquare(self.counts, self.shares * self.counts.sum()).pvalue)

    @property
    def deficit(self) -> float:
        """KL divergence of the samples' shares of the cells from the poses', in nats.

        Less (cells − 1)/2n, its mean under equal laws: 0 for a perfect sampler, and below it by
        chance.
        """
        n, cells = self.counts.sum(), len(self.counts)
        found = self.counts / n
        terms = found * np.log(np.where(found > 0, found, 1) / self.shares)
        return float(terms.sum() - (cells - 1) / (2 * n))


def coverage(samples, poses, *, cells: int | None = None, within: float = 10.0) -> Coverage:
    """Coverage of the equivalent `poses` (g, 3, 3), close being `within` so many degrees.

    Each pose is a mode, with a cell of its own. For a continuous symmetry, given by many poses
    along it, let `cells` divide g: every g/cells-th pose then has one.
    """
    samples, poses = (_stack(a, name) for a, name in ((samples, "samples"), (poses, "poses")))
    g = len(poses)
    cells = g if cells is None else cells
    at_least(2, cells=cells)
    if g % cells:
        raise ValueError(f"cells: must divide the number of poses, {g}, got {cells}")
    found = _coverage(samples, poses, cells, math.radians(within))
    spread, close, counts, close_counts, owned = map(np.asarray, found)
    return Coverage(math.degrees(spread), float(close), counts, close_counts, owned / g)


def nearest_pose(x: Array, poses: Array) -> tuple[Array, Array]:
    """The angle from x to the nearest of some poses, and which that is."""
    # At full precision, which GPUs do not use for products unless told to.
    traces = jnp.einsum("ij,gij->g", x, poses, precision="highest")
    index = jnp.argmax(traces)
    # |x − y|² = 8 sin²(α/2): accurate where α is small, unlike the trace.
    length = jnp.linalg.norm(x - poses[index])
    return 2 * jnp.arcsin(jnp.minimum(length / 8**0.5, 1.0)), index


@functools.partial(jax.jit, static_argnums=2)
def _coverage(samples: Array, poses: Array, cells: int, within: Array):
    _, owner = jax.vmap(lambda pose: nearest_pose(pose, poses[:: len(poses) // cells]))(poses)
    angles, nearest = jax.vmap(lambda x: nearest_pose(x, poses))(samples)
    cell, close = owner[nearest], angles < within
    zeros = jnp.zeros(cells, int)
    return (
        jnp.mean(angles),
        jnp.mean(close),
        zeros.at[cell].add(1),
        zeros.at[cell].add(close.astype(int)),
        zeros.at[owner].add(1),
    )


def _stack(value, name: str) -> Array:
    array = jnp.asarray(value)
    if array.ndim != 3 or array.shape[1:] != (3, 3) or len(array) == 0:
        raise ValueError(f"{name}: expected rotations (n, 3, 3), got shape {array.shape}")
    return array
