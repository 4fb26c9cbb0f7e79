"""Parameterisations of linear diffusions, whose noising is Gaussian.

Given x_0 the state is N(m x_0, RRᵀ) (see `LinearDiffusion`). What the networks predict differs;
the score that comes out is the same kind of thing.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..processes import LinearDiffusion
from ..processes.linear import apply, gain, solve, solve_transposed
from .base import Parameterisation, default_parameterisation


def _scaled(process: LinearDiffusion, x: Array, tau) -> Array:
    """x over its standard deviation at τ when the data have unit variance."""
    m, r = process.kernel(tau)
    return apply(jnp.diag(jax.lax.rsqrt(m**2 + jnp.sum(r**2, axis=1))), x)


class PredictNoise(Parameterisation):
    """The network predicts the noise z of x = m x_0 + Rz: s = −R⁻ᵀ · output."""

    def inputs(self, process: LinearDiffusion, x, tau):
        return _scaled(process, x, tau)

    def outputs(self, process: LinearDiffusion, x):
        return jnp.zeros_like(x)

    def score(self, process: LinearDiffusion, output, x, tau):
        _, r = process.kernel(tau)
        return -apply(solve_transposed(r), output)


class PredictData(Parameterisation):
    """The network predicts the data x_0: s = −(RRᵀ)⁻¹ (x − m · output)."""

    def inputs(self, process: LinearDiffusion, x, tau):
        return _scaled(process, x, tau)

    def outputs(self, process: LinearDiffusion, x):
        return jnp.zeros(process.data.shape, x.dtype)

    def score(self, process: LinearDiffusion, output, x, tau):
        m, r = process.kernel(tau)
        inverse = solve(r)
        precision = jnp.sum(inverse[:, :, None] * inverse[:, None, :], axis=0)
        return -apply(precision, x - process.carry(m, output))


class Preconditioned(Parameterisation):
    """The score of unit Gaussian data, corrected by a network output of order one at every τ.

    s = −Cx + √g · output, with C = (Σ + mmᵀ)⁻¹ the precision of the state under standard Gaussian
    data and g the diagonal of Σ⁻¹ − C, the mean square of what the target then leaves. For
    Ornstein–Uhlenbeck, s = −x + output/√(e^τ − 1). The network speaks only for the copies that
    noise drives.
    """

    def inputs(self, process: LinearDiffusion, x, tau):
        return _scaled(process, x, tau)

    def outputs(self, process: LinearDiffusion, x):
        shape = (len(process.noisy), *process.data.shape)
        return jnp.zeros(shape if process.copies > 1 else process.data.shape, x.dtype)

    def score(self, process: LinearDiffusion, output, x, tau):
        noisy = jnp.asarray(process.noisy)
        scale = jnp.sqrt(gain(process, tau)[noisy])
        correction = scale[:, None] * output.reshape(len(noisy), -1)
        prior = -apply(process.precision(tau), x).reshape(process.copies, -1)
        return prior.at[noisy].add(correction).reshape(x.shape)


@default_parameterisation.register(LinearDiffusion)
def _(process):
    return Preconditioned()
