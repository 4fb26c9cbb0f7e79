"""How a loss weighs times: λ(τ) in ∫ λ(τ) E Φ dτ."""

import functools

import jax.numpy as jnp

from .._types import Time
from ..processes import LinearDiffusion, Noising, ToroidalBrownian
from ..processes.linear import gain
from .base import Schedule


def likelihood_weighting(process: Noising, schedule: Schedule, tau: Time):
    """λ = 1: the loss is the evidence bound, whatever the schedule."""
    return jnp.ones_like(tau)


def variance_weighting(process: Noising, schedule: Schedule, tau: Time):
    """λ(τ) = v(τ)/(dτ/dt), the usual one: noise predicted equally well at every t."""
    return noise_variance(process, tau) / schedule.rate(schedule.t(tau))


@functools.singledispatch
def noise_variance(process: Noising, tau: Time):
    """v(τ), the inverse of a target's mean square.

    Unless registered: the horizon is taken as ten relaxation times.
    """
    return -jnp.expm1(-10.0 / process.horizon * tau)


@noise_variance.register
def _(process: LinearDiffusion, tau: Time):
    """The conditional variance of the copy that noise drives, given the others."""
    _, r = process.kernel(tau)
    return r[-1, -1] ** 2


@noise_variance.register
def _(process: ToroidalBrownian, tau: Time):
    return -jnp.expm1(-tau)


@functools.singledispatch
def signal(process: Noising, tau: Time):
    """The share of a target's mean square that depends on the data: 1 at τ = 0, then falling.

    Unless registered: the horizon is taken as ten relaxation times.
    """
    return jnp.exp(-10.0 / process.horizon * tau)


@signal.register
def _(process: LinearDiffusion, tau: Time):
    return gain(process, tau)[-1] * noise_variance(process, tau)
