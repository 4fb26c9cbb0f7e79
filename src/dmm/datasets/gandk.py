"""The g-and-k law: quantiles in closed form, a density by inversion alone."""

import functools
import json
import math
from importlib import resources
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr, ndtri
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import at_least
from ..processes.draws import log_gamma

PARAMETERS = ("A", "B", "g", "k")
LOW, HIGH = 0.0, 10.0  # of the prior, for every parameter
TRUTH = (3.0, 1.0, 2.0, 0.5)  # the paper's
SKEW = 0.8  # the constant c
LEAST_GAP = 2.0**-24  # half the least positive number that single precision draws
NEWTON = 25  # steps; 20 suffice in single precision
# Gauss–Legendre nodes and weights on (0, 1): exact to rounding for the normal density over 1.
NODES, WEIGHTS = (0.5 * part for part in np.polynomial.legendre.leggauss(8))


class GAndK(eqx.Module):
    """θ = (A, B, g, k) uniform on (0, 10)⁴ and order statistics x of g-and-k numbers.

    Of `size` numbers at z ~ N(0, 1),

        A + B (1 + c tanh(gz/2)) (1 + z²)^k z,  c = 0.8,

    all are kept, in order, or `statistics` of them, evenly spaced: the paper's tasks (section 6.1)
    are 250 and 100 of 10,000.
    """

    size: int = eqx.field(static=True, default=250)
    statistics: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        at_least(1, size=self.size, statistics=self.count)
        if self.count > self.size:
            raise ValueError(
                f"statistics: {self.statistics} of {self.size} numbers; choose fewer, or None"
            )

    @property
    def count(self) -> int:
        """How many order statistics are kept."""
        return self.size if self.statistics is None else self.statistics

    @property
    def ranks(self) -> np.ndarray:
        """Which they are, the least being 1: nearest to multiples of (size + 1)/(count + 1)."""
        return np.rint(np.arange(1, self.count + 1) * (self.size + 1) / (self.count + 1))

    @property
    def prior(self) -> Any:
        """The law of θ, as a NumPyro distribution."""
        from numpyro.distributions import Uniform  # a second to import

        return Uniform(LOW, HIGH).expand([4]).to_event(1)

    def simulate(self, key: PRNGKeyArray, theta: Float[Array, "4"]) -> Float[Array, " count"]:
        """The order statistics, drawn as such: those of uniforms are normalised Gamma sums."""
        gaps = np.diff(self.ranks, prepend=0.0, append=self.size + 1.0)
        if np.all(gaps == 1):
            # One in 10⁷ is drawn as 0, which would put the least number at −∞.
            shares = jnp.maximum(jax.random.exponential(key, (len(gaps),)), LEAST_GAP)
        else:
            shares = jnp.exp(log_gamma(key, jnp.asarray(gaps), small=False))
        below, above = jnp.cumsum(shares[:-1]), jnp.cumsum(shares[:0:-1])[::-1]
        # Counted from the nearer end, so that levels near 1 keep their digits.
        z = ndtri(jnp.minimum(below, above) / jnp.sum(shares))
        return jax.vmap(quantile, (None, 0))(theta, jnp.where(below < above, z, -z))

    def sample(self, key: PRNGKeyArray) -> tuple[Float[Array, "4"], Float[Array, " count"]]:
        """One pair (θ, x) of the joint law."""
        prior_key, key = jax.random.split(key)
        theta = jax.random.uniform(prior_key, (4,), minval=LOW, maxval=HIGH)
        return theta, self.simulate(key, theta)

    def log_likelihood(
        self, theta: Float[Array, "4"], x: Float[Array, " count"]
    ) -> Float[Array, ""]:
        """log p(x | θ) but for a constant: Σ log f(x_j) + Σ (numbers between) log(F_j − F_{j−1}).

        The order of x matters only where some numbers lie between.
        """
        total = jnp.sum(jax.vmap(log_prob, (None, 0))(theta, x))
        between = np.diff(self.ranks, prepend=0.0, append=self.size + 1.0) - 1
        if not np.any(between):
            return total
        z = jax.vmap(normal_score, (None, 0))(theta, x)
        masses = jnp.concatenate(
            [log_ndtr(z[:1]), jax.vmap(_log_mass)(z[:-1], z[1:]), log_ndtr(-z[-1:])]
        )
        return total + jnp.sum(jnp.asarray(between, masses.dtype) * masses)

    def reference(
        self, key: PRNGKeyArray, x: Any, n: int, *, warmup: int = 1_000, thin: int = 4
    ) -> Float[np.ndarray, "n 4"]:
        """n draws of the posterior by NUTS in double precision, hardly correlated.

        By four chains, or 64 where there is an accelerator, to which they cost no more.
        """
        from ..inference import nuts

        chains = 4 if jax.default_backend() == "cpu" else 64
        settings = {"chains": chains, "warmup": warmup, "thin": thin}
        return np.asarray(nuts(self.prior, self.log_likelihood, x, key=key, n=n, **settings))

    def observation(self, i: int) -> Float[np.ndarray, " count"]:
        """Data set number i, 0 and up, at the paper's parameters: the same everywhere.

        The first with all of 250 numbers is that of `paper_data`.
        """
        at_least(0, i=i)
        if i == 0 and self.count == self.size == len(paper_data()["x"]):
            return np.sort(paper_data()["x"]).astype(np.float32)
        key = jax.random.fold_in(jax.random.key(2023), i)
        with jax.enable_x64(False):  # draws depend on the precision
            return np.asarray(self.simulate(key, jnp.array(TRUTH)))


