"""Wasserstein distances on the line."""

import numpy as np
from jaxtyping import Float, PyTree

from .points import matrices


def wasserstein1(samples: PyTree, reference: PyTree) -> Float[np.ndarray, " d"]:
    """Wasserstein-1 distance of every coordinate's marginal: ∫₀¹ |F⁻¹(u) − G⁻¹(u)| du.

    F⁻¹ and G⁻¹ are the two sets' quantile functions, steps over their sorted values; the integral
    is exact, also for sets of different sizes.

    Points are arrays (n, ...), flattened a point; the leaves of a pytree are concatenated.
    """
    x, y = matrices(samples, reference)
    n, m = len(x), len(y)
    # The levels where either steps, times nm: whole numbers, so that rounding doubles none.
    levels = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)
    widths = np.diff(levels, prepend=0) / (n * m)
    gaps = np.sort(x, axis=0)[(levels - 1) // m] - np.sort(y, axis=0)[(levels - 1) // n]
    return widths @ np.abs(gaps)
