"""What plots accept: each check names the argument and what is expected of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Limits = tuple[tuple[float, float], tuple[float, float]]


def named(value: Mapping[Any, Any], name: str) -> Mapping[Any, Any]:
    """A mapping with at least one entry."""
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"{name} must be a dict with at least one entry, from a name to its data")
    return value


def points(value: Any, name: str, width: int | None = None) -> np.ndarray:
    """A finite matrix (n, width), n ≥ 1; of any width when none is given."""
    array = np.asarray(value, dtype=float)
    if array.ndim != 2 or array.size == 0 or (width is not None and array.shape[1] != width):
        expected = "d" if width is None else width
        raise ValueError(f"{name} must be an array (n, {expected}), not {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: drop the points with NaN or infinity")
    return array


def vector(value: Any, name: str, length: int | None = None) -> np.ndarray:
    """An array (length,); of any length when none is given."""
    array = np.asarray(value, dtype=float)
    if array.ndim != 1 or array.size == 0 or (length is not None and len(array) != length):
        expected = "n" if length is None else length
        raise ValueError(f"{name} must be an array ({expected},), not {array.shape}")
    return array


def frame(limits: Limits | None) -> Limits | None:
    """((x low, x high), (y low, y high)), or nothing."""
    if limits is None:
        return None
    array = np.asarray(limits, dtype=float)
    if array.shape != (2, 2) or not (array[:, 0] < array[:, 1]).all():
        raise ValueError(f"limits must be ((x low, x high), (y low, y high)), not {limits}")
    return tuple(array[0]), tuple(array[1])


def extent(values: np.ndarray, margin: float = 0.06) -> tuple[float, float]:
    """Limits that hold all values, with a margin in units of their range."""
    low, high = float(values.min()), float(values.max())
    pad = margin * (high - low) if high > low else 0.5 * max(abs(low), 1.0)
    return low - pad, high + pad
