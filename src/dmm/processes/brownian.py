"""Brownian motion on R^d: the variance-exploding process."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from ..spaces import Euclidean
from .laws import Gaussian
from .linear import LinearDiffusion


class Brownian(LinearDiffusion):
    """dX = dB. X_τ | x_0 ~ N(x_0, τ).

    It has no stationary law: the reference N(0, 1 + horizon), the law at the horizon of standard
    Gaussian data, depends on the horizon.
    """

    data: Euclidean
    horizon: float = eqx.field(static=True, default=2500.0)
    drift_matrix: ClassVar = ((0.0,),)
    noise_matrix: ClassVar = ((1.0,),)

    @property
    def reference(self):
        return Gaussian(self.space.shape, (1.0 + self.horizon) ** 0.5)

    def kernel(self, tau):
        tau = jnp.asarray(tau)
        return jnp.ones_like(tau).reshape(1), jnp.sqrt(tau).reshape(1, 1)

    def precision(self, tau):
        return (1 / (1 + jnp.asarray(tau))).reshape(1, 1)

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x
