"""Two crescents in the plane of the parameters."""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions

from .base import Task
from .sampling import generator, kept

RADIUS, SPREAD, SHIFT = 0.1, 0.01, 0.25


class TwoMoons(Task):
    """θ uniform on (−1, 1)² and

        x = (r cos a + 0.25 − |θ₁ + θ₂|/√2, r sin a + (θ₂ − θ₁)/√2),

    a uniform on (−π/2, π/2), r ~ N(0.1, 0.01²) (Lueckmann et al., 2021, T.8). For given r and a the
    map from θ to x is two to one and keeps volumes, so that its inverse at random r and a draws the
    posterior.
    """

    name: ClassVar[str] = "two_moons"

    @property
    def prior(self):
        return distributions.Uniform(-jnp.ones(2), jnp.ones(2)).to_event(1)

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "2"]) -> Float[Array, "2"]:
        angle_key, radius_key = jax.random.split(key)
        angle = jax.random.uniform(angle_key, minval=-jnp.pi / 2, maxval=jnp.pi / 2)
        radius = RADIUS + SPREAD * jax.random.normal(radius_key)
        arc = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        return arc + _centre(theta)

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        u, v = x - _centre(theta)
        radius = jnp.hypot(u, v)
        log_p = jax.scipy.stats.norm.logpdf(radius, RADIUS, SPREAD) - jnp.log(math.pi * radius)
        return jnp.where(u > 0, log_p, -jnp.inf)

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        random, x = generator(key), np.asarray(x, np.float64)

        def propose():
            angle = random.uniform(-np.pi / 2, np.pi / 2, 4 * n)
            radius = random.normal(RADIUS, SPREAD, 4 * n)
            distance = radius * np.cos(angle) + SHIFT - x[0]  # |θ₁ + θ₂|/√2
            across = distance * random.choice([-1.0, 1.0], 4 * n)
            along = x[1] - radius * np.sin(angle)
            theta = np.stack([across - along, across + along], 1) / math.sqrt(2)
            allowed = (distance > 0) & np.all(np.abs(theta) < 1, axis=1)
            return theta, np.where(allowed, 0.0, -np.inf)

        return kept(random, propose, n)


def _centre(theta: Array) -> Array:
    first, second = theta
    shift = jnp.stack([SHIFT - jnp.abs(first + second) / math.sqrt(2), second - first])
    return shift / jnp.array([1.0, math.sqrt(2)], shift.dtype)
