"""Diffusions: drift b and covariance a, Lf = ⟨b, ∇f⟩ + ½⟨a, ∇²f⟩."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Function, Key, Scalar, ScoreFn
from ..spaces import Smooth
from .base import Process, Reverse


class AbstractDiffusion(Process):
    """A diffusion by its coefficients; everything else is final.

    Score: ∇log β. Φ(u, s) = ½⟨u − s, a(u − s)⟩, so scores count only modulo the null space of a.
    """

    space: eqx.AbstractVar[Smooth]

    @abc.abstractmethod
    def drift(self, x: Array) -> Array:
        """b(x)."""

    @abc.abstractmethod
    def flux(self, x: Array, s: Array) -> Array:
        """a(x) s."""

    @abc.abstractmethod
    def root(self, x: Array, z: Array) -> Array:
        """σ(x) z with σσᵀ = a."""

    @abc.abstractmethod
    def spurious(self, x: Array) -> Array:
        """(div a)(x)."""

    def covariance_matrix(self, x: Array) -> Array:
        """a(x), over the flattened tangent coordinates."""
        zero = self.space.zero(x)
        basis = jnp.eye(zero.size, dtype=zero.dtype)
        return jax.vmap(lambda e: self.flux(x, e.reshape(zero.shape)).ravel())(basis)

    def generator(self, f, x):
        first = jnp.sum(self.drift(x) * self.space.gradient(f, x))
        return first + 0.5 * jnp.sum(self.covariance_matrix(x) * self.space.hessian(f, x))

    def adjoint(self, f, x):
        """−div(bf) + ½ div div(af)."""

        def current(y):
            return 0.5 * _row_divergence(self, y, f) - f(y) * self.drift(y)

        return self.space.divergence(current, x)

    def score(self, log_beta, x):
        return self.space.gradient(log_beta, x)

    def mean(self, score):
        return score

    def phi(self, x, target, score):
        error = target - score
        return 0.5 * jnp.sum(error * self.flux(x, error))

    def excess(self, x, target, score, other):
        """½⟨s − r, a(s + r − 2u)⟩."""
        return 0.5 * jnp.sum((score - other) * self.flux(x, score + other - 2 * target))

    def implicit(self, score_fn: ScoreFn, x: Array, *, key: Key | None = None) -> Scalar:
        """div(as) + ½⟨s, as⟩ + L*1; the divergence by one random probe where a key is given."""
        s = score_fn(x)

        def field(y):
            return self.flux(y, score_fn(y))

        if key is None:
            divergence = self.space.divergence(field, x)
        else:
            divergence = self.space.probe_divergence(key, field, x)
        return divergence + 0.5 * jnp.sum(s * self.flux(x, s)) + self.source(x)

    def reverse(self, score_fn):
        return ReverseDiffusion(self, score_fn)

    def flow(self, x: Array, score: Array) -> Array:
        """The probability flow b − ½ div a − ½ as: an ODE with the same marginal laws."""
        return self.drift(x) - 0.5 * self.spurious(x) - 0.5 * self.flux(x, score)

    def step(self, key, x, dtau):
        """Euler–Maruyama; on a curved space, the geodesic random walk."""
        zero = self.space.zero(x)
        z = jax.random.normal(key, zero.shape, zero.dtype)
        move = self.drift(x) * dtau + jnp.sqrt(dtau) * self.root(x, z)
        return self.space.project(self.space.exp(x, move))

    def log_step(self, x, y, dtau):
        """Gaussian in the tangent space at x, on the directions that carry noise.

        On closed spaces that leaves out the ways round them: right for short steps.
        """
        error = (self.space.log(x, y) - self.drift(x) * dtau).ravel()
        values, vectors = jnp.linalg.eigh(self.covariance_matrix(x) * dtau)
        noisy = values > 1e-6 * jnp.max(values)
        safe = jnp.where(noisy, values, 1.0)
        terms = (vectors.T @ error) ** 2 / safe + jnp.log(2 * jnp.pi * safe)
        return -0.5 * jnp.sum(jnp.where(noisy, terms, 0.0))


def _row_divergence(
    process: AbstractDiffusion, x: Array, f: Function = lambda _: jnp.ones(())
) -> Array:
    """div(a f) as a vector, by differentiation; f = 1 unless given."""
    space, zero = process.space, process.space.zero(x)

    def row(e):
        direction = e.reshape(zero.shape)
        return space.divergence(lambda y: f(y) * process.flux(y, direction), x)

    basis = jnp.eye(zero.size, dtype=zero.dtype)
    return space.tangent(x, jax.vmap(row)(basis).reshape(zero.shape))


def _source(process: AbstractDiffusion, x: Array) -> Scalar:
    """L*1 = div(½ div a − b), by differentiation."""
    return process.space.divergence(lambda y: 0.5 * process.spurious(y) - process.drift(y), x)


class Diffusion(AbstractDiffusion):
    """A diffusion of the user's own: give `space`, `drift(x)` and `covariance(x)`.

    `covariance` is a matrix over the flattened tangent coordinates and may be singular.
    """

    @abc.abstractmethod
    def covariance(self, x: Array) -> Array:
        """a(x)."""

    def flux(self, x, s):
        return (self.covariance(x) @ s.ravel()).reshape(s.shape)

    def root(self, x, z):
        # By eigenvalues, not Cholesky: a degenerate covariance has no Cholesky factor.
        values, vectors = jnp.linalg.eigh(self.covariance(x))
        return (vectors @ (jnp.sqrt(jnp.maximum(values, 0)) * z.ravel())).reshape(z.shape)

    def spurious(self, x):
        return _row_divergence(self, x)

    def source(self, x):
        return _source(self, x)


class ReverseDiffusion(AbstractDiffusion, Reverse):
    """The time reversal: drift −b + div a + as, the same covariance."""

    base: AbstractDiffusion
    score_fn: ScoreFn

    @property
    def space(self):
        return self.base.space

    def drift(self, x):
        return -self.base.drift(x) + self.base.spurious(x) + self.base.flux(x, self.score_fn(x))

    def flux(self, x, s):
        return self.base.flux(x, s)

    def root(self, x, z):
        return self.base.root(x, z)

    def spurious(self, x):
        return self.base.spurious(x)

    def source(self, x):
        return _source(self, x)
