"""Tasks whose simulators solve differential equations, in the logarithms of the populations."""

from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions

from .base import Task
from .sampling import tempered

TIMES = 10  # of observation, the first being 0


class SIR(Task):
    """An epidemic among N = 10⁶, one of them infected at first:

        dS/dt = −βSI/N,  dI/dt = βSI/N − γI,
        x_j ~ Binomial(1000, I(17j)/N),  j = 0, ..., 9 (days),

    log β ~ N(log 0.4, 0.5²), log γ ~ N(log 0.125, 0.2²) (Lueckmann et al., 2021, T.9).
    """

    name: ClassVar[str] = "sir"

    centre: ClassVar[np.ndarray] = np.log([0.4, 0.125])
    spread: ClassVar[np.ndarray] = np.array([0.5, 0.2])
    tests: ClassVar[int] = 1000

    @property
    def prior(self):
        return _log_normal(self)

    def infected(self, theta: Float[Array, "2"]) -> Float[Array, "10"]:
        """log I/N at the times of observation."""
        beta, gamma = theta

        def field(u):
            s, i = jnp.exp(u)
            return jnp.stack([-beta * i, beta * s - gamma])

        start = jnp.array([np.log1p(-1e-6), np.log(1e-6)], theta.dtype)
        return _solve(field, start, 17.0, steps=34)[:, 1]

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "2"]) -> Float[Array, "10"]:
        share = jnp.exp(self.infected(theta))
        return jax.random.binomial(key, self.tests, share).astype(theta.dtype)

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        logs, n = self.infected(theta), self.tests
        ways = gammaln(n + 1.0) - gammaln(x + 1) - gammaln(n - x + 1)
        return jnp.sum(ways + x * logs + (n - x) * jnp.log1p(-jnp.exp(logs)))

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        z = tempered(key, self._log_likelihood, 2, x, n)
        return np.exp(self.centre + self.spread * z)

    def _log_likelihood(self, z: Array, x: Array) -> Array:
        return self.log_likelihood(jnp.exp(_scaled(self, z)), x)


class LotkaVolterra(Task):
    """Prey X and predators Y, of which there are 30 and 1 at first:

        dX/dt = αX − βXY,  dY/dt = −γY + δXY,
        x = (log-normal numbers of median X(2.1j), j = 0, ..., 9, then Y(2.1j), and σ = 0.1),

    log α and log γ ~ N(−0.125, 0.5²), log β and log δ ~ N(−3, 0.5²) (Lueckmann et al., 2021, T.10).
    Before the noise populations are cut to (10⁻¹⁰, 10⁴), as in the benchmark.
    """

    name: ClassVar[str] = "lotka_volterra"

    centre: ClassVar[np.ndarray] = np.array([-0.125, -3.0, -0.125, -3.0])
    spread: ClassVar[np.ndarray] = np.full(4, 0.5)
    noise: ClassVar[float] = 0.1

    @property
    def prior(self):
        return _log_normal(self)

    def populations(self, theta: Float[Array, "4"]) -> Float[Array, "20"]:
        """log X at the times of observation, then log Y."""
        alpha, beta, gamma, delta = theta

        def field(u):
            prey, predators = jnp.exp(u)
            return jnp.stack([alpha - beta * predators, delta * prey - gamma])

        logs = _solve(field, jnp.array([np.log(30.0), 0.0], theta.dtype), 2.1, steps=100)
        return jnp.clip(logs.T.ravel(), np.log(1e-10), np.log(1e4))

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "4"]) -> Float[Array, "20"]:
        logs = self.populations(theta)
        return jnp.exp(logs + self.noise * jax.random.normal(key, logs.shape, logs.dtype))

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        logs = jax.scipy.stats.norm.logpdf(jnp.log(x), self.populations(theta), self.noise)
        return jnp.sum(logs - jnp.log(x))

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        z = tempered(key, self._log_likelihood, 4, x, n)
        return np.exp(self.centre + self.spread * z)

    def _log_likelihood(self, z: Array, x: Array) -> Array:
        return self.log_likelihood(jnp.exp(_scaled(self, z)), x)


def _log_normal(task: SIR | LotkaVolterra) -> distributions.Distribution:
    centre, spread = jnp.asarray(task.centre, float), jnp.asarray(task.spread, float)
    return distributions.LogNormal(centre, spread).to_event(1)


def _scaled(task: SIR | LotkaVolterra, z: Array) -> Array:
    return jnp.asarray(task.centre, z.dtype) + jnp.asarray(task.spread, z.dtype) * z


def _solve(field: Callable[[Array], Array], start: Array, gap: float, *, steps: int) -> Array:
    """The solution at times 0, gap, ..., 9 gap, by Runge and Kutta's rule of fourth order."""
    h = gap / steps

    def step(u, _):
        a = field(u)
        b = field(u + h / 2 * a)
        c = field(u + h / 2 * b)
        d = field(u + h * c)
        return u + h / 6 * (a + 2 * b + 2 * c + d), None

    def stretch(u, _):
        u, _ = jax.lax.scan(step, u, length=steps)
        return u, u

    _, later = jax.lax.scan(stretch, start, length=TIMES - 1)
    return jnp.concatenate([start[None], later])
