"""Jacobi diffusions: two-type Wright–Fisher in every coordinate of a box."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import betaln

from .._checks import positive
from ..spaces import Box
from .base import Law, Noised, Stationary, default_process
from .diffusion import AbstractDiffusion
from .draws import log_beta, multinomial
from .lineages import MOST, Lineages


class Beta(Law):
    """Independent coordinates in (0, 1), each Beta(a, b)."""

    size: int = eqx.field(static=True)
    a: float = eqx.field(static=True)
    b: float = eqx.field(static=True)

    def sample(self, key):
        a, b = jnp.full(self.size, self.a), jnp.full(self.size, self.b)
        return _unit(self.size).project(jnp.exp(log_beta(key, a, b)[0]))

    def log_prob(self, x):
        each = (self.a - 1) * jnp.log(x) + (self.b - 1) * jnp.log1p(-x)
        return jnp.sum(each - betaln(self.a, self.b))


class Jacobi(AbstractDiffusion, Stationary):
    """Independent coordinates in (0, 1) of drift ½(a(1 − x) − bx) and variance x(1 − x).

    Beta(a, b) is invariant. The data live in a `Box`, whose units are scaled to (0, 1). Of A(τ)
    lineages L ~ Binomial(A, x_0) lead upwards, x_τ ~ Beta(a + L, b + A − L), and the target is
    (a + L − 1)/x − (b + A − L − 1)/(1 − x).
    """

    data: Box
    a: float = eqx.field(static=True)
    b: float = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, data: Box, a: float = 1.0, b: float = 1.0, *, horizon: float | None = None):
        positive(a=a, b=b)
        self.data, self.a, self.b = data, float(a), float(b)
        total = self.a + self.b
        self.horizon = 2 / total * math.log(1e4 * (1 + total)) if horizon is None else horizon
        positive(horizon=self.horizon)

    @property
    def space(self):
        return _unit(len(self.data.low))

    @property
    def reference(self):
        return Beta(len(self.data.low), self.a, self.b)

    @property
    def lineages(self) -> Lineages:
        return Lineages(self.a + self.b)

    def drift(self, x):
        return 0.5 * (self.a - (self.a + self.b) * x)

    def flux(self, x, s):
        return x * (1 - x) * s

    def root(self, x, z):
        return jnp.sqrt(x * (1 - x)) * z

    def spurious(self, x):
        return 1 - 2 * x

    def source(self, x):
        return jnp.asarray(x.size * (0.5 * (self.a + self.b) - 1), x.dtype)

    def at_rest(self, x):
        return (self.a - 1) / x - (self.b - 1) / (1 - x)

    def noise(self, key, x0, tau):
        def one(key, x0):
            count_key, up_key, beta_key = jax.random.split(key, 3)
            count = self.lineages.draw(count_key, tau).astype(x0.dtype)
            up, down = multinomial(up_key, count, jnp.stack([x0, 1 - x0]), MOST)
            a, b = self.a + up, self.b + down
            logs = log_beta(beta_key, a, b, small=min(self.a, self.b) < 1)
            return jnp.exp(logs[0]), a, b

        x, a, b = jax.vmap(one)(jax.random.split(key, x0.size), x0)
        x = self.space.project(x)
        return Noised(x, (a - 1) / x - (b - 1) / (1 - x))

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


def _unit(size: int) -> Box:
    return Box((0.0,) * size, (1.0,) * size)


@default_process.register
def _(space: Box):
    return Jacobi(space)
