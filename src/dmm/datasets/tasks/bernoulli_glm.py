"""A spiking neuron: logistic regression on a white stimulus."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions

from .base import Task
from .sampling import tempered

BINS, FILTER = 100, 9


def _design() -> np.ndarray:
    """A row a bin: one, and the stimulus there and in the eight bins before.

    The stimulus is the benchmark's: standard normal numbers of NumPy's legacy generator, seed 42.
    """
    stimulus = np.random.RandomState(42).normal(size=BINS)
    past = [np.concatenate([np.zeros(lag), stimulus[: BINS - lag]]) for lag in range(FILTER)]
    return np.stack([np.ones(BINS), *past], 1)


def _precision() -> np.ndarray:
    """Variance 2 for the offset; FᵀF for the filter, F the second differences and √(i/9)."""
    lags = np.arange(FILTER)
    second = np.eye(FILTER) - 2 * np.eye(FILTER, k=-1) + np.eye(FILTER, k=-2)
    smooth = second + np.diag(np.sqrt(lags / FILTER))
    precision = np.zeros((FILTER + 1, FILTER + 1))
    precision[0, 0] = 0.5
    precision[1:, 1:] = smooth.T @ smooth
    return precision


DESIGN, PRECISION = _design(), _precision()
ROOT = np.linalg.cholesky(np.linalg.inv(PRECISION))


class BernoulliGLM(Task):
    """θ = (offset, filter) ~ N(0, P⁻¹) on R¹⁰, spikes y_t ~ Bernoulli(σ((Dθ)_t)) in 100 bins, and

        x = Dᵀy,

    the number of spikes and the stimulus summed over them, which is sufficient (Lueckmann et al.,
    2021, T.5). P makes the filter smooth; D is the design.
    """

    name: ClassVar[str] = "bernoulli_glm"

    @property
    def prior(self):
        return distributions.MultivariateNormal(jnp.zeros(FILTER + 1), scale_tril=jnp.asarray(ROOT))

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "10"]) -> Float[Array, "10"]:
        design = jnp.asarray(DESIGN, theta.dtype)
        spikes = jax.random.bernoulli(key, jax.nn.sigmoid(design @ theta))
        return spikes.astype(theta.dtype) @ design

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        return x @ theta - jnp.sum(jax.nn.softplus(jnp.asarray(DESIGN, theta.dtype) @ theta))

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        return tempered(key, self._log_likelihood, FILTER + 1, x, n) @ ROOT.T

    def _log_likelihood(self, z: Array, x: Array) -> Array:
        return self.log_likelihood(jnp.asarray(ROOT, z.dtype) @ z, x)
