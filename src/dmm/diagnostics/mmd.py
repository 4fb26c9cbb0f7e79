"""The maximum mean discrepancy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy.spatial.distance import pdist

from .points import matrices

_MEDIAN_POINTS = 2_000  # pooled points that set the bandwidth
_CHUNK_ENTRIES = 2**22  # numbers held at once: rows a chunk × points × coordinates


def mmd(samples: PyTree, reference: PyTree, *, bandwidth: float | None = None) -> float:
    """Unbiased estimate of the squared maximum mean discrepancy, with a Gaussian kernel.

    E k(x, x') + E k(y, y') − 2 E k(x, y) over distinct points, k(x, y) = exp(−|x − y|² / 2h²). It
    is 0 in expectation for equal laws, so that it may be negative. The bandwidth h is by default
    the median distance between two pooled points (of 2,000 evenly spaced ones when there are more).

    Points are arrays (n, ...), flattened a point; the leaves of a pytree are concatenated.
    """
    x, y = matrices(samples, reference)
    if min(len(x), len(y)) < 2:
        raise ValueError("samples and reference must hold at least 2 points each")
    if bandwidth is None:
        bandwidth = _median_distance(np.concatenate([x, y]))
    if not bandwidth > 0:
        raise ValueError(f"bandwidth must be positive, not {bandwidth}")
    # Differences are all that counts: centred in float64, they survive float32.
    centre = y.mean(axis=0)
    x, y = ((points - centre) / bandwidth for points in (x, y))
    return _within(x) + _within(y) - 2.0 * float(_row_means(x, y).mean())


def _median_distance(pooled: Float[np.ndarray, "n d"]) -> float:
    """Median distance between two points."""
    median = float(np.median(pdist(pooled[:: -(-len(pooled) // _MEDIAN_POINTS)])))
    if median == 0:
        raise ValueError(
            "over half of the points coincide, so the median distance is 0: pass a bandwidth"
        )
    return median


def _within(x: Float[np.ndarray, "n d"]) -> float:
    """Mean of k(x, x') over pairs of distinct points: k(x, x) = 1 is taken out of each row."""
    n = len(x)
    return float((_row_means(x, x) * n - 1.0).mean() / (n - 1))


def _row_means(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]) -> np.ndarray:
    """Mean over y of k(x, y), for every x; in float64, so that their means lose nothing."""
    rows = max(1, _CHUNK_ENTRIES // y.size)
    return np.asarray(_kernel_means(jnp.asarray(x), jnp.asarray(y), rows), dtype=np.float64)


@partial(jax.jit, static_argnums=2)
def _kernel_means(x: Float[Array, "n d"], y: Float[Array, "m d"], rows: int) -> Float[Array, " n"]:
    """Row by row, `rows` at a time: neither n × m nor m × d × n numbers are ever held."""

    def mean(point):
        return jnp.mean(jnp.exp(-0.5 * jnp.sum((point[None] - y) ** 2, axis=1)))

    return jax.lax.map(mean, x, batch_size=rows)
