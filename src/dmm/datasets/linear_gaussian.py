"""A conjugate inference task."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class LinearGaussian(eqx.Module):
    """θ ~ N(0, s² I) and x | θ ~ N(θ, σ² I) on R^dim, so that the posterior is known:

        θ | x ~ N(s² x / (s² + σ²), s² σ² / (s² + σ²) I).

    s is `prior_scale` and σ `noise_scale`. The defaults, s² = σ² = 0.1 in ten dimensions, are the
    task "Gaussian linear" of Lueckmann et al. (2021).
    """

    dim: int = eqx.field(static=True, default=10)
    prior_scale: float = eqx.field(static=True, default=math.sqrt(0.1))
    noise_scale: float = eqx.field(static=True, default=math.sqrt(0.1))

    def __check_init__(self):
        if self.dim < 1:
            raise ValueError(f"dim must be at least 1, not {self.dim}")
        if not (self.prior_scale > 0 and self.noise_scale > 0):
            raise ValueError(
                "prior_scale and noise_scale must be positive, "
                f"not {self.prior_scale} and {self.noise_scale}"
            )

    def sample(self, key: PRNGKeyArray) -> tuple[Float[Array, " dim"], Float[Array, " dim"]]:
        """One pair (θ, x) of the joint law."""
        prior, noise = jax.random.split(key)
        theta = self.prior_scale * jax.random.normal(prior, (self.dim,))
        return theta, theta + self.noise_scale * jax.random.normal(noise, (self.dim,))

    def posterior(self, x: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], float]:
        """Mean of θ | x, and its standard deviation, the same for every coordinate and x."""
        total = math.hypot(self.prior_scale, self.noise_scale)
        return x * (self.prior_scale / total) ** 2, self.prior_scale * self.noise_scale / total

    def posterior_sample(self, key: PRNGKeyArray, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """One draw of θ | x."""
        mean, scale = self.posterior(x)
        return mean + scale * jax.random.normal(key, (self.dim,))

    def posterior_log_prob(
        self, theta: Float[Array, " dim"], x: Float[Array, " dim"]
    ) -> Float[Array, ""]:
        """log p(θ | x)."""
        mean, scale = self.posterior(x)
        return jnp.sum(jax.scipy.stats.norm.logpdf(theta, mean, scale))
