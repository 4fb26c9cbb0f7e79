"""Real vectors and arrays."""

import equinox as eqx
import jax.numpy as jnp

from .base import Flat, stacked


def _shape(shape) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int) else tuple(int(n) for n in shape)


class Euclidean(Flat):
    """R^d, or arrays of any shape. Densities are w.r.t. Lebesgue measure."""

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)

    def __check_init__(self):
        if any(n < 1 for n in self.shape):
            raise ValueError(f"shape: every side must be at least 1, got {self.shape}")

    def contains(self, x):
        return jnp.all(jnp.isfinite(x))

    def check(self, data, name="data"):
        array = stacked(data, self.shape, name, f"reshape it or change {self}")
        return jnp.asarray(array, jnp.result_type(float))

    def features(self, x):
        return x

    def project(self, x):
        return x
