"""A rate that grows exponentially: the paper's for images."""

import math

import equinox as eqx
import jax.numpy as jnp

from .._checks import positive
from .base import Schedule


class Exponential(Schedule):
    """τ(t) = scale (growth^t − 1), of rate scale · log(growth) · growth^t.

    The paper's images take scale 3, growth 100 and t_min = 0.01.
    """

    scale: float = eqx.field(static=True, default=3.0)
    growth: float = eqx.field(static=True, default=100.0)
    t_min: float = eqx.field(static=True, default=0.01)

    def __check_init__(self):
        positive(scale=self.scale, t_min=self.t_min)
        if not self.growth > 1:
            raise ValueError(f"growth: must be above 1, got {self.growth}")

    def tau(self, t):
        return self.scale * jnp.expm1(t * math.log(self.growth))

    def t(self, tau):
        return jnp.log1p(tau / self.scale) / math.log(self.growth)
