"""Directions."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .base import Smooth, stacked


class Sphere(Smooth):
    """Sⁿ, the unit vectors of Rⁿ⁺¹: the circle is `Sphere(1)`, the globe `Sphere(2)`.

    Densities are w.r.t. the surface measure. Tangent coordinates are vectors of Rⁿ⁺¹; what points
    along x does not count.
    """

    dimension: int = eqx.field(static=True)

    def __check_init__(self):
        if not isinstance(self.dimension, int) or self.dimension < 1:
            raise ValueError(f"dimension: a sphere has at least 1, got {self.dimension}")

    def contains(self, x):
        return jnp.abs(jnp.sum(x**2) - 1) < 1e-4

    def check(self, data, name="data"):
        array = stacked(data, (self.dimension + 1,), name, f"reshape it or change {self}")
        if isinstance(array, np.ndarray):
            array = np.asarray(array, np.float64)
            lengths = np.linalg.norm(array, axis=1, keepdims=True)
            worst = int(np.abs(lengths - 1).argmax())
            if abs(lengths[worst, 0] - 1) > 1e-3:
                raise ValueError(
                    f"{name}: row {worst} has length {lengths[worst, 0]:.6g}, not 1; divide rows "
                    "by their lengths"
                )
            array = array / lengths
        return jnp.asarray(array, jnp.result_type(float))

    def features(self, x):
        return x

    def exp(self, x, v):
        """Along a great circle: cos|v| x + sin|v| v/|v|."""
        v = self.tangent(x, v)
        cosine, sine = _cos_and_sinc(jnp.sum(v**2))
        return cosine * x + sine * v

    def log(self, x, y):
        across = self.tangent(x, y)
        length = jnp.sqrt(jnp.maximum(jnp.sum(across**2), jnp.finfo(x.dtype).tiny))
        return jnp.arctan2(length, jnp.sum(x * y)) / length * across

    def zero(self, x):
        return jnp.zeros_like(x)

    def tangent(self, x, v):
        return v - x * jnp.sum(x * v)

    def project(self, x):
        return x / jnp.linalg.norm(x)


def _cos_and_sinc(square: Array) -> tuple[Array, Array]:
    """cos r and sin r / r of r², with derivatives at 0."""
    small = square < 1e-2
    r = jnp.sqrt(jnp.where(small, 1.0, square))
    s = jnp.where(small, square, 0.0)
    cosine = 1 - s / 2 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56)))
    sinc = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72)))
    return jnp.where(small, cosine, jnp.cos(r)), jnp.where(small, sinc, jnp.sin(r) / r)
