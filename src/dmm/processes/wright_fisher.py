"""The Wright–Fisher diffusion: the paper's on the simplex (section 6.4)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from .._checks import at_least, positive
from ..spaces import Simplex
from ..spaces.simplex import SMALLEST
from .base import Law, Noised, Noising, Stationary, default_process
from .diffusion import AbstractDiffusion
from .draws import log_dirichlet, multinomial
from .lineages import MOST, Lineages


class Dirichlet(Law):
    """The Dirichlet law; its density is that of all parts but the last."""

    shape: tuple[float, ...] = eqx.field(static=True)

    def sample(self, key):
        return jnp.maximum(jnp.exp(log_dirichlet(key, jnp.asarray(self.shape))), SMALLEST)

    def log_prob(self, x):
        a = jnp.asarray(self.shape, x.dtype)
        return jnp.sum((a - 1) * jnp.log(x)) + gammaln(jnp.sum(a)) - jnp.sum(gammaln(a))


class AbstractWrightFisher(AbstractDiffusion):
    """Drift ½(ϑ − |ϑ|x), covariance diag(x) − xxᵀ, mutation ϑ > 0; Dirichlet(ϑ) is invariant.

    The paper's s_i is x_i times the score; q_ij = ½ϑ_j, as in its theory.
    """

    data: eqx.AbstractVar[Simplex]
    mutation: eqx.AbstractVar[tuple[float, ...]]

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        return Dirichlet(self.mutation)

    @property
    def lineages(self) -> Lineages:
        return Lineages(sum(self.mutation))

    def rates(self, x: Array) -> Array:
        """ϑ, in the precision of x."""
        return jnp.asarray(self.mutation, x.dtype)

    def drift(self, x):
        return 0.5 * (self.rates(x) - sum(self.mutation) * x)

    def flux(self, x, s):
        moved = x * s
        return moved - x * jnp.sum(moved)

    def root(self, x, z):
        half = jnp.sqrt(x)
        return half * (z - half * jnp.sum(half * z))

    def spurious(self, x):
        return 1 - self.data.parts * x

    def source(self, x):
        n = self.data.parts
        return jnp.asarray(0.5 * (n - 1) * (sum(self.mutation) - n), x.dtype)

    def reverse_rates(self, x: Array, score: Array) -> Array:
        """The paper's r_ij, of rows that sum to 0: the reverse drift is Σ_i r_ij x_i.

        r_ij = ½ϑ_j + (ϑ_i − 1 − s_i) x_j/x_i for i ≠ j, s_i = x_i ∂_i log β. The same in lineages,
        s = ϑ − 1 + L̂ − Âx, is ½(ϑ + 2L̂ − |ϑ + 2L̂|x).
        """
        rates = self.rates(x)
        r = 0.5 * rates[None] + ((rates - 1) / x - score)[:, None] * x[None]
        off = r * (1 - jnp.eye(len(x), dtype=x.dtype))
        return off - jnp.diag(jnp.sum(off, 1))

    def at_rest(self, x: Array) -> Array:
        """The score of Dirichlet(ϑ)."""
        # Not less its mean, as a gradient would be: one small part would cost all others' digits.
        return (self.rates(x) - 1) / x


class WrightFisher(AbstractWrightFisher, Stationary):
    """The Wright–Fisher diffusion: drift ½(ϑ − |ϑ|x), covariance diag(x) − xxᵀ, mutation ϑ > 0.

    Dirichlet(ϑ) is invariant. Of the A(τ) lineages left at τ, L ~ Multinomial(A, x_0) lead to the
    parts, and x_τ given them is Dirichlet(ϑ + L): an exact draw, whose latents give the target
    (ϑ + L − 1)/x − A. (A constant does not count, and without it −A of 10⁵ and more would have to
    cancel.) By default ϑ = 1, whose invariant law is uniform: with more, the model's density falls
    to 0 at the boundary below the scale of τ_min, and data near it cost tenths of nats.
    """

    data: Simplex
    mutation: tuple[float, ...] = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, data: Simplex, mutation=1.0, *, horizon: float | None = None):
        self.data, self.mutation = data, _rates(mutation, data.parts)
        self.horizon = _horizon(self.mutation) if horizon is None else horizon
        positive(horizon=self.horizon)

    def noise(self, key, x0, tau):
        keys = jax.random.split(key, 3)
        count = self.lineages.draw(keys[0], tau).astype(x0.dtype)
        led = multinomial(keys[1], count, x0, MOST)
        shape = self.rates(x0) + led
        logs = log_dirichlet(keys[2], shape, small=min(self.mutation) < 1)
        x = jnp.maximum(jnp.exp(logs), SMALLEST)
        return Noised(x, (shape - 1 - count * x) / x)

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


SCHEMES = ("euler", "dirichlet")


class SimulatedWrightFisher(AbstractWrightFisher, Noising):
    """Wright–Fisher noised by `substeps` small steps of length h: the paper's baseline.

    `scheme` is "euler", Euler–Maruyama cut off at the boundary as in the published code, or
    "dirichlet", draws of mean m = x + h·drift and shape m/(eʰ − 1), which cannot leave. Both are
    right to first order in h. There is no target: it is trained by the implicit objective.
    `WrightFisher` is the same process with exact draws.
    """

    data: Simplex
    mutation: tuple[float, ...] = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    substeps: int = eqx.field(static=True)
    scheme: str = eqx.field(static=True)

    def __init__(
        self,
        data: Simplex,
        mutation=1.0,
        *,
        substeps: int = 1000,
        scheme: str = "euler",
        horizon: float | None = None,
    ):
        self.data, self.mutation = data, _rates(mutation, data.parts)
        self.horizon = _horizon(self.mutation) if horizon is None else horizon
        self.substeps, self.scheme = substeps, scheme
        positive(horizon=self.horizon)
        at_least(1, substeps=substeps)
        if scheme not in SCHEMES:
            raise ValueError(f"scheme: expected one of {', '.join(SCHEMES)}, got {scheme!r}")

    def draw(self, key, x0, tau):
        h = tau / self.substeps

        def body(x, key):
            if self.scheme == "euler":
                return self.step(key, x, h), None
            mean = self.data.project(x + h * self.drift(x))
            drawn = jnp.exp(log_dirichlet(key, mean / jnp.expm1(h)))
            return jnp.maximum(drawn, SMALLEST), None

        return jax.lax.scan(body, x0, jax.random.split(key, self.substeps))[0]

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


def _rates(mutation, parts: int) -> tuple[float, ...]:
    rates = (float(mutation),) * parts if np.ndim(mutation) == 0 else tuple(map(float, mutation))
    if len(rates) != parts:
        raise ValueError(f"mutation: expected one number or {parts}, a part each, got {len(rates)}")
    if min(rates) <= 0:
        raise ValueError(f"mutation: must be positive, got {min(rates)}")
    return rates


def _horizon(rates: tuple[float, ...]) -> float:
    """Of the data a share of about (1 + |ϑ|) e^{−|ϑ|τ/2} is left at τ: here 10⁻⁴ of it."""
    total = sum(rates)
    return 2 / total * math.log(1e4 * (1 + total))


@default_process.register
def _(space: Simplex):
    return WrightFisher(space)
