"""Brownian motion on the rotations: the paper's on SO(3) (section 6.3)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import at_least, positive
from .._types import Scalar, Time
from ..spaces import SO3
from ..spaces.rotations import angle, exp_map, from_quaternion, log_map, product
from .base import Law, Noised, Stationary, default_process
from .diffusion import AbstractDiffusion
from .rotation_kernel import draw_rotation_vector, log_kernel, slope

LOG_VOLUME = math.log(8 * math.pi**2)


class UniformOnSO3(Law):
    """The uniform law on the rotations; its density is w.r.t. the space's own measure."""

    space: SO3

    def sample(self, key):
        q = jax.random.normal(key, (4,))
        return from_quaternion(q / jnp.linalg.norm(q))

    def log_prob(self, x):
        return jnp.asarray(0.0 if self.space.measure == "uniform" else -LOG_VOLUME, x.dtype)


class AbstractRotationalBrownian(AbstractDiffusion, Stationary):
    """Generator ½Δ on SO(3), distance the angle of rotation; the reference is uniform."""

    data: eqx.AbstractVar[SO3]

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        return UniformOnSO3(self.data)

    def drift(self, x):
        return jnp.zeros(3, x.dtype)

    def flux(self, x, s):
        return s

    def root(self, x, z):
        return z

    def spurious(self, x):
        return jnp.zeros(3, x.dtype)

    def source(self, x):
        return jnp.zeros((), x.dtype)

    def at_rest(self, x):
        return jnp.zeros(3, x.dtype)

    def lift(self, key, x0):
        return x0, jnp.zeros((), x0.dtype)

    def drop(self, x):
        return x


class RotationalBrownian(AbstractRotationalBrownian):
    """Brownian motion on SO(3), drawn exactly.

    x_τ = x_0 Exp(ω) with ω drawn from the heat kernel, at every τ exactly, and the target is the
    score of the kernel in the body's frame, (∂_α log q/α) ω, α = |ω|: in closed form from the ω
    that was drawn, without a logarithm of matrices. The horizon is ten relaxation times.
    """

    data: SO3
    horizon: float = eqx.field(static=True)

    def __init__(self, data: SO3, *, horizon: float = 10.0):
        positive(horizon=horizon)
        self.data, self.horizon = data, horizon

    def noise(self, key, x0, tau):
        omega = draw_rotation_vector(key, tau).astype(x0.dtype)
        return Noised(product(x0, exp_map(omega)), slope(angle(omega), tau) * omega)

    def log_transition(self, x: Array, x0: Array, tau: Time) -> Scalar:
        """log q_τ(x | x_0), the heat kernel."""
        return log_kernel(angle(log_map(product(x0.T, x))), tau) + self.reference.log_prob(x)


class SimulatedRotationalBrownian(AbstractRotationalBrownian):
    """Brownian motion on SO(3) by a geodesic walk of `substeps` steps: the paper's baseline.

    The target is Varadhan's approximation log_x(x_0)/τ of the score, right as τ → 0 and 4% off at
    τ = ½ (De Bortoli et al., 2022). `RotationalBrownian` is the same process, exact in both.
    """

    data: SO3
    horizon: float = eqx.field(static=True)
    substeps: int = eqx.field(static=True)

    def __init__(self, data: SO3, *, substeps: int = 100, horizon: float = 10.0):
        positive(horizon=horizon)
        at_least(1, substeps=substeps)
        self.data, self.horizon, self.substeps = data, horizon, substeps

    def noise(self, key, x0, tau):
        def body(x, key):
            return self.step(key, x, tau / self.substeps), None

        x = jax.lax.scan(body, x0, jax.random.split(key, self.substeps))[0]
        return Noised(x, self.space.log(x, x0) / tau)


@default_process.register
def _(space: SO3):
    return RotationalBrownian(space)
