"""Angles."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .base import Smooth, stacked

FULL = 2 * np.pi


class Torus(Smooth):
    """d angles in radians, each from −π to π; densities are w.r.t. Lebesgue measure of them.

    Data may lie anywhere in [−2π, 2π].
    """

    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        if not isinstance(self.dimension, int) or self.dimension < 1:
            raise ValueError(f"dimension: a torus has at least 1, got {self.dimension}")

    def contains(self, x):
        return jnp.all(jnp.abs(x) <= np.pi + 1e-6)

    def check(self, data, name="data"):
        array = stacked(data, (self.dimension,), name, f"reshape it or change {self}")
        if isinstance(array, np.ndarray):
            array = np.asarray(array, np.float64)
            far = np.argwhere(np.abs(array) > FULL + 1e-6)
            if len(far):
                row, column = map(int, far[0])
                raise ValueError(
                    f"{name}: {array[row, column]:.6g} in row {row} lies beyond 2π; angles are in "
                    "radians: convert degrees by np.radians, or wrap them by np.mod(x, 2 * np.pi)"
                )
            array = array - FULL * np.round(array / FULL)
        return jnp.asarray(array, jnp.result_type(float))

    def features(self, x):
        return jnp.concatenate([jnp.cos(x), jnp.sin(x)])

    def exp(self, x, v):
        return wrap(x + v)

    def log(self, x, y):
        return wrap(y - x)

    def zero(self, x):
        return jnp.zeros_like(x)

    def tangent(self, x, v):
        return v

    def project(self, x):
        return wrap(x)


def wrap(x: Array) -> Array:
    """Angles from −π to π, of derivative 1."""
    return x - FULL * jnp.round(x / FULL)
