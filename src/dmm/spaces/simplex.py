"""Proportions."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .._checks import numbers
from .base import Smooth, stacked

SMALLEST = 1e-16  # what stands for 0 where a part must be positive: 1/x² is finite, in floats too


class Simplex(Smooth):
    """n parts, positive, that sum to 1: points are vectors of length n.

    Parts below 10⁻¹⁶ count as that. Densities are w.r.t. Lebesgue measure of the first n − 1 parts,
    as the Dirichlet's. Tangent coordinates are vectors of length n that sum to 0; what is in
    proportion to x does not count.
    """

    parts: int = eqx.field(static=True)

    def __check_init__(self):
        if not isinstance(self.parts, int) or self.parts < 2:
            raise ValueError(f"parts: a simplex has at least 2 parts, got {self.parts}")

    def contains(self, x):
        return jnp.all(x >= 0) & (jnp.abs(jnp.sum(x) - 1) < 1e-4)

    def check(self, data, name="data"):
        array = stacked(data, (self.parts,), name, f"reshape it or change {self}")
        if isinstance(array, np.ndarray):
            array = np.asarray(array, np.float64)
            if np.any(array < 0):
                raise ValueError(f"{name}: proportions are positive, got {array.min():.3g}")
            if np.any(array == 0):
                raise ValueError(
                    f"{name}: {np.sum(np.any(array == 0, 1))} rows have parts that are 0, where no "
                    "density is defined; use dmm.closure(data, zeros=...) to replace them"
                )
            off = np.abs(array.sum(1) - 1)
            if np.any(off > 1e-4):
                raise ValueError(
                    f"{name}: row {int(off.argmax())} sums to {array[off.argmax()].sum():.6g}, not "
                    "to 1; use dmm.closure(data) to divide rows by their sums"
                )
            array = np.maximum(array / array.sum(1, keepdims=True), SMALLEST)
        return jnp.asarray(array, jnp.result_type(float))

    def features(self, x):
        """√(n x), of order one."""
        return jnp.sqrt(self.parts * x)

    def exp(self, x, v):
        return x + self.tangent(x, v)

    def log(self, x, y):
        return y - x

    def zero(self, x):
        return jnp.zeros_like(x)

    def tangent(self, x, v):
        # Along x, not along a constant: a small part is moved by a share of itself.
        return v - x * jnp.sum(v)

    def project(self, x):
        positive = jnp.maximum(x, SMALLEST)
        return positive / jnp.sum(positive)


def closure(data, zeros: float | None = None) -> np.ndarray:
    """Rows of non-negative numbers, such as counts, divided by their sums.

    Zeros have no place inside a simplex. With `zeros` = δ they become δ and the other parts are
    scaled down by what that takes, which keeps the ratios between them (multiplicative
    replacement; Martín-Fernández et al., 2003). Choose δ below what could have been measured.
    """
    array = np.asarray(numbers(data, "data"), np.float64)
    if array.ndim != 2:
        raise ValueError(f"data: expected rows of parts, shape (n, parts), got {array.shape}")
    sums = array.sum(1, keepdims=True)
    if np.any(array < 0) or not np.all(np.isfinite(array)) or np.any(sums == 0):
        raise ValueError("data: expected finite numbers, none negative and no row all 0")
    array = array / sums
    empty = array == 0
    if not empty.any():
        return array
    if zeros is None:
        raise ValueError(
            f"data: {np.sum(empty.any(1))} rows have parts that are 0; pass zeros=..., a "
            "proportion to put in their place, such as half of the smallest that can be measured"
        )
    if not 0 < zeros * empty.sum(1).max() < 1:
        raise ValueError(f"zeros: must be positive and leave room for the other parts, got {zeros}")
    return np.where(empty, zeros, array * (1 - zeros * empty.sum(1, keepdims=True)))
