"""Mixtures of wrapped normal laws: rotations whose density is known."""

import json
import math
from importlib import resources

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from scipy.spatial.transform import Rotation

from .._checks import at_least, numbers
from ..spaces import SO3
from ..spaces.rotations import angle, exp_map, log_map, product


class RotationMixture(eqx.Module):
    """Equal wrapped normal laws on SO(3): x = m Exp(v), v ~ N(0, ½σ² I).

    `means` are rotations (k, 3, 3), or what `SO3` takes for them; `sigmas` (k,). The law is the
    paper's (appendix J.4), and so is the measure of its density, the volume of total 8π².
    """

    means: Float[Array, "k 3 3"]
    sigmas: Float[Array, " k"]

    def __init__(self, means, sigmas):
        self.means = SO3().check(means, "means")
        sigmas = numbers(sigmas, "sigmas")
        if sigmas.shape != (len(self.means),):
            raise ValueError(
                f"sigmas: expected shape ({len(self.means)},), one a mean, got {sigmas.shape}"
            )
        if not np.all((np.asarray(sigmas) > 0) & (np.asarray(sigmas) < np.inf)):
            raise ValueError("sigmas: must be positive and finite; mend them")
        self.sigmas = jnp.asarray(sigmas, float)

    @classmethod
    def paper(cls, components: int, seed: int) -> "RotationMixture":
        """The very mixtures of the paper's experiments: 16, 32 or 64 laws, seeds 0 to 4.

        Means are uniform and precisions Gamma(100). For other numbers the same, by
        `numpy.random.default_rng((components, seed))`.
        """
        at_least(1, components=components)
        at_least(0, seed=seed)
        file = resources.files("dmm.datasets").joinpath("rotations.json")
        published = json.loads(file.read_text(encoding="utf-8"))
        if str(components) not in published:
            random = np.random.default_rng((components, seed))
            sigmas = random.gamma(100.0, size=components) ** -0.5
            return cls(Rotation.random(components, rng=random), sigmas)
        mixtures = published[str(components)]
        if seed >= len(mixtures):
            raise ValueError(
                f"seed: the paper's mixtures of {components} laws have seeds 0 to "
                f"{len(mixtures) - 1}, got {seed}; choose one of those, or another number than "
                f"{', '.join(published)}"
            )
        return cls(np.array(mixtures[seed]["quaternions"]), mixtures[seed]["sigmas"])

    def sample(self, key: PRNGKeyArray) -> Float[Array, "3 3"]:
        """One rotation."""
        return self.sample_with_class(key)[0]

    def sample_with_class(self, key: PRNGKeyArray) -> tuple[Float[Array, "3 3"], Array]:
        """One rotation, and the number of the law it comes from."""
        which_key, turn_key = jax.random.split(key)
        which = jax.random.randint(which_key, (), 0, len(self.sigmas))
        v = jax.random.normal(turn_key, (3,)) * self.sigmas[which] / math.sqrt(2)
        return product(self.means[which], exp_map(v)), which

    def log_prob(self, x: Float[Array, "3 3"], which: Array | None = None) -> Float[Array, ""]:
        """log p(x), or that of one of the laws."""
        if which is not None:
            return _log_wrapped(self.means[which], self.sigmas[which], x)
        each = jax.vmap(_log_wrapped, (0, 0, None))(self.means, self.sigmas, x)
        return jax.nn.logsumexp(each) - math.log(len(self.sigmas))


def _log_wrapped(mean: Array, sigma: Array, x: Array) -> Array:
    """Σ_k N(α_k) α_k²/(2 − 2cos α) over the turns α_k = α + 2πk, N of three dimensions."""
    alpha = angle(log_map(product(mean.T, x)))
    variance = sigma**2 / 2
    log_half_sine = jnp.log(jnp.sinc(alpha / (2 * math.pi)))  # sin(α/2)/(α/2)
    straight = -0.5 * alpha**2 / variance - 2 * log_half_sine
    # The turns that go round need not be exact at x = mean, where they have no weight.
    chord = 2 * jnp.maximum(jnp.sin(alpha / 2), 1e-6)
    round_ = jnp.stack([alpha - 2 * math.pi, alpha + 2 * math.pi])
    others = -0.5 * round_**2 / variance + 2 * jnp.log(jnp.abs(round_) / chord)
    logs = jnp.append(others, straight)
    return jax.nn.logsumexp(logs) - 1.5 * jnp.log(2 * math.pi * variance)
