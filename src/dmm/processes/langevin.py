"""Critically damped Langevin dynamics: noise enters through a velocity."""

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from ..spaces import Euclidean
from .laws import Gaussian
from .linear import LinearDiffusion


class CriticallyDamped(LinearDiffusion):
    """dX = V dτ, dV = −(X + 2V) dτ + 2 dB: a degenerate diffusion of position and velocity.

    The state is an array (2, *shape), position first; data are positions alone. The velocity
    starts from N(0, I) and is integrated out: given x_0 the state has mean e x_0 with
    e = e^{−τ}(1 + τ, −τ), and covariance I − eeᵀ. The reference is N(0, I) for both.
    """

    data: Euclidean
    horizon: float = eqx.field(static=True, default=10.0)
    drift_matrix: ClassVar = ((0.0, 1.0), (-1.0, -2.0))
    noise_matrix: ClassVar = ((0.0, 0.0), (0.0, 2.0))

    @property
    def reference(self):
        return Gaussian(self.space.shape)

    def kernel(self, tau):
        tau = jnp.asarray(tau)
        e = jnp.exp(-tau) * jnp.stack([1 + tau, -tau])
        # det Σ = 1 − |e|² = P(3, 2τ), and Σ_xx = P(3, 2τ) + τ²e^{−2τ}: neither cancels.
        determinant = _gamma3(2 * tau)
        position = jnp.sqrt(determinant + e[1] ** 2)
        cross = -e[0] * e[1] / position
        velocity = jnp.sqrt(determinant) / position
        return e, jnp.stack(
            [jnp.stack([position, jnp.zeros_like(tau)]), jnp.stack([cross, velocity])]
        )

    def precision(self, tau):
        return jnp.eye(2, dtype=jnp.result_type(tau, float))

    def lift(self, key, x0):
        velocity = jax.random.normal(key, x0.shape, x0.dtype)
        return jnp.stack([x0, velocity]), Gaussian(x0.shape).log_prob(velocity)

    def drop(self, x):
        return x[0]


def _gamma3(u):
    """P(3, u) = 1 − e^{−u}(1 + u + u²/2), by its series e^{−u} Σ_{n≥3} uⁿ/n! where u < 1."""
    small = jnp.minimum(u, 1.0)
    series = sum(small**n * (1 / math.factorial(n)) for n in range(3, 18)) * jnp.exp(-small)
    return jnp.where(u < 1, series, 1 - jnp.exp(-u) * (1 + u + 0.5 * u**2))
