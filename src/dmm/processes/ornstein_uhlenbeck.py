"""The Ornstein–Uhlenbeck process: the paper's on R^d."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from ..spaces import Euclidean
from .base import default_process
from .laws import Gaussian
from .linear import LinearDiffusion


class OrnsteinUhlenbeck(LinearDiffusion):
    """dX = −½X dτ + dB. X_τ | x_0 ~ N(e^{−τ/2} x_0, 1 − e^{−τ}); the reference is N(0, I)."""

    data: Euclidean
    horizon: float = eqx.field(static=True, default=10.0)
    drift_matrix: ClassVar = ((-0.5,),)
    noise_matrix: ClassVar = ((1.0,),)

    @property
    def reference(self):
        return Gaussian(self.space.shape)

    def kernel(self, tau):
        tau = jnp.asarray(tau)
        return jnp.exp(-0.5 * tau).reshape(1), jnp.sqrt(-jnp.expm1(-tau)).reshape(1, 1)

    def precision(self, tau):
        return jnp.ones((1, 1), jnp.result_type(tau, float))

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


@default_process.register
def _(space: Euclidean):
    return OrnsteinUhlenbeck(space)
