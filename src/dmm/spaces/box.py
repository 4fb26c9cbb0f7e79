"""Bounded numbers."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._checks import numbers
from .base import Flat, stacked

INSIDE = 6e-8  # how near to a bound a number can be told from it, as a share of the width


class Box(Flat):
    """Numbers between bounds: low < x < high, coordinate by coordinate.

    Densities are w.r.t. Lebesgue measure, in the user's units.
    """

    low: tuple[float, ...] = eqx.field(static=True)
    high: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, low, high):
        low, high = np.broadcast_arrays(*(np.atleast_1d(np.asarray(b, float)) for b in (low, high)))
        if low.ndim != 1:
            raise ValueError(f"low, high: expected numbers or vectors, got shape {low.shape}")
        if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low < high)):
            raise ValueError("low, high: expected finite bounds, each low below its high")
        self.low, self.high = tuple(low.tolist()), tuple(high.tolist())

    def contains(self, x):
        low, high = (jnp.asarray(bound, x.dtype) for bound in (self.low, self.high))
        return jnp.all((x >= low) & (x <= high))

    def check(self, data, name="data"):
        array = stacked(data, (len(self.low),), name, f"reshape it or change {self}")
        if isinstance(array, np.ndarray):
            array = np.asarray(array, np.float64)
            low, high = np.array(self.low), np.array(self.high)
            outside = (array < low) | (array > high)
            if outside.any():
                row, column = np.argwhere(outside)[0]
                raise ValueError(
                    f"{name}: {array[row, column]:.6g} in row {row} lies outside the bounds "
                    f"{low[column]:g} and {high[column]:g} of coordinate {column}"
                )
            width = high - low
            edge = (array - low <= INSIDE * width) | (high - array <= INSIDE * width)
            if edge.any():
                raise ValueError(
                    f"{name}: {np.sum(edge.any(1))} rows lie on a bound, where no density is "
                    "defined; move them inside by dmm.inset(data, box, share=...), or widen the box"
                )
        return jnp.asarray(array, jnp.result_type(float))

    def features(self, x):
        """From −1 to 1."""
        low, high = (jnp.asarray(bound, x.dtype) for bound in (self.low, self.high))
        return (2 * x - low - high) / (high - low)

    def project(self, x):
        low, high = (jnp.asarray(bound, x.dtype) for bound in (self.low, self.high))
        margin = INSIDE * (high - low)
        return jnp.clip(x, low + margin, high - margin)


def inset(data, box: Box, share: float) -> np.ndarray:
    """Points of a box, those within a `share` of its width from a bound moved that far inside.

    For numbers on a bound, such as rounded ones: choose the share below what could be measured.
    """
    array = np.asarray(numbers(data, "data"), np.float64)
    if array.ndim != 2 or array.shape[1] != len(box.low):
        raise ValueError(f"data: expected shape (n, {len(box.low)}), got {array.shape}")
    if not INSIDE < share < 0.5:
        raise ValueError(f"share: must lie between {INSIDE} and 0.5, got {share}")
    low, high = np.array(box.low), np.array(box.high)
    outside = ~((array >= low) & (array <= high))
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ValueError(f"data: {array[row, column]:.6g} in row {row} lies outside the box")
    margin = share * (high - low)
    return np.clip(array, low + margin, high - margin)
