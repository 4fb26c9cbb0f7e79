"""Parameterisations of positive numbers and of counts."""

import jax.numpy as jnp

from ..processes import ImmigrationDeath, SquareRoot
from ..processes.square_root import LEAST
from .base import Parameterisation, default_parameterisation


class PredictElasticity(Parameterisation):
    """s = (α − 1)/x + (m · output − 1)/(1 + mx) with m = 1/(e^τ − 1), entry by entry.

    Where mx is large the output is that of x ∂log q less α − 1: the elasticity of the density, of
    order one however heavy its tail, and the same at all small times. Where m is small, the score
    is that of the reference. Near 0 the score is bounded but for the reference's part, so that
    samples and flows stay positive. The inputs are log(1 + x) and, for what varies near 0 on the
    scale 1/m, log((1 + mx)/(1 + m)).
    """

    def inputs(self, process: SquareRoot, x, tau):
        m = 1 / jnp.expm1(tau)
        near = jnp.log1p(m * x) - jnp.log1p(m)
        return jnp.concatenate([process.space.features(x).ravel(), near.ravel()])

    def outputs(self, process: SquareRoot, x):
        return jnp.zeros_like(x)

    def score(self, process: SquareRoot, output, x, tau):
        m = 1 / jnp.expm1(tau)
        return (process.alpha - 1) / jnp.maximum(x, LEAST) + (m * output - 1) / (1 + m * x)


class PredictIntensities(Parameterisation):
    """Ratios of Poisson laws: up (μ + e^{−τ}ν)/(x + 1), down x/(μ + e^{−τ}ν′), entry by entry.

    μ is the mean of newcomers, and ν that of the data if they were Poisson too. In general
    ν = E[x_0 − K | x]/(1 − e^{−τ}), and ν′ is that at x − 1. The outputs are log ν/(x + 1) and
    log ν′/x: at small τ the log-ratios themselves, of order one for smooth laws of any size; at
    large τ what they say fades, and the score is that of the reference. The inputs are log(1 + x)
    and asinh 2(√x − √λ), which resolves what is near the reference.
    """

    def inputs(self, process: ImmigrationDeath, x, tau):
        births = process.births()
        near = jnp.asinh(2 * (jnp.sqrt(x.astype(births.dtype)) - jnp.sqrt(births)))
        return jnp.concatenate([process.space.features(x).ravel(), near.ravel()])

    def outputs(self, process: ImmigrationDeath, x):
        return jnp.zeros((*x.shape, 2))

    def score(self, process: ImmigrationDeath, output, x, tau):
        births = process.births()
        n = x.astype(births.dtype)
        new = jnp.log(births * -jnp.expm1(-tau))
        up = jnp.logaddexp(new - jnp.log(n + 1), output[..., 0] - tau)
        down = -jnp.logaddexp(new - jnp.log(jnp.maximum(n, 1.0)), output[..., 1] - tau)
        return jnp.stack([up, down], -1)


@default_parameterisation.register(SquareRoot)
def _(process):
    return PredictElasticity()


@default_parameterisation.register(ImmigrationDeath)
def _(process):
    return PredictIntensities()
