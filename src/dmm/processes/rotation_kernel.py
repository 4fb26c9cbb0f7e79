"""The heat kernel of SO(3): the density of Brownian motion, generator ½Δ, by the angle α from x_0.

Densities are w.r.t. the uniform probability measure. Below τ = 1.5 the sum over windings of α,

    q = √(2π) τ^{−3/2} e^{τ/8} (α/sin ½α) e^{−α²/2τ} R,
    R = 1 + Σ_k (−1)^k 2e^{−2π²k²/τ} [cosh z_k − (4π²k²/τ) sinh z_k/z_k],  z_k = 2πkα/τ,

above it the characters, q = Σ_l (2l + 1) e^{−l(l+1)τ/2} sin((l + ½)α)/sin ½α. Each is cut where
what is left out is below rounding of a double.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.special import zeta

from .._types import Key, Scalar, Time
from .draws import settled

SWITCH = 1.5  # the time from which the characters serve
WINDINGS = 2
DEGREES = 6
TERMS = 16  # of the series of u/α
PROPOSALS = 6


def log_kernel(alpha: Scalar, tau: Time) -> Scalar:
    """log q_τ at the angle α ∈ [0, π]."""
    tau = jnp.asarray(tau, alpha.dtype)
    t = jnp.minimum(tau, SWITCH)
    windings, _ = _windings(alpha, t)
    gaussian = 0.5 * math.log(2 * math.pi) - 1.5 * jnp.log(t) + t / 8 - 0.5 * alpha**2 / t
    early = gaussian + math.log(2) - jnp.log(jnp.sinc(alpha / (2 * math.pi))) + jnp.log(windings)
    late = jnp.log(_characters(alpha, jnp.maximum(tau, SWITCH))[0])
    return jnp.where(tau < SWITCH, early, late)


def slope(alpha: Scalar, tau: Time) -> Scalar:
    """(1/α) ∂_α log q_τ, so that the score at x_0 Exp(ω) is slope · ω: smooth at 0, finite at π.

    Early it is u/α − 1/τ + (R'/α)/R with u/α = 2/(4π² − α²) + Σ_n 2(ζ(2n) − 1)α^{2n−2}/(2π)^{2n},
    the logarithmic derivative of α/sin ½α.
    """
    tau = jnp.asarray(tau, alpha.dtype)
    t = jnp.minimum(tau, SWITCH)
    windings, derivative = _windings(alpha, t)
    n = np.arange(1, TERMS + 1)
    coefficients = 2 * (zeta(2 * n) - 1) / (2 * math.pi) ** (2 * n)
    series = jnp.polyval(jnp.asarray(coefficients[::-1], alpha.dtype), alpha**2)
    jacobian = 2 / (4 * math.pi**2 - alpha**2) + series
    early = jacobian - 1 / t + derivative / windings
    density, change = _characters(alpha, jnp.maximum(tau, SWITCH))
    return jnp.where(tau < SWITCH, early, change / density)


def distribution(alpha: Scalar, tau: Time) -> Scalar:
    """P(angle ≤ α), from τ = 1.5 on: (1/π) Σ_l (2l + 1) e^{…} [sin lα/l − sin (l + 1)α/(l + 1)]."""
    return _share_below(alpha, _weights(tau, alpha.dtype))


def draw_rotation_vector(key: Key, tau: Time) -> Array:
    """ω, |ω| ≤ π, of a rotation Exp(ω) drawn from the kernel.

    Below τ = 1.5 a Gaussian vector of variance τ is accepted with probability sin(½r)/½r, r = |ω| <
    2π, and one beyond π is the rotation by 2π − r the other way. Six proposals: none is accepted in
    10⁻⁵ of draws at most. Later the angle's distribution function is inverted, by halving to within
    10⁻³ and two of Newton's steps.
    """
    normal_key, uniform_key = jax.random.split(key)
    tau = jnp.asarray(tau, jnp.result_type(float))
    z = jax.random.normal(normal_key, (PROPOSALS + 1, 3), tau.dtype)
    u = jax.random.uniform(uniform_key, (PROPOSALS + 1,), tau.dtype)
    # Sums and choices are written out, here and below: on a GPU each is a kernel otherwise, and
    # the draw then takes longer than a network's step.
    norms = jnp.sqrt(z[:, 0] ** 2 + z[:, 1] ** 2 + z[:, 2] ** 2)
    lengths = jnp.sqrt(jnp.minimum(tau, SWITCH)) * norms
    chance = jnp.where(lengths < 2 * math.pi, jnp.sinc(lengths / (2 * math.pi)), 0.0)
    vector, length, norm = z[0], lengths[0], norms[0]
    found = u[0] < chance[0]
    for i in range(1, PROPOSALS):
        taken = ~found & (u[i] < chance[i])
        vector = jnp.where(taken, z[i], vector)
        length, norm = jnp.where(taken, lengths[i], length), jnp.where(taken, norms[i], norm)
        found = found | taken
    length = jnp.minimum(length, 2 * math.pi)
    early = jnp.where(length > math.pi, length - 2 * math.pi, length) / norm
    late = _quantile(u[PROPOSALS], jnp.maximum(tau, SWITCH)) / norms[PROPOSALS]
    early, late = early * vector, late * z[PROPOSALS]
    return settled(jnp.where(tau < SWITCH, early, late))


def _quantile(u: Scalar, tau: Scalar) -> Scalar:
    """The angle of which a share u lies below, for τ ≥ 1.5."""
    weights = _weights(tau, u.dtype)
    low, high = jnp.zeros_like(u), jnp.full_like(u, math.pi)
    for _ in range(12):
        middle = 0.5 * (low + high)
        above = _share_below(middle, weights) > u
        low, high = jnp.where(above, low, middle), jnp.where(above, middle, high)
    alpha = 0.5 * (low + high)
    for _ in range(2):
        density = _characters(alpha, tau)[0] * (1 - jnp.cos(alpha)) / math.pi
        step = (_share_below(alpha, weights) - u) / jnp.maximum(density, 1e-12)
        alpha = jnp.clip(alpha - step, low, high)
    return alpha


def _share_below(alpha: Scalar, weights: list[Scalar]) -> Scalar:
    """`distribution`, of weights computed before."""
    sine, waves = jnp.sin(alpha), _waves(alpha)
    sines = [alpha, *(sine * waves[m - 1] / m for m in range(1, DEGREES + 2))]
    terms = zip(weights, sines[:-1], sines[1:], strict=True)
    return sum((w * (one - two) for w, one, two in terms), jnp.zeros_like(alpha)) / math.pi


def _windings(alpha: Scalar, t: Scalar) -> tuple[Scalar, Scalar]:
    """R and R'/α, in exponentials that cannot overflow."""
    total, derivative = jnp.ones_like(alpha), jnp.zeros_like(alpha)
    for k in range(1, WINDINGS + 1):
        sign, z = (-1) ** k, 2 * math.pi * k * alpha / t
        here = jnp.exp(-2 * math.pi * k * (math.pi * k - alpha) / t)  # e^{z − 2π²k²/t}
        # cosh z, sinh z/z and (cosh z − sinh z/z)/z², all times e^{−2π²k²/t}.
        small = z < 1
        far = jnp.where(small, 1.0, z)
        cosh = 0.5 * here * (1 + jnp.exp(-2 * z))
        ratio = 0.5 * here * jnp.where(z > 0, -jnp.expm1(-2 * z) / jnp.where(z > 0, z, 1.0), 2.0)
        squares = jnp.where(small, z, 0.0) ** 2
        series = jnp.zeros_like(z)
        for n in range(8, 0, -1):
            series = 2 * n / math.factorial(2 * n + 1) + squares * series
        near = here * jnp.exp(-z) * series
        second = jnp.where(small, near, (cosh - ratio) / far**2)
        reach = 4 * math.pi**2 * k**2 / t
        total = total + 2 * sign * (cosh - reach * ratio)
        derivative = derivative + 2 * sign * (reach / t) * (ratio - reach * second)
    return total, derivative


def _weights(tau: Time, dtype) -> list[Scalar]:
    """(2l + 1) e^{−l(l+1)τ/2}, l ≤ 6."""
    tau = jnp.asarray(tau, dtype)
    return [(2 * l + 1) * jnp.exp(-0.5 * l * (l + 1) * tau) for l in range(DEGREES + 1)]  # noqa: E741


def _waves(alpha: Scalar) -> list[Scalar]:
    """sin mα/sin α, m = 1, …, 7: polynomials in cos α, exact at 0 and π."""
    double = 2 * jnp.cos(alpha)
    waves = [jnp.ones_like(alpha), double]
    while len(waves) < DEGREES + 1:
        waves.append(double * waves[-1] - waves[-2])
    return waves


def _characters(alpha: Scalar, tau: Scalar) -> tuple[Scalar, Scalar]:
    """q and (1/α) ∂_α q by the characters, χ_l = 1 + 2 Σ_{m ≤ l} cos mα."""
    weights, waves = _weights(tau, alpha.dtype), _waves(alpha)
    cosines = [jnp.cos(alpha), *(0.5 * (waves[m] - waves[m - 2]) for m in range(2, DEGREES + 1))]
    change = jnp.zeros_like(alpha)
    density = sum(weights, change)
    # Σ_l w_l Σ_{m ≤ l} c_m = Σ_m c_m Σ_{l ≥ m} w_l.
    for m in range(1, DEGREES + 1):
        beyond = sum(weights[m:])
        density = density + 2 * beyond * cosines[m - 1]
        change = change - 2 * beyond * m * waves[m - 1]
    return density, jnp.sinc(alpha / math.pi) * change
