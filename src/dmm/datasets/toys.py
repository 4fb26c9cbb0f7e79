"""Small densities with exact samples and an exact log-density."""

import functools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

Numbers = ArrayLike | Sequence  # what `jnp.asarray` takes

_NODES = 256
_LEAST_NOISE = 0.05  # what that many nodes resolve to 1e-6, out to six units from the origin


class GaussianMixture(eqx.Module):
    """Isotropic Gaussians on R^d: p(x) = Σ_k w_k N(x; m_k, s_k² I).

    `means` is (k, d), `scales` and `weights` are (k,). Weights are normalised.
    """

    means: Float[Array, "k d"]
    scales: Float[Array, " k"]
    weights: Float[Array, " k"]

    def __init__(self, means: Numbers, scales: Numbers, weights: Numbers):
        means, scales, weights = (jnp.asarray(a, dtype=float) for a in (means, scales, weights))
        if means.ndim != 2:
            raise ValueError(f"means must be (components, dimensions), not {means.shape}")
        for name, value in (("scales", scales), ("weights", weights)):
            if value.shape != means.shape[:1]:
                raise ValueError(f"{name} must be {means.shape[:1]}, one a mean, not {value.shape}")
        legal = jnp.all(weights >= 0) & (jnp.sum(weights) > 0)
        self.means = means
        self.scales = eqx.error_if(scales, ~jnp.all(scales > 0), "scales must be positive")
        self.weights = eqx.error_if(
            weights / jnp.sum(weights), ~legal, "weights must be non-negative, one of them positive"
        )

    @classmethod
    def ring(
        cls, components: int = 8, radius: float = 2.0, scale: float = 0.2
    ) -> "GaussianMixture":
        """Equal components in the plane, evenly spaced on a circle around the origin."""
        angles = 2 * jnp.pi * jnp.arange(components) / components
        means = radius * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
        return cls(means, jnp.full(components, scale), jnp.ones(components))

    def sample(self, key: PRNGKeyArray) -> Float[Array, " d"]:
        """One point."""
        which, noise = jax.random.split(key)
        k = jax.random.categorical(which, jnp.log(self.weights))
        return self.means[k] + self.scales[k] * jax.random.normal(noise, self.means.shape[1:])

    def log_prob(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        """log p(x)."""
        square = jnp.sum((x[None] - self.means) ** 2, axis=1) / self.scales**2
        volume = 0.5 * x.size * math.log(2 * math.pi) + x.size * jnp.log(self.scales)
        return logsumexp(jnp.log(self.weights) - 0.5 * square - volume)


class TwoMoons(eqx.Module):
    """Two interleaved half circles in the plane, blurred by Gaussian noise of scale σ = `noise`.

        p(x) = 1/2 Σ_± 1/π ∫₀^π N(x; c_±(a), σ² I) da,
        c_+(a) = (cos a, sin a),    c_−(a) = (1 − cos a, 1/2 − sin a).

    The curves are those of scikit-learn's `make_moons`, with uniform angles. The integral is taken
    by Gauss–Legendre quadrature, to 1e-6 in log p for the noise allowed and |x_i| ≤ 6.
    """

    noise: float = eqx.field(static=True, default=0.1)

    def __check_init__(self):
        if not self.noise >= _LEAST_NOISE:
            raise ValueError(
                f"noise must be at least {_LEAST_NOISE}, not {self.noise}: "
                "log_prob's quadrature cannot resolve a thinner moon"
            )

    def sample(self, key: PRNGKeyArray) -> Float[Array, "2"]:
        """One point."""
        which, along, around = jax.random.split(key, 3)
        upper, lower = _moons(jax.random.uniform(along, maxval=jnp.pi))
        centre = jnp.where(jax.random.bernoulli(which), upper, lower)
        return centre + self.noise * jax.random.normal(around, (2,))

    def log_prob(self, x: Float[Array, "2"]) -> Float[Array, ""]:
        """log p(x)."""
        angles, log_weights = _quadrature()
        centres = jnp.stack(_moons(jnp.asarray(angles, dtype=x.dtype)))
        square = jnp.sum((x[None, None] - centres) ** 2, axis=-1) / self.noise**2
        terms = jnp.asarray(log_weights, dtype=x.dtype)[None] - 0.5 * square
        return logsumexp(terms) - math.log(4 * math.pi * self.noise**2)


def _moons(angle: Float[Array, "..."]) -> tuple[Float[Array, "... 2"], Float[Array, "... 2"]]:
    """The points c_+ and c_− at an angle."""
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([cos, sin], axis=-1), jnp.stack([1 - cos, 0.5 - sin], axis=-1)


@functools.cache
def _quadrature() -> tuple[np.ndarray, np.ndarray]:
    """Angles on [0, π] and the logs of their weights, which sum to one."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return np.pi / 2 * (nodes + 1), np.log(weights / 2)
