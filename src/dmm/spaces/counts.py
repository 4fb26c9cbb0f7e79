"""Whole numbers from 0 up."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .base import Space, stacked
from .euclidean import _shape

MOST = 2**30  # sums of two stay whole numbers of 32 bits


class Counts(Space):
    """{0, 1, 2, …} at every place of an array. Densities are w.r.t. counting measure."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)

    def __check_init__(self):
        if any(n < 1 for n in self.shape):
            raise ValueError(f"shape: every side must be at least 1, got {self.shape}")

    def contains(self, x):
        return jnp.all((x >= 0) & (x <= MOST))

    def check(self, data, name="data"):
        array = stacked(data, self.shape, name, f"reshape it or change {self}")
        if isinstance(array, np.ndarray):
            if np.any(array % 1 != 0):
                bad = array[array % 1 != 0].ravel()[0]
                raise ValueError(
                    f"{name}: counts are whole numbers, got {bad:.6g}; round them, or use "
                    f"dmm.PositiveReals({self.shape})"
                )
            if array.min() < 0:
                raise ValueError(f"{name}: counts are not negative, got {array.min():g}")
            if array.max() > MOST:
                raise ValueError(
                    f"{name}: counts go up to {MOST}, got {array.max():g}; count in larger units, "
                    f"or use dmm.PositiveReals({self.shape})"
                )
        return jnp.asarray(array, jnp.int32)

    def features(self, x):
        """log(1 + x)."""
        return jnp.log1p(x.astype(jnp.result_type(float)))
