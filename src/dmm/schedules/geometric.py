"""Times evenly spaced on a logarithmic scale: the default."""

import math

import equinox as eqx
import jax.numpy as jnp

from ..processes import Noising
from .base import Schedule, default_schedule


class Geometric(Schedule):
    """τ(t) = τ_min (τ_max/τ_min)^t.

    Near the data the loss a unit of τ grows as 1/τ, so these times weigh every scale alike.
    """

    start: float = eqx.field(static=True)
    stop: float = eqx.field(static=True)
    t_min: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        if not 0 < self.start < self.stop:
            raise ValueError(f"start, stop: need 0 < start < stop, got {self.start}, {self.stop}")

    def tau(self, t):
        return self.start * jnp.exp(t * math.log(self.stop / self.start))

    def t(self, tau):
        return jnp.log(tau / self.start) / math.log(self.stop / self.start)


@default_schedule.register(Noising)
def _(process):
    return Geometric(1e-5 * process.horizon, process.horizon)
