"""The cosine schedule, in the process's own time."""

import math

import equinox as eqx
import jax.numpy as jnp

from .base import Schedule


class Cosine(Schedule):
    """e^{−τ(t)/2} = cos(θt) with θ = arccos e^{−horizon/2}: the signal falls as a cosine."""

    horizon: float = eqx.field(static=True, default=10.0)
    t_min: float = eqx.field(static=True, default=5e-3)

    @property
    def angle(self) -> float:
        """θ."""
        return math.acos(math.exp(-0.5 * self.horizon))

    def tau(self, t):
        # −2 log cos(u) = −log(1 − sin²u), which keeps its digits at small u.
        return -jnp.log1p(-(jnp.sin(self.angle * t) ** 2))

    def t(self, tau):
        return jnp.arcsin(jnp.sqrt(-jnp.expm1(-tau))) / self.angle
