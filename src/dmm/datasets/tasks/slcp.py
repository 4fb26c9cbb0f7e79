"""Simple likelihood, complex posterior."""

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro import distributions
from scipy.special import log_ndtr

from .base import Task
from .gaussians import truncated
from .sampling import generator, grid, kept

POINTS = 4
BOUND = 3.0
LEAST = 1e-6  # added to the variances, as in the benchmark
NUISANCES, COMPONENTS, FREEDOM = 92, 20, 2.0
CELLS = 48  # of the reference's grid, along each of its three axes


class SLCP(Task):
    """θ uniform on (−3, 3)⁵ and four points of the plane, x_i ~ N(m, S):

        m = (θ₁, θ₂),  S = (s₁², ρ s₁ s₂; ρ s₁ s₂, s₂²) + 10⁻⁶ I,
        s₁ = θ₃², s₂ = θ₄², ρ = tanh θ₅,

    x being their eight numbers (Papamakarios et al., 2019; Lueckmann et al., 2021, T.3). The
    posterior has the signs of θ₃ and θ₄ at random; given S, m is normal within the prior's bounds.
    """

    name: ClassVar[str] = "slcp"

    @property
    def prior(self):
        return _uniform()

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "5"]) -> Float[Array, "8"]:
        return _points(key, theta)

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        return _log_likelihood(theta, x)

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        return _reference(key, x, n)


