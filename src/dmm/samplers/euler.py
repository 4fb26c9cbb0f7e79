"""First order, for any process."""

import jax.numpy as jnp

from ..processes import Process
from .base import Sampler, default_sampler


class Euler(Sampler):
    """The process's own first-order step.

    Euler–Maruyama for diffusions, the geodesic random walk on manifolds, at most one jump a
    coordinate for jump processes, each factor so for products.
    """

    def step(self, key, at, x, tau, next_tau):
        return at(tau).step(key, x, jnp.abs(next_tau - tau))


@default_sampler.register(Process)
def _(process):
    return Euler()
