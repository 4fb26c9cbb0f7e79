"""Brownian motion on spheres."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import positive
from .._types import Scalar, Time
from ..spaces import Sphere
from .base import Law, Noised, Stationary, default_process
from .diffusion import AbstractDiffusion
from .draws import log_beta
from .heat import log_heat_kernel, log_uniform
from .lineages import Lineages


class UniformOnSphere(Law):
    """The uniform law on Sⁿ."""

    dimension: int = eqx.field(static=True)

    def sample(self, key):
        z = jax.random.normal(key, (self.dimension + 1,))
        return z / jnp.linalg.norm(z)

    def log_prob(self, x):
        return jnp.asarray(log_uniform(self.dimension), x.dtype)


class SphericalBrownian(AbstractDiffusion, Stationary):
    """Generator ½Δ on Sⁿ; the reference is uniform.

    With A lineages left at τ (mutation θ = n), x lies at the cosine 1 − 2y from x_0,
    y ~ Beta(n/2, n/2 + A), in a uniform direction: an exact draw at every τ. The latent A gives
    the target A · proj_x(x_0)/(1 + ⟨x_0, x⟩). The horizon is ten relaxation times, 20/n.
    """

    data: Sphere
    horizon: float = eqx.field(static=True)

    def __init__(self, data: Sphere, *, horizon: float | None = None):
        self.data = data
        self.horizon = 20 / data.dimension if horizon is None else horizon
        positive(horizon=self.horizon)

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        return UniformOnSphere(self.data.dimension)

    @property
    def lineages(self) -> Lineages:
        return Lineages(float(self.data.dimension))

    def drift(self, x):
        return jnp.zeros_like(x)

    def flux(self, x, s):
        return self.data.tangent(x, s)

    def root(self, x, z):
        return self.data.tangent(x, z)

    def spurious(self, x):
        return jnp.zeros_like(x)

    def source(self, x):
        return jnp.zeros((), x.dtype)

    def at_rest(self, x):
        return jnp.zeros_like(x)

    def noise(self, key, x0, tau):
        count_key, beta_key, direction_key = jax.random.split(key, 3)
        half = jnp.asarray(self.data.dimension / 2, x0.dtype)
        count = self.lineages.draw(count_key, tau).astype(x0.dtype)
        log_y, log_rest = log_beta(beta_key, half, half + count, small=self.data.dimension < 2)
        near, far = jnp.exp(0.5 * log_y), jnp.exp(0.5 * log_rest)  # sine and cosine of half the way
        cosine, sine = 1 - 2 * near**2, 2 * near * far
        z = self.data.tangent(x0, jax.random.normal(direction_key, x0.shape, x0.dtype))
        away = z / jnp.linalg.norm(z)
        x = self.data.project(cosine * x0 + sine * away)
        # proj_x(x_0)/(1 + ⟨x_0, x⟩) = tan(half the way) times the unit vector from x towards x_0.
        target = count * near / far * (sine * x0 - cosine * away)
        return Noised(x, target)

    def log_transition(self, x: Array, x0: Array, tau: Time) -> Scalar:
        """log q_τ(x | x_0), the heat kernel: a mixture over A from τ = min(1/10, 1/n) on, below it
        an expansion in τ.

        Error of the logarithm in double precision: 10⁻⁹ for the mixture, 10⁻⁶ for the expansion up
        to an angle of 2.5 and rounding for n = 1 and n = 3. Beyond that angle, where the density is
        e^{−3/τ} of its peak, the expansion fades to the leading order: at −x_0 it is off by 0.2 on
        S², 1 on S⁵ and 70 (of 400) on S⁶⁴. Single precision adds a few units of rounding.
        """
        return log_heat_kernel(x, x0, tau)

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


@default_process.register
def _(space: Sphere):
    return SphericalBrownian(space)
