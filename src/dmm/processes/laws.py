"""Probability laws that processes end in."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .base import Law


class Gaussian(Law):
    """N(0, scale² I) on arrays of a shape."""

    shape: tuple[int, ...] = eqx.field(static=True)
    scale: float = eqx.field(static=True, default=1.0)

    def sample(self, key):
        return self.scale * jax.random.normal(key, self.shape)

    def log_prob(self, x):
        constant = x.size * (0.5 * math.log(2 * math.pi) + math.log(self.scale))
        return -0.5 * jnp.sum((x / self.scale) ** 2) - constant
