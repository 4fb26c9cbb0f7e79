"""Preconditioning around a linear guess of the posterior."""

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._types import Given
from ..processes import LinearDiffusion, Noising, ProductProcess
from .base import Conditioned, Parameterisation


class Guessed(Conditioned):
    """The score of a Gaussian guess of the posterior, corrected by a network of order one.

    By the guess, x_0 given an observation ξ is normal, independent along an orthonormal basis Q:

        Qᵀx_0 ~ N(Aᵀξ + b, diag w²).

    It is a linear regression (`dmm.inference.linear_guess` makes one), fixed before the network is
    trained, and right already where simulators are linear and Gaussian. Elsewhere the network sees
    how far x is from where regression puts it, in units of how far it may be. For processes on R^d,
    and products of such, that `is_isotropic` knows.
    """

    slope: Float[Array, "n d"]
    offset: Float[Array, " d"]
    width: Float[Array, " d"]
    basis: Float[Array, "d d"]

    def given(self, observed: Given, present: Array | float) -> Parameterisation:
        centre = self.offset + _exact(ravel_pytree(observed)[0], self.slope)
        # Without the observation the guess is that the data are standard normal.
        return _Around(present * centre, self.width**present, self.basis)


class _Around(Parameterisation):
    """With x_τ = m x_0 + √v z and, in the basis, r² = m²w² + v the variance of x_τ by the guess:

        s = −(x − mc)/r² + mw/(√v r) · output,

    which is `Preconditioned` for c = 0 and w = 1. The inputs are x/√(m² + v), as there, and
    (x − mc)/r.
    """

    centre: Float[Array, " d"]
    width: Float[Array, " d"]
    basis: Float[Array, "d d"]

    def inputs(self, process, x, tau):
        flat, _ = ravel_pytree(x)
        m, v = _kernel(process, tau)
        return jnp.concatenate([flat / jnp.sqrt(m**2 + v), self._seen(process, flat, tau)[0]])

    def outputs(self, process, x):
        return jnp.zeros_like(ravel_pytree(x)[0])

    def score(self, process, output, x, tau):
        flat, restore = ravel_pytree(x)
        away, spread, gain = self._seen(process, flat, tau)
        return restore(_exact(self.basis, gain * output - away / spread))

    def _seen(self, process, flat, tau):
        """(x − mc)/r, r and the size of the correction."""
        m, v = _kernel(process, tau)
        left = m * self.width
        spread = jnp.sqrt(left**2 + v)
        away = (_exact(flat, self.basis) - m * self.centre) / spread
        return away, spread, left / (jnp.sqrt(v) * spread)


def is_isotropic(process: Noising) -> bool:
    """Whether x_τ = m x_0 + √v z with the same m and v for all numbers of a point."""
    if isinstance(process, ProductProcess):
        kinds = set(zip(map(type, process.factors), process.speeds, strict=True))
        return len(kinds) == 1 and all(is_isotropic(factor) for factor in process.factors)
    return isinstance(process, LinearDiffusion) and process.copies == 1


def _kernel(process: Noising, tau) -> tuple[Array, Array]:
    """m and v."""
    if isinstance(process, ProductProcess):
        return _kernel(process.factors[0], process.speeds[0] * tau)
    m, r = process.kernel(tau)
    return m[0], r[0, 0] ** 2


def _exact(a: Array, b: Array) -> Array:
    """A product in full precision, which accelerators do not default to and narrow laws need."""
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