def features(x: Float[Array, " count"]) -> Float[Array, " features"]:
    """Order statistics as numbers of order one: their middle, the log of their spread, and asinh of
    the others in units of these.

    They range over fifteen orders of magnitude, of which the middle ones matter most.
    """
    n = x.size
    middle, spread = x[n // 2], jnp.maximum(x[3 * n // 4] - x[n // 4], 1e-6)
    others = jnp.concatenate([x[: n // 2], x[n // 2 + 1 :]])
    scaled = jnp.arcsinh((others - middle[None]) / spread)
    return jnp.concatenate([jnp.stack([middle, jnp.log(spread)]), scaled])


def quantile(theta: Float[Array, "4"], z: Float[Array, ""]) -> Float[Array, ""]:
    """The number that a g-and-k number is less than with probability Φ(z)."""
    a, b, g, k = theta
    return a + b * (1 + SKEW * jnp.tanh(g * z / 2)) * jnp.exp(k * jnp.log1p(z**2)) * z


def log_prob(theta: Float[Array, "4"], x: Float[Array, ""]) -> Float[Array, ""]:
    """The log-density at x: log φ(z) − log ∂x/∂z, at the z of which x is the quantile."""
    u, sign = _inverse(theta, x)
    _, b, g, k = theta
    stretch, slope = _stretch(u, sign, g, k)
    log_phi = -0.5 * jnp.exp(2 * u) - 0.5 * math.log(2 * math.pi)
    return log_phi - jnp.log(b) - stretch - jnp.log(slope)


def normal_score(theta: Float[Array, "4"], x: Float[Array, ""]) -> Float[Array, ""]:
    """The z of which x is the quantile, so that F(x) = Φ(z)."""
    u, sign = _inverse(theta, x)
    return sign * jnp.exp(u)


def _inverse(theta: Array, x: Array) -> tuple[Array, Array]:
    """u = log |z| and the sign of z: the root of u + stretch(u) = log(|x − A|/B)."""
    a, b, g, k = theta
    sign = jnp.where(x < a, -1.0, 1.0)
    distance = jnp.log(jnp.maximum(jnp.abs(x - a), 1e-30)) - jnp.log(b)
    fixed = jax.lax.stop_gradient((sign, g, k, distance))
    u = _solve(*fixed)
    # One more step, of which the derivatives are those of the root.
    stretch, slope = _stretch(u, sign, g, k)
    return u - (u + stretch - distance) / jax.lax.stop_gradient(slope), sign


def _solve(sign: Array, g: Array, k: Array, distance: Array) -> Array:
    """Newton's steps in a bracket, which is halved where they leave it."""
    # k log(1 + e²ᵘ) is between 0 and k log 2 for u < 0, between 2ku and 2ku + k log 2 for u > 0.
    low = distance - math.log(1 + SKEW) - k * math.log(2)
    high = distance - math.log(1 - SKEW)
    low, high = (jnp.where(end > 0, end / (1 + 2 * k), end) for end in (low, high))
    # z² must not overflow; nothing is as far out as e⁴⁰ standard deviations.
    low, high = jnp.minimum(low, 40.0), jnp.minimum(high, 40.0)

    def step(_, state):
        u, low, high = state
        stretch, slope = _stretch(u, sign, g, k)
        excess = u + stretch - distance
        low, high = jnp.where(excess < 0, u, low), jnp.where(excess < 0, high, u)
        new = u - excess / slope
        return jnp.where((new > low) & (new < high), new, 0.5 * (low + high)), low, high

    return jax.lax.fori_loop(0, NEWTON, step, (0.5 * (low + high), low, high))[0]


def _stretch(u: Array, sign: Array, g: Array, k: Array) -> tuple[Array, Array]:
    """k log(1 + z²) + log(1 + c tanh(gz/2)) at z = ±eᵘ, and one more than its derivative in u."""
    half = 0.5 * g * jnp.exp(u)
    lean = jnp.tanh(half)
    skewed = 1 + sign * SKEW * lean
    stretch = k * jax.nn.softplus(2 * u) + jnp.log(skewed)
    slope = 2 * k * jax.nn.sigmoid(2 * u) + sign * SKEW * half * (1 - lean**2) / skewed
    return stretch, 1 + slope


def _log_mass(low: Array, high: Array) -> Array:
    """log(Φ(high) − Φ(low)), to rounding where they are close too."""
    width = high - low
    near = width < 1
    safe = jnp.where(near, width, 0.5)
    nodes = 0.5 + jnp.asarray(NODES, low.dtype)
    inside = low + safe * nodes
    logs = -0.5 * inside**2 - 0.5 * math.log(2 * math.pi)
    close = jax.nn.logsumexp(logs, b=jnp.asarray(WEIGHTS, low.dtype)) + jnp.log(safe)
    # From the tail in which both lie, if they do.
    flip = low + high > 0
    top, bottom = jnp.where(flip, -low, high), jnp.where(flip, -high, low)
    top, bottom = log_ndtr(top), log_ndtr(jnp.where(near, top - 1, bottom))
    return jnp.where(near, close, top + jnp.log(-jnp.expm1(bottom - top)))


@functools.cache
def paper_data() -> dict[str, np.ndarray]:
    """250 numbers at the paper's parameters, with moments of their posterior.

    The paper does not print its data set; this one is NumPy's `default_rng(20230101).normal`.
    `mean` and `sd` are of the posterior by NUTS, of which the effective size is 2900 at least.
    """
    file = resources.files("dmm.datasets").joinpath("gandk.json")
    return {k: np.array(v) for k, v in json.loads(file.read_text(encoding="utf-8")).items()}
