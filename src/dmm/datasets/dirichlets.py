"""Mixtures of Dirichlet laws: proportions whose density is known."""

import json
from importlib import resources

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln, logsumexp, xlogy
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import at_least, numbers
from ..processes.draws import log_dirichlet
from .toys import Numbers

TINY = 1e-30  # the smallest part that single precision holds with room to spare
_COMPONENTS = 4  # of each of the paper's mixtures


class DirichletMixture(eqx.Module):
    """Dirichlet laws on proportions of n parts: p(x) = Σ_k w_k Dirichlet(x; α_k).

    `alphas` is (k, n); `weights` (k,), equal unless given, are normalised. Densities are w.r.t.
    Lebesgue measure of the first n − 1 parts, as `Simplex` has them.
    """

    alphas: Float[Array, "k n"]
    weights: Float[Array, " k"]

    def __init__(self, alphas: Numbers, weights: Numbers | None = None):
        alphas = numbers(alphas, "alphas")
        if alphas.ndim != 2 or alphas.shape[0] < 1 or alphas.shape[1] < 2:
            raise ValueError(
                "alphas: expected rows of two numbers or more, shape (components, parts), got "
                f"{alphas.shape}; put one component in alphas[None]"
            )
        _require(alphas, (alphas >= TINY) & (alphas < np.inf), "alphas", "positive and finite")
        k = alphas.shape[0]
        weights = numbers(np.ones(k) if weights is None else weights, "weights")
        if weights.shape != (k,):
            raise ValueError(
                f"weights: expected shape ({k},), one a row of alphas, got {weights.shape}"
            )
        legal = (weights >= 0) & (weights < np.inf) & (weights.sum() > 0)
        _require(weights, legal, "weights", "finite and not negative, one of them positive")
        self.alphas = jnp.asarray(alphas, float)
        self.weights = jnp.asarray(weights / weights.sum(), float)

    @classmethod
    def paper(cls, parts: int, seed: int) -> "DirichletMixture":
        """The mixtures of four of the paper's experiments (section 6.4), α ~ Gamma(3, 1).

        For 3, 5, 10 and 20 parts, seeds 0 to 4: the very ones of the published runs. For other
        numbers of parts: the draws `numpy.random.default_rng((parts, seed)).gamma(3.0)`.
        """
        at_least(2, parts=parts)
        at_least(0, seed=seed)
        file = resources.files("dmm.datasets").joinpath("dirichlets.json")
        published = json.loads(file.read_text(encoding="utf-8"))
        if str(parts) not in published:
            random = np.random.default_rng((parts, seed))
            return cls(random.gamma(3.0, size=(_COMPONENTS, parts)))
        mixtures = published[str(parts)]
        if seed >= len(mixtures):
            raise ValueError(
                f"seed: the paper's mixtures of {parts} parts have seeds 0 to {len(mixtures) - 1}, "
                f"got {seed}; choose one of those, or other parts than {', '.join(published)}"
            )
        return cls(mixtures[seed])

    def sample(self, key: PRNGKeyArray) -> Float[Array, " n"]:
        """One point; parts too small for the precision are 1e-30."""
        which, parts = jax.random.split(key)
        k = jax.random.categorical(which, jnp.log(self.weights))
        return jnp.maximum(jnp.exp(log_dirichlet(parts, self.alphas[k])), TINY)

    def log_prob(self, x: Float[Array, " n"]) -> Float[Array, ""]:
        """log p(x)."""
        alphas = self.alphas
        volume = jnp.sum(gammaln(alphas), axis=1) - gammaln(jnp.sum(alphas, axis=1))
        powers = jnp.sum(xlogy(alphas - 1, jnp.broadcast_to(x, alphas.shape)), axis=1)
        return logsumexp(jnp.log(self.weights) + powers - volume)


def _require(array: np.ndarray | Array, legal: np.ndarray | Array, name: str, rule: str) -> None:
    """Entries that keep a rule; those of traced arrays are not known yet."""
    if isinstance(array, jax.core.Tracer):
        return
    bad = np.argwhere(~np.asarray(legal))
    if len(bad):
        index = tuple(map(int, bad[0]))
        raise ValueError(f"{name}: must be {rule}, got {array[index]} at index {index}; mend it")
