"""The heat kernel of a sphere: the density of Brownian motion, generator ½Δ on Sⁿ.

It depends on the angle φ between x and x_0 alone, through y = sin²(φ/2) and z = cos²(φ/2), which
are |x ∓ x_0|²/4 and so keep their digits at both poles.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import gammaln, loggamma, zeta

from .._types import Scalar, Time

ORDERS, POWERS = 8, 40  # of τ and of φ² in the expansion at small τ
NODES = 48  # of the interpolation in log τ
TINY = 1e-30  # below it y and z are 0


def earliest(dimension: int) -> float:
    """The time from which the mixture serves, and before which the expansion does."""
    return min(0.1, 1 / dimension)


def log_heat_kernel(x: Array, x0: Array, tau: Time) -> Scalar:
    """log q_τ(x | x_0) w.r.t. the surface measure, in whichever form is accurate at τ."""
    y = jnp.maximum(jnp.sum((x - x0) ** 2) / 4, TINY)
    z = jnp.maximum(jnp.sum((x + x0) ** 2) / 4, TINY)
    dimension, tau = len(x) - 1, jnp.asarray(tau, x.dtype)
    switch = earliest(dimension)
    early = log_expansion(dimension, y, z, jnp.minimum(tau, switch))
    late = log_mixture(dimension, z, jnp.maximum(tau, switch))
    return jnp.where(tau < switch, early, late)


def log_uniform(dimension: int) -> float:
    """Minus the log-area of Sⁿ."""
    half = (dimension + 1) / 2
    return math.lgamma(half) - math.log(2) - half * math.log(math.pi)


def heat_kernel_series(dimension: int, cosine: Scalar, tau: Time, *, terms: int = 128) -> Scalar:
    """Σ_l e^{−l(l+n−1)τ/2} (2l+n−1)/(n−1) C_l^{(n−1)/2}(cos φ) over the area of Sⁿ.

    On the circle (1 + 2 Σ_l e^{−l²τ/2} cos lφ)/2π. The terms alternate: the error is rounding of
    the largest one, so far from x_0 at small τ there is nothing left.
    """
    n, degree = dimension, np.arange(terms)
    if n == 1:
        log_count = np.log(np.where(degree == 0, 1.0, 2.0))
    else:
        log_count = np.log((2 * degree + n - 1) / (n - 1)) - gammaln(n - 1)
        log_count += gammaln(degree + n - 1) - gammaln(degree + 1)
    rates = degree * (degree + n - 1) / 2

    def term(polynomials, weight):
        # The polynomials are 1 at x_0; C_l(1) of them is counted in the weight.
        k, log_size, rate = weight
        now, after = polynomials
        follow = ((2 * k + n + 1) * cosine * after - (k + 1) * now) / (k + n)
        return (after, follow), jnp.exp(log_size - rate * tau) * now

    weights = [jnp.asarray(w, cosine.dtype) for w in (degree, log_count + log_uniform(n), rates)]
    return jnp.sum(jax.lax.scan(term, (jnp.ones_like(cosine), cosine), weights)[1])


# --- Later: the mixture over the number of lineages ----------------------------------------------


def log_mixture(dimension: int, z: Scalar, tau: Time) -> Scalar:
    """log Σ_m P(A(τ) = m) (n)_m/(n/2)_m z^m, less the log-area: every term is positive.

    A is the number of lineages with θ = n. log P(A = m) + m(m + n − 1)τ/2 is interpolated in log τ,
    to 5·10⁻⁹ from `earliest` on; at 80/n, where it ends, the law is uniform to rounding.
    """
    table, centre, width = _lineage_table(dimension)
    tau = jnp.minimum(jnp.asarray(tau, z.dtype), 80 / dimension)
    angle = jnp.arccos((jnp.log(tau) - centre) / width)
    chebyshev = jnp.cos(jnp.arange(NODES) * angle)
    m = np.arange(table.shape[1])
    rates = m * (m + dimension - 1) / 2
    interpolated = jnp.dot(chebyshev, jnp.asarray(table, z.dtype), precision="highest")
    terms = interpolated - jnp.asarray(rates, z.dtype) * tau + m * jnp.log(z)
    return log_uniform(dimension) + jax.nn.logsumexp(terms)


@functools.cache
def _lineage_table(dimension: int) -> tuple[np.ndarray, float, float]:
    """Chebyshev coefficients of log P(A = m) + m(m + n − 1)τ/2 + log((n)_m/(n/2)_m), a column an m,
    on an interval of log τ given by its centre and half its width."""
    n, first = dimension, earliest(dimension)
    low, high = math.log(first), math.log(80 / n)
    centre, width = (low + high) / 2, 0.501 * (high - low)  # arccos has no slope at the very ends
    order = np.arange(NODES)
    angles = np.pi * (order + 0.5) / NODES
    tau = np.exp(centre + width * np.cos(angles))[:, None]
    m = np.arange(math.ceil(3 / first) + 16)
    weight = gammaln(n + m) - gammaln(n) - gammaln(n / 2 + m) + gammaln(n / 2)
    values = log_lineages(float(n), m, tau) + m * (m + n - 1) / 2 * tau + weight
    basis = np.cos(order[:, None] * angles) * np.where(order == 0, 1, 2)[:, None] / NODES
    return basis @ values, centre, width


def log_lineages(theta: float, m: np.ndarray, tau: np.ndarray) -> np.ndarray:
    """log P(A(τ) = m) for the lineages of mutation θ, to about 10⁻¹², however small.

    The time at which m are left has a rational Laplace transform, so P(A = m) is
    1/(2πi) ∫ e^{sτ} 2 Γ(m + c + p) Γ(m + c − p)/(m! Γ(m + θ)) ds, c = (θ − 1)/2, p² = c² − 2s.
    The path is the parabola s = μ(1 + iu)² − m(m + θ − 1)/2, with μ near the saddle point.
    """
    c = (theta - 1) / 2
    m, tau = (np.asarray(a, float)[..., None] for a in np.broadcast_arrays(m, tau))
    rate = m * (m + theta - 1) / 2

    def log_integrand(s):
        p = np.sqrt(c**2 - 2 * s + 0j)
        gammas = loggamma(m + c + p) + loggamma(m + c - p) - gammaln(m + 1) - gammaln(m + theta)
        return s * tau + gammas

    steps = np.linspace(-1.5, max(2.0, math.log(10 / np.min(tau))), 64)
    mu = np.exp(steps) / tau
    heights = log_integrand(mu - rate).real
    lowest = np.clip(np.argmin(heights, -1), 1, len(steps) - 2)[..., None]
    before, height, after = (np.take_along_axis(heights, lowest + k, -1) for k in (-1, 0, 1))
    bend = (after - 2 * height + before) / (steps[1] - steps[0]) ** 2
    mu = np.take_along_axis(mu, lowest, -1)
    reach = np.minimum(6.5, 5 / np.sqrt(bend))
    ray = 1 + 1j * reach * (np.arange(48) + 0.5) / 48
    slope = 2j * mu * ray
    values = np.exp(log_integrand(mu * ray**2 - rate) - height) * slope
    return (height + np.log(2 / np.pi * reach * np.mean(values.imag, -1, keepdims=True)))[..., 0]


# --- Earlier: the expansion at small τ -----------------------------------------------------------


def log_expansion(dimension: int, y: Scalar, z: Scalar, tau: Time) -> Scalar:
    """−½n log 2πτ − φ²/2τ + c log(φ/sin φ) + Σ_k b_k(φ) τ^k with c = (n − 1)/2: the logarithm of
    Minakshisundaram and Pleijel's expansion, to order 8 in τ.

    All b_k but b_1 = c²/2 vanish for n = 1 and n = 3: with the image at 2π − φ this is then exact.
    For other n the images of those two are taken, log q_n = (1 − c) log q_1 + c log q_3 + …, which
    keeps it smooth and of the right order at −x_0.
    """
    c = (dimension - 1) / 2
    phi = 2 * jnp.arctan2(jnp.sqrt(y), jnp.sqrt(z))
    rest = 2 * jnp.arctan2(jnp.sqrt(z), jnp.sqrt(y))  # π − φ
    tau = jnp.asarray(tau, y.dtype)
    gap = 2 * jnp.pi * rest / tau  # between the exponents of φ and of its image
    image = jnp.exp(-gap)
    # c log(φ/sin φ) is −c log(1 − φ²/π²) and a series; the image replaces 1/(π − φ) by its bracket.
    bracket = -2 * jnp.pi / tau * jnp.expm1(-gap) / gap - 2 / phi * image
    singular = jnp.log(bracket * (jnp.pi**2 / (jnp.pi + phi)))
    table = jnp.asarray(_expansion_table(dimension), y.dtype)
    powers = (tau / earliest(dimension)) ** jnp.arange(ORDERS + 1)
    smooth = jnp.polyval(jnp.dot(powers, table, precision="highest"), (phi / jnp.pi) ** 2)
    gaussian = -0.5 * phi**2 / tau - dimension / 2 * jnp.log(2 * jnp.pi * tau)
    return gaussian + (1 - c) * jnp.log1p(image) + c * singular + smooth


@functools.cache
def _expansion_table(dimension: int) -> np.ndarray:
    """Coefficients of (τ/`earliest`)^k, a row a k, and of (φ/π)^{2j}, highest first.

    Row 0 is that of c [log(φ/sin φ) + log(1 − φ²/π²)]. From the heat equation the others follow by
    (k + φ∂) b_k = ½b''_{k−1} + (c/φ) b'_{k−1} + ½ Σ_{i+j=k−1} b'_i b'_j − U [k = 1], with the
    potential U = ½[c(c − 1)(1/sin²φ − 1/φ²) − c²].
    """
    c = (dimension - 1) / 2
    j = np.arange(POWERS + ORDERS)
    b = np.zeros((ORDERS + 1, len(j)))
    potential = c * (c - 1) * (2 * j + 1) * zeta(2 * j + 2) / math.pi**2
    potential[0] -= c**2 / 2
    b[1] = -potential / (1 + 2 * j)
    for k in range(2, ORDERS + 1):
        right = (j * (2 * j - 1) + 2 * c * j) * b[k - 1]
        for i in range(1, k - 1):
            right += 0.5 * np.convolve(2 * j * b[i], 2 * j * b[k - 1 - i])[: len(j)]
        b[k, :-1] = right[1:] / math.pi**2 / (k + 2 * j[:-1])
    b[0, 1:] = c * (zeta(2 * j[1:]) - 1) / j[1:]
    scale = earliest(dimension) ** np.arange(ORDERS + 1)
    return (b * scale[:, None])[:, POWERS - 1 :: -1]
