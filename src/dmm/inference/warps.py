"""Maps of bounded numbers to the line, where a model works: draws come back inside the bounds."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri
from jax.scipy.stats import norm
from jaxtyping import Array, Bool

from .._types import Scalar

EDGE = 6e-8  # what shares of an interval are kept off its ends, as 1 less it is not 1 in floats
FAR = 80.0  # beyond, exponentials overflow


class Warp(eqx.Module):
    """An increasing map of every entry to the line."""

    @abc.abstractmethod
    def forward(self, x: Array) -> Array:
        """On the line."""

    @abc.abstractmethod
    def inverse(self, z: Array) -> Array:
        """Back, strictly inside."""

    @abc.abstractmethod
    def log_slope(self, z: Array) -> Scalar:
        """Σ log ∂z/∂x at z: log p(x) = log p(z) + that."""

    @abc.abstractmethod
    def contains(self, x: Array) -> Bool[Array, ""]:
        """Whether x lies inside or on the boundary."""


class Log(Warp):
    """z = log x, of positive numbers."""

    def forward(self, x):
        return jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))

    def inverse(self, z):
        return jnp.exp(jnp.clip(z, -FAR, FAR))

    def log_slope(self, z):
        return -jnp.sum(z)

    def contains(self, x):
        return jnp.all((x >= 0) & jnp.isfinite(x))


class Probit(Warp):
    """z = Φ⁻¹(x/width), of numbers from 0 to a width: what is uniform there is standard normal."""

    width: Array

    def forward(self, x):
        return ndtri(jnp.clip(x / self.width, EDGE, 1 - EDGE))

    def inverse(self, z):
        return self.width * jnp.clip(ndtr(z), EDGE, 1 - EDGE)

    def log_slope(self, z):
        return -jnp.sum(norm.logpdf(z) + jnp.log(self.width))

    def contains(self, x):
        return jnp.all((x >= 0) & (x <= self.width))
