"""The square-root diffusion of Cox, Ingersoll and Ross, on positive numbers."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from .._checks import positive
from ..spaces import PositiveReals
from .base import Law, Noised, Stationary, default_process
from .diffusion import AbstractDiffusion
from .draws import log_gamma, poisson

LEAST = 1e-18  # what stands for 0 where one divides: its square is no denormal float


class Gamma(Law):
    """Independent entries, each Gamma(alpha) of rate 1."""

    shape: tuple[int, ...] = eqx.field(static=True)
    alpha: float = eqx.field(static=True)

    def sample(self, key):
        return jnp.maximum(jnp.exp(log_gamma(key, jnp.full(self.shape, self.alpha))), LEAST)

    def log_prob(self, x):
        return jnp.sum((self.alpha - 1) * jnp.log(x) - x) - x.size * gammaln(self.alpha)


class SquareRoot(AbstractDiffusion, Stationary):
    """dX = (α − X)dτ + √(2X) dB in every entry of positive numbers; Gamma(α) is invariant.

    Of N ~ Poisson(x_0/(e^τ − 1)) comes x_τ ~ Gamma(α + N) of rate 1/(1 − e^{−τ}), and the target is
    (α + N − 1)/x − 1/(1 − e^{−τ}). The density is a noncentral χ², by a Bessel function of order
    α − 1; the bound does without it. α = 1, the default, is an exponential law: its mean is 1, as
    is that of data in the default units, so that noise moves no mean; its density at 0 is neither
    0 nor infinite, so that a model's need not be; and its paths do not reach 0, unlike those of
    α < 1. The horizon of 10 leaves e^{−10} of a datum: little, even of the
    largest of 10⁵ in units of their mean.
    """

    data: PositiveReals
    alpha: float = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, data: PositiveReals, alpha: float = 1.0, *, horizon: float = 10.0):
        positive(alpha=alpha, horizon=horizon)
        self.data, self.alpha, self.horizon = data, float(alpha), float(horizon)

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        return Gamma(self.data.shape, self.alpha)

    def drift(self, x):
        return self.alpha - x

    def flux(self, x, s):
        return 2 * x * s

    def root(self, x, z):
        return jnp.sqrt(2 * x) * z

    def spurious(self, x):
        return jnp.full_like(x, 2.0)

    def source(self, x):
        return jnp.asarray(x.size, x.dtype)

    def at_rest(self, x):
        return (self.alpha - 1) / jnp.maximum(x, LEAST) - 1

    def noise(self, key, x0, tau):
        count_key, gamma_key = jax.random.split(key)
        width = -jnp.expm1(-tau)
        shape = self.alpha + poisson(count_key, x0 / jnp.expm1(tau))
        # log of x over its mean given the shape: both x and the target have all digits by it.
        off = log_gamma(gamma_key, shape, shape, small=self.alpha < 1)
        off = jnp.maximum(off, math.log(LEAST) - jnp.log(width * shape))
        target = (jnp.expm1(-off) - jnp.exp(-off) / shape) / width
        return Noised(width * shape * jnp.exp(off), target)

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


@default_process.register
def _(space: PositiveReals):
    return SquareRoot(space)
