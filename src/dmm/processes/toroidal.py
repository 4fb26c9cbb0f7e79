"""Brownian motion on tori."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import positive
from .._types import Scalar, Time
from ..spaces import Torus
from ..spaces.torus import FULL, wrap
from .base import Law, Noised, Stationary, default_process
from .diffusion import AbstractDiffusion

SWITCH = 2.0  # the time from which the waves serve
WINDINGS = 3
WAVES = 7


class UniformOnTorus(Law):
    """The uniform law on d angles."""

    dimension: int = eqx.field(static=True)

    def sample(self, key):
        return jax.random.uniform(key, (self.dimension,), minval=-np.pi, maxval=np.pi)

    def log_prob(self, x):
        return jnp.asarray(-self.dimension * math.log(FULL), x.dtype)


class ToroidalBrownian(AbstractDiffusion, Stationary):
    """Generator ½Δ on d angles; the reference is uniform.

    x_τ is x_0 + N(0, τ I), wrapped: exact at every τ. The winding number k of a coordinate gives
    the target −(x − x_0 + 2πk)/τ; this is its mean given x and x_0, the score of the wrapped
    Gaussian, which has less noise and the same minimiser. The horizon is ten relaxation times.
    """

    data: Torus
    horizon: float = eqx.field(static=True)

    def __init__(self, data: Torus, *, horizon: float = 20.0):
        positive(horizon=horizon)
        self.data, self.horizon = data, horizon

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        return UniformOnTorus(self.data.dimension)

    def drift(self, x):
        return jnp.zeros_like(x)

    def flux(self, x, s):
        return s

    def root(self, x, z):
        return z

    def spurious(self, x):
        return jnp.zeros_like(x)

    def source(self, x):
        return jnp.zeros((), x.dtype)

    def at_rest(self, x):
        return jnp.zeros_like(x)

    def noise(self, key, x0, tau):
        away = jnp.sqrt(tau) * jax.random.normal(key, x0.shape, x0.dtype)
        return Noised(wrap(x0 + away), log_wrapped(wrap(away), tau)[1])

    def log_transition(self, x: Array, x0: Array, tau: Time) -> Scalar:
        """log q_τ(x | x_0), that of the wrapped Gaussian coordinate by coordinate."""
        return jnp.sum(log_wrapped(wrap(x - x0), tau)[0])

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


def log_wrapped(angles: Array, tau: Time) -> tuple[Array, Array]:
    """The log-density of N(0, τ) wrapped, at a vector of angles from −π to π, and its derivative.

    Up to τ = 2 by windings, Σ_k exp(−(δ + 2πk)²/2τ), and from there on by waves,
    1 + 2 Σ_m e^{−m²τ/2} cos mδ: what is left out is below rounding of a double.
    """
    tau = jnp.asarray(tau, angles.dtype)
    early, late = jnp.minimum(tau, SWITCH), jnp.maximum(tau, SWITCH)

    k = jnp.arange(-WINDINGS, WINDINGS + 1, dtype=angles.dtype)
    unwound = angles[:, None] + FULL * k[None]
    exponents = -0.5 * unwound**2 / early
    log_sum = jax.nn.logsumexp(exponents, -1)
    log_early = log_sum - 0.5 * jnp.log(FULL * early)
    weights = jax.nn.softmax(exponents, -1)
    slope_early = -jnp.sum(weights * unwound, -1) / early

    m = jnp.arange(1, WAVES + 1, dtype=angles.dtype)[None]
    heights = 2 * jnp.exp(-0.5 * m**2 * late)
    phases = angles[:, None] * m
    density = 1 + jnp.sum(heights * jnp.cos(phases), -1)
    log_late = jnp.log(density) - math.log(FULL)
    slope_late = -jnp.sum(heights * m * jnp.sin(phases), -1) / density

    return (
        jnp.where(tau < SWITCH, log_early, log_late),
        jnp.where(tau < SWITCH, slope_early, slope_late),
    )


@default_process.register
def _(space: Torus):
    return ToroidalBrownian(space)
