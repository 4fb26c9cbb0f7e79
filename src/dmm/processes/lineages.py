"""The lineages of the coalescent with mutation: what the simplex, the box and spheres rest on."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import polygamma, psi

from .._types import Key, Scalar, Time
from .draws import log_gamma, settled

MOST = 128  # exponential times that are drawn one by one
EARLY = 4 / MOST  # below this time the number is Gaussian


class Lineages(eqx.Module):
    """A(τ), the number of lineages not yet mutated at τ, of infinitely many at 0.

    It falls from j to j − 1 at rate j(j + θ − 1)/2, θ > 0 the total rate of mutation. So
    A(τ) = #{k : Σ_{j ≥ k} E_j > τ} with independent exponentials E_j: 128 of them one by one and
    the rest as one Gamma of the right mean and variance. Below τ = 1/32 there are too many, and A
    is Gaussian with the moments of Griffiths (1984), corrected by −1/6 and by its skewness.
    """

    theta: float = eqx.field(static=True)

    def draw(self, key: Key, tau: Time) -> Scalar:
        """One draw, a whole number as a float."""
        tau = jnp.asarray(tau, jnp.result_type(float))
        late_key, early_key = jax.random.split(key)
        early, late = self._early(early_key, tau), self._late(late_key, tau)
        return settled(jnp.where(tau < EARLY, early, late))

    def mean(self, tau: Time) -> Scalar:
        """E A(τ) to leading order at small τ: 2η/τ, η = b/(eᵇ − 1), b = ½(θ − 1)τ."""
        tau = jnp.asarray(tau, jnp.result_type(float))
        return 2 / tau * _eta(0.5 * (self.theta - 1) * tau)

    def _late(self, key, tau):
        exponential_key, tail_key = jax.random.split(key)
        j = np.arange(1, MOST + 1)
        rates = jnp.asarray(j * (j + self.theta - 1) / 2, tau.dtype)
        times = jax.random.exponential(exponential_key, (MOST,), tau.dtype) / rates
        mean, variance = tail_moments(self.theta)
        shape = jnp.asarray(mean**2 / variance, tau.dtype)
        tail = jnp.exp(log_gamma(tail_key, shape)) * (variance / mean)
        left = tail + jnp.cumsum(times[::-1])
        return jnp.sum(left > tau, dtype=tau.dtype)

    def _early(self, key, tau):
        tau = jnp.minimum(tau, EARLY)
        b = 0.5 * (self.theta - 1) * tau
        eta = _eta(b)
        spread = jnp.sqrt(2 / tau * eta * (eta + b) ** 2 * _excess(b))
        z = jax.random.normal(key, (), tau.dtype)
        skewed = z + 0.246 * jnp.sqrt(tau) / 6 * (z**2 - 1)
        return jnp.maximum(jnp.round(2 * eta / tau - 1 / 6 + spread * skewed), 0.0)


def tail_moments(theta: float) -> tuple[float, float]:
    """Mean and variance of Σ_{j > 128} E_j."""
    a = theta - 1
    j = np.arange(MOST + 1, 10**6)
    if abs(a) < 1e-6:
        mean = 2 * float(polygamma(1, MOST + 1))
    else:
        mean = 2 / a * float(psi(MOST + 1 + a) - psi(MOST + 1))
    return mean, float(np.sum((2 / (j * (j + a))) ** 2))


def _eta(b: Array) -> Array:
    """b/(eᵇ − 1), smooth at 0."""
    small = jnp.abs(b) < 1e-2
    safe = jnp.where(small, 1.0, jnp.minimum(b, 80.0))
    return jnp.where(small, 1 - b / 2 + b**2 / 12, safe / jnp.expm1(safe))


def _excess(b: Array) -> Array:
    """(1 + e^{−b} − 2η)/b², by its series where it would cancel."""
    small = jnp.abs(b) < 0.5
    series = jnp.zeros_like(b)
    for coefficient in reversed(_SERIES):
        series = coefficient + jnp.where(small, b, 0.0) * series
    safe = jnp.where(small, 1.0, b)
    direct = (1 + jnp.exp(-safe) - 2 * _eta(safe)) / safe**2
    return jnp.where(small, series, direct)


def _bernoulli_series(terms: int) -> list[float]:
    """Coefficients of (1 + e^{−b} − 2b/(eᵇ − 1))/b², from those of both parts."""
    from scipy.special import bernoulli

    numbers = bernoulli(terms + 2)
    return [((-1) ** n - 2 * numbers[n]) / math.factorial(n) for n in range(2, terms + 2)]


_SERIES = _bernoulli_series(10)
