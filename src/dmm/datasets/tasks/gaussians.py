"""Tasks with Gaussian noise, whose posteriors are Gaussian but for the prior's bounds."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions
from scipy import stats

from ..linear_gaussian import LinearGaussian
from .base import Task
from .sampling import generator

DIM, VARIANCE = 10, 0.1
SCALE = VARIANCE**0.5


class GaussianLinear(Task):
    """θ ~ N(0, 0.1 I) and x | θ ~ N(θ, 0.1 I) on R¹⁰ (Lueckmann et al., 2021, T.1)."""

    name: ClassVar[str] = "gaussian_linear"

    @property
    def prior(self):
        return distributions.Normal(jnp.zeros(DIM), SCALE).to_event(1)

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "10"]) -> Float[Array, "10"]:
        return theta + SCALE * jax.random.normal(key, theta.shape)

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        return jnp.sum(jax.scipy.stats.norm.logpdf(x, theta, SCALE))

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        mean, scale = LinearGaussian(DIM, SCALE, SCALE).posterior(jnp.asarray(x))
        return np.asarray(mean) + scale * generator(key).normal(size=(n, DIM))


class GaussianLinearUniform(Task):
    """θ uniform on (−1, 1)¹⁰ and x | θ ~ N(θ, 0.1 I) (Lueckmann et al., 2021, T.2)."""

    name: ClassVar[str] = "gaussian_linear_uniform"

    @property
    def prior(self):
        return distributions.Uniform(-jnp.ones(DIM), jnp.ones(DIM)).to_event(1)

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "10"]) -> Float[Array, "10"]:
        return theta + SCALE * jax.random.normal(key, theta.shape)

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        return jnp.sum(jax.scipy.stats.norm.logpdf(x, theta, SCALE))

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        return truncated(generator(key), np.asarray(x)[None], SCALE, 1.0, (n, DIM))


class GaussianMixture(Task):
    """θ uniform on (−10, 10)² and x | θ ~ ½ N(θ, I) + ½ N(θ, 0.01 I) (ibid., T.7)."""

    name: ClassVar[str] = "gaussian_mixture"

    @property
    def prior(self):
        return distributions.Uniform(jnp.full(2, -10.0), jnp.full(2, 10.0)).to_event(1)

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "2"]) -> Float[Array, "2"]:
        which, noise = jax.random.split(key)
        scale = jnp.where(jax.random.bernoulli(which), 1.0, 0.1)
        return theta + scale * jax.random.normal(noise, theta.shape)

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        logs = [jnp.sum(jax.scipy.stats.norm.logpdf(x, theta, s)) for s in (1.0, 0.1)]
        return jnp.logaddexp(*logs) - jnp.log(2.0)

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        random, x, scales = generator(key), np.asarray(x, np.float64), np.array([1.0, 0.1])
        ends = (np.array([-10.0, 10.0])[:, None, None] - x) / scales[:, None]
        masses = np.diff(stats.norm.cdf(ends), axis=0)[0].prod(1)
        which = random.choice(2, n, p=masses / masses.sum())
        return truncated(random, x[None], scales[which, None], 10.0, (n, 2))


def truncated(
    random: np.random.Generator, mean: Any, scale: Any, bound: float, shape: tuple[int, ...]
) -> np.ndarray:
    """Independent normal numbers in (−bound, bound)."""
    ends = (-bound - mean) / scale, (bound - mean) / scale
    law = stats.truncnorm(*ends, loc=mean, scale=scale)
    return law.rvs(size=shape, random_state=random)
