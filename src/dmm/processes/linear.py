"""Linear diffusions on R^d: Gaussian at every time, so exact in all they do."""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Time
from ..spaces import Euclidean
from .base import HasDensity, Noised
from .diffusion import AbstractDiffusion

Matrix = tuple[tuple[float, ...], ...]


class LinearDiffusion(AbstractDiffusion, HasDensity):
    """dX = F X dτ + G dB on k copies of the data: k = 1, or 2 for position and velocity.

    F and G are k × k and act on each data coordinate alike. Given the data x_0 (what else the
    state holds is integrated out) the state is N(m(τ) x_0, Σ(τ)) with Σ = RRᵀ: `kernel` gives
    m and the lower triangular R. The target is the score −Σ⁻¹(x − m x_0) = −R⁻ᵀz of the draw.
    """

    data: eqx.AbstractVar[Euclidean]
    drift_matrix: eqx.AbstractClassVar[Matrix]
    noise_matrix: eqx.AbstractClassVar[Matrix]

    @abc.abstractmethod
    def kernel(self, tau: Time) -> tuple[Float[Array, " k"], Float[Array, "k k"]]:
        """m(τ) and R(τ)."""

    @abc.abstractmethod
    def precision(self, tau: Time) -> Float[Array, "k k"]:
        """(Σ + mmᵀ)⁻¹: the inverse covariance of the state when the data are N(0, I)."""

    @property
    def copies(self) -> int:
        """k, the number of numbers the state holds a data coordinate."""
        return len(self.drift_matrix)

    @property
    def noisy(self) -> tuple[int, ...]:
        """The copies that noise drives directly: the only part of a score that counts."""
        return tuple(i for i, row in enumerate(self.noise_matrix) if any(row))

    @property
    def space(self):
        shape = self.data.shape
        return Euclidean(shape if self.copies == 1 else (self.copies, *shape))

    def drift(self, x):
        return apply(jnp.asarray(self.drift_matrix, x.dtype), x)

    def flux(self, x, s):
        g = jnp.asarray(self.noise_matrix, s.dtype)
        return apply(g @ g.T, s)

    def root(self, x, z):
        return apply(jnp.asarray(self.noise_matrix, z.dtype), z)

    def spurious(self, x):
        return jnp.zeros_like(x)

    def source(self, x):
        trace = sum(self.drift_matrix[i][i] for i in range(self.copies))
        return jnp.asarray(-trace * x.size / self.copies, x.dtype)

    def noise(self, key, x0, tau):
        m, r = self.kernel(tau)
        z = jax.random.normal(key, self.space.shape, x0.dtype)
        return Noised(self.carry(m, x0) + apply(r, z), -apply(solve_transposed(r), z))

    def log_transition(self, x, x0, tau):
        m, r = self.kernel(tau)
        z = apply(solve(r), x - self.carry(m, x0))
        return -0.5 * jnp.sum(z**2) - 0.5 * x.size * math.log(2 * math.pi) - self._log_volume(r)

    def entropy(self, x0, tau):
        _, r = self.kernel(tau)
        size = self.copies * x0.size
        return 0.5 * size * math.log(2 * math.pi * math.e) + self._log_volume(r)

    def _log_volume(self, r):
        return math.prod(self.data.shape) * jnp.sum(jnp.log(jnp.diagonal(r)))

    def carry(self, m: Float[Array, " k"], x0: Array) -> Array:
        """m x_0, in the shape of the state."""
        return (m.reshape(-1, 1) * x0.reshape(1, -1)).reshape(self.space.shape)


def apply(matrix: Array, x: Array) -> Array:
    """A k × k matrix on the k copies in x; by sums, which stay in full precision on a GPU."""
    rows = x.reshape(1, len(matrix), -1)
    return jnp.sum(matrix[:, :, None] * rows, axis=1).reshape(x.shape)


def solve(r: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """R⁻¹ of a small lower triangular matrix, by unrolled substitution."""
    k = len(r)
    inverse = [[jnp.zeros((), r.dtype)] * k for _ in range(k)]
    for j in range(k):
        inverse[j][j] = 1 / r[j, j]
        for i in range(j + 1, k):
            partial = sum(r[i, n] * inverse[n][j] for n in range(j, i))
            inverse[i][j] = -partial / r[i, i]
    return jnp.stack([jnp.stack(row) for row in inverse])


def solve_transposed(r: Float[Array, "k k"]) -> Float[Array, "k k"]:
    """R⁻ᵀ."""
    return solve(r).T


def gain(process: LinearDiffusion, tau: Time) -> Float[Array, " k"]:
    """diag(Σ⁻¹ − (Σ + mmᵀ)⁻¹): the mean square of the target beyond what unit data explain.

    It is w²/(1 + ⟨m, w⟩) with w = Σ⁻¹m: the rank-one form does not cancel.
    """
    m, r = process.kernel(tau)
    inverse = solve(r)
    half = jnp.sum(inverse * m[None, :], axis=1)
    w = jnp.sum(inverse * half[:, None], axis=0)
    return w**2 / (1 + jnp.sum(half**2))