class SLCPDistractors(Task):
    """`SLCP` with 92 numbers that say nothing, all hundred in an order of their own.

    The 92 are a draw of a mixture of 20 Student laws of two degrees of freedom (Lueckmann et al.,
    2021, T.4), with the benchmark's locations, scales and order: those of NumPy's legacy generator,
    seed 42.
    """

    name: ClassVar[str] = "slcp_distractors"

    @property
    def prior(self):
        return _uniform()

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "5"]) -> Float[Array, "100"]:
        points_key, which_key, normal_key, chi_key = jax.random.split(key, 4)
        locations, roots, order = _nuisances()
        which = jax.random.randint(which_key, (), 0, COMPONENTS)
        normal = jax.random.normal(normal_key, (NUISANCES,), theta.dtype)
        chi = jax.random.chisquare(chi_key, FREEDOM, dtype=theta.dtype)
        root = jnp.asarray(roots, theta.dtype)[which]
        noise = jnp.asarray(locations, theta.dtype)[which] + root @ normal * jnp.sqrt(FREEDOM / chi)
        return jnp.concatenate([_points(points_key, theta), noise])[order]

    def log_likelihood(self, theta: Array, x: Array) -> Array:
        return _log_likelihood(theta, x[self.places])

    def reference(self, key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
        return _reference(key, np.asarray(x)[self.places], n)

    @property
    def places(self) -> np.ndarray:
        """Where in x the eight numbers are that say something."""
        return np.argsort(_nuisances()[2])[: 2 * POINTS]


def _uniform() -> distributions.Distribution:
    return distributions.Uniform(jnp.full(5, -BOUND), jnp.full(5, BOUND)).to_event(1)


def _covariance(theta: Any) -> tuple[Any, Any, Any]:
    """The entries S₁₁, S₂₂, S₁₂; θ₃ to θ₅ along the last axis."""
    s1, s2 = theta[..., 0] ** 2, theta[..., 1] ** 2
    numpy = jnp if isinstance(theta, jax.Array) else np
    return s1**2 + LEAST, s2**2 + LEAST, numpy.tanh(theta[..., 2]) * s1 * s2


def _points(key: PRNGKeyArray, theta: Array) -> Array:
    v1, v2, c = _covariance(theta[2:])
    z1, z2 = jax.random.normal(key, (2, POINTS), theta.dtype)
    first = theta[0] + jnp.sqrt(v1) * z1
    second = theta[1] + c / jnp.sqrt(v1) * z1 + jnp.sqrt(v2 - c**2 / v1) * z2
    return jnp.stack([first, second], 1).ravel()


def _log_likelihood(theta: Array, x: Array) -> Array:
    v1, v2, c = _covariance(theta[2:])
    a, b = x.reshape(POINTS, 2).T - theta[:2, None]
    determinant = v1 * v2 - c**2
    squares = (v2 * a**2 - 2 * c * a * b + v1 * b**2) / determinant
    return -0.5 * jnp.sum(squares) - 0.5 * POINTS * jnp.log(4 * jnp.pi**2 * determinant)


def _reference(key: PRNGKeyArray, x: Any, n: int) -> np.ndarray:
    """Rejection: (|θ₃|, |θ₄|, θ₅) from a grid, θ₁ and then θ₂ normal within bounds, signs last.

    The grid is even in √(|θ₃|/3), √(|θ₄|/3) and θ₅, on which the posterior, θ₁ and θ₂ integrated
    out, is known but for the chance of θ₂ to be in bounds; that of its marginal law stands in.
    """
    random, points = generator(key), np.asarray(x, np.float64).reshape(POINTS, 2)
    mean = points.mean(0)
    (q1, c12), (_, q2) = (points - mean).T @ (points - mean)

    def scales(v):
        return np.concatenate([BOUND * v[:, :2] ** 2, v[:, 2:]], 1)

    def log_density(v):
        v1, v2, c = _covariance(scales(v))
        determinant = v1 * v2 - c**2
        squares = (v2 * q1 - 2 * c * c12 + v1 * q2) / determinant
        log_p = -0.5 * squares - 0.5 * (POINTS - 1) * np.log(determinant)
        log_p += _log_mass(mean[0], np.sqrt(v1 / POINTS)) + _log_mass(mean[1], np.sqrt(v2 / POINTS))
        return log_p + np.log(v[:, 0] * v[:, 1])  # dθ = 6v dv

    low, high = np.array([0.0, 0.0, -BOUND]), np.array([1.0, 1.0, BOUND])
    draw = grid(random, log_density, low, high, CELLS)

    def propose():
        v, log_q = draw(4 * n)
        theta = scales(v)
        v1, v2, c = _covariance(theta)
        first = truncated(random, mean[0], np.sqrt(v1 / POINTS), BOUND, v1.shape)
        given = mean[1] + c / v1 * (first - mean[0])  # θ₂ given θ₁
        scale = np.sqrt((v2 - c**2 / v1) / POINTS)
        second = truncated(random, given, scale, BOUND, v1.shape)
        extra = _log_mass(given, scale) - _log_mass(mean[1], np.sqrt(v2 / POINTS))
        signs = random.choice([-1.0, 1.0], (len(v), 2))
        theta = np.concatenate([theta[:, :2] * signs, theta[:, 2:]], 1)
        return np.column_stack([first, second, theta]), log_density(v) - log_q + extra

    return kept(random, propose, n)


def _log_mass(mean: Any, scale: np.ndarray) -> np.ndarray:
    """log of the chance that a normal number is in (−3, 3)."""
    # In the tail in which both ends lie, if they do.
    mean = -np.abs(mean)
    top, bottom = (-BOUND - mean) / scale, (BOUND - mean) / scale
    upper, lower = log_ndtr(bottom), log_ndtr(top)
    flipped_upper, flipped_lower = log_ndtr(-top), log_ndtr(-bottom)
    tail = top > 0
    first, second = np.where(tail, flipped_upper, upper), np.where(tail, flipped_lower, lower)
    return first + np.log1p(-np.exp(np.minimum(second - first, -1e-300)))


@functools.cache
def _nuisances() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Locations and scale matrices of the 20 laws, and the order of the hundred numbers."""
    random = np.random.RandomState(42)
    size = (NUISANCES, NUISANCES)
    locations = np.stack([15 * random.normal(size=NUISANCES) for _ in range(COMPONENTS)])
    roots = [
        np.tril(random.normal(size=size)) + np.diag(np.exp(random.normal(size=NUISANCES)))
        for _ in range(COMPONENTS)
    ]
    return locations, 3 * np.stack(roots), random.permutation(NUISANCES + 2 * POINTS)
