"""Immigration and death: a birth-and-death process on counts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from .._checks import positive
from ..spaces import Counts
from ..spaces.counts import MOST
from .base import Law, Noised, Stationary, default_process
from .draws import binomial, poisson
from .jump import Jump


class Poisson(Law):
    """Independent entries, each Poisson with its own mean, or all with the same."""

    shape: tuple[int, ...] = eqx.field(static=True)
    mean: tuple[float, ...] = eqx.field(static=True)

    def means(self, dtype) -> Array:
        """The mean of every entry."""
        mean = jnp.asarray(self.mean, dtype)
        return mean.reshape(self.shape) if len(self.mean) > 1 else jnp.full(self.shape, mean[0])

    def sample(self, key):
        return poisson(key, self.means(jnp.result_type(float))).astype(jnp.int32)

    def log_prob(self, x):
        mean = self.means(jnp.result_type(float))
        n = x.astype(mean.dtype)
        return jnp.sum(n * jnp.log(mean) - mean - gammaln(n + 1))


class ImmigrationDeath(Jump, Stationary):
    """In every entry of counts, births at rate λ = `mean` and deaths at rate x; Poisson(λ) stays.

    Of x_0, K ~ Binomial(x_0, e^{−τ}) survive, M ~ Poisson(μ) newcomers join, μ = λ(1 − e^{−τ}), and
    x_τ = K + M. The target of the jump down is M/μ, and that of the jump up
    (μ + (x_0 − K)/(e^τ − 1))/(x_τ + 1): what went or came, as reasons to be one more or one less.
    (With K held, the Poisson ratio μ/(M + 1) leaves out that one more may have survived.)

    λ is one number or one an entry, by default 1, which serves counts of any size. But evidence
    bounds of large counts are less noisy where λ is near their mean. The horizon leaves e^{−16} of
    a count: enough for any up to 10⁵, and to 10⁷ where λ is as large.
    """

    data: Counts
    mean_counts: tuple[float, ...] = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, data: Counts, mean=1.0, *, horizon: float = 16.0):
        positive(horizon=horizon)
        mean = np.asarray(mean, float)
        if mean.ndim > 0 and mean.shape != data.shape:
            raise ValueError(f"mean: expected one number or shape {data.shape}, got {mean.shape}")
        if not np.all((mean > 0) & (mean <= MOST)):
            raise ValueError(f"mean: must be positive and at most {MOST}, got {mean.tolist()}")
        self.data, self.horizon = data, float(horizon)
        self.mean_counts = tuple(mean.ravel().tolist())

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        return Poisson(self.data.shape, self.mean_counts)

    def births(self) -> Array:
        """λ, of every entry."""
        return self.reference.means(jnp.result_type(float))

    def moves(self, x):
        """One more and one less; from 0 the latter stays put."""
        return jnp.stack([x + 1, jnp.maximum(x - 1, 0)], -1)

    def rates(self, x):
        births = self.births()
        return jnp.stack([births, x.astype(births.dtype)], -1)

    def inflow(self, x):
        births = self.births()
        return jnp.stack([x.astype(births.dtype) + 1, jnp.where(x > 0, births, 0.0)], -1)

    def at_rest(self, x):
        births = self.births()
        n = x.astype(births.dtype)
        up, down = jnp.log(births / (n + 1)), jnp.log(jnp.maximum(n, 1.0) / births)
        return jnp.stack([up, jnp.where(x > 0, down, 0.0)], -1)

    def noise(self, key, x0, tau):
        death_key, birth_key = jax.random.split(key)
        births = self.births()
        gone, left = -jnp.expm1(-tau), jnp.exp(-tau)
        deaths = binomial(death_key, x0, gone, left)
        new = poisson(birth_key, births * gone)
        x = x0 - deaths.astype(x0.dtype) + new.astype(x0.dtype)
        up = (births * gone + deaths / jnp.expm1(tau)) / (x.astype(births.dtype) + 1)
        return Noised(x, jnp.stack([up, new / (births * gone)], -1))

    def lift(self, key, x0):
        return x0, jnp.zeros(())

    def drop(self, x):
        return x


@default_process.register
def _(space: Counts):
    return ImmigrationDeath(space)
