"""Positive numbers without an upper bound."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .base import Flat, stacked
from .euclidean import _shape


class PositiveReals(Flat):
    """Numbers x > 0 at every place of an array. Densities are w.r.t. Lebesgue measure."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)

    def __check_init__(self):
        if any(n < 1 for n in self.shape):
            raise ValueError(f"shape: every side must be at least 1, got {self.shape}")

    def contains(self, x):
        return jnp.all((x > 0) & jnp.isfinite(x))

    def check(self, data, name="data"):
        array = stacked(data, self.shape, name, f"reshape it or change {self}")
        dtype = jnp.result_type(float)
        if isinstance(array, np.ndarray):
            array = np.asarray(array, np.float64)
            if np.any(array < 0):
                raise ValueError(
                    f"{name}: expected positive numbers, got {array.min():.6g}; for numbers of "
                    f"either sign use dmm.Euclidean({self.shape})"
                )
            zeros = array < jnp.finfo(dtype).tiny
            if zeros.any():
                raise ValueError(
                    f"{name}: {np.sum(zeros.reshape(len(array), -1).any(1))} points hold 0 or less "
                    "than can be told from it, where no density is defined; leave them out or put "
                    "what is below measurement in their place, or use dmm.Counts for counts"
                )
        return jnp.asarray(array, dtype)

    def features(self, x):
        """log(1 + x)."""
        return jnp.log1p(x)

    def project(self, x):
        return jnp.maximum(x, jnp.finfo(x.dtype).tiny)
