"""What an inference task is."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.distributions import Distribution

from ..._checks import at_least


class Task(eqx.Module):
    """A prior, a simulator, and draws of the true posterior.

    Tasks are written for one θ and one x, vectors both.
    """

    name: eqx.AbstractClassVar[str]

    @property
    @abc.abstractmethod
    def prior(self) -> Distribution:
        """The law of θ."""

    @abc.abstractmethod
    def simulate(self, key: PRNGKeyArray, theta: Float[Array, " d"]) -> Float[Array, " m"]:
        """One x given θ."""

    @abc.abstractmethod
    def log_likelihood(self, theta: Float[Array, " d"], x: Float[Array, " m"]) -> Float[Array, ""]:
        """log p(x | θ), but for a constant that depends on x alone."""

    @abc.abstractmethod
    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> Float[np.ndarray, "n d"]:
        """n independent draws of the posterior θ | x, determined by the key."""

    def sample(self, key: PRNGKeyArray) -> tuple[Float[Array, " d"], Float[Array, " m"]]:
        """One pair (θ, x) of the joint law."""
        prior_key, key = jax.random.split(key)
        theta = jnp.asarray(self.prior.sample(prior_key))
        return theta, self.simulate(key, theta)

    def observed(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """The pair (θ, x) number i, 0 and up, of the joint law: the same everywhere."""
        at_least(0, i=i)
        with jax.enable_x64(False):  # draws depend on the precision
            theta, x = _drawn(self, jax.random.fold_in(jax.random.key(2021), i))
            return np.asarray(theta), np.asarray(x)

    def observation(self, i: int) -> np.ndarray:
        """The x of the pair number i."""
        return self.observed(i)[1]


@eqx.filter_jit
def _drawn(task: Task, key: PRNGKeyArray) -> tuple[Array, Array]:
    return task.sample(key)
