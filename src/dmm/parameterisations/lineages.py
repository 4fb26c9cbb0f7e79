"""Parameterisations of processes that rest on lineages."""

import jax.numpy as jnp

from ..processes import AbstractWrightFisher, Jacobi
from .base import Parameterisation, default_parameterisation


class PredictLineages(Parameterisation):
    """s = ∇log π + m/(1 + mx) · output, part by part of a composition; m the mean lineages at τ.

    The output is (L̂ − Âx)(1 + mx)/(mx), L̂ the expected lineages of the parts and Â of all. Where
    mx is large it is x ∂log q/π, the paper's s less that of π, and hardly depends on τ: what is
    learned at one time holds at all earlier ones. And L̂ vanishes with x, as it must, in proportion:
    the flow's divergence stays bounded up to the boundary.

    The inputs are √(Nx) and log((1 + mx)/(1 + m/N)): near the boundary scores vary on the scale
    1/m, which may be any share of the first.
    """

    def inputs(self, process: AbstractWrightFisher, x, tau):
        m, parts = process.lineages.mean(tau), process.data.parts
        near = jnp.log1p(m * x) - jnp.log1p(m / parts)
        return jnp.concatenate([process.space.features(x), near])

    def outputs(self, process: AbstractWrightFisher, x):
        return jnp.zeros_like(x)

    def score(self, process: AbstractWrightFisher, output, x, tau):
        m = process.lineages.mean(tau)
        return process.at_rest(x) + m / (1 + m * x) * output


class PredictDeparture(Parameterisation):
    """s = ∇log π + m/(1 + mv) · output with v = x(1 − x), in every coordinate of a box.

    m is the mean number of lineages A at τ: the target differs from ∇log π by (L − Ax)/v. The
    process stays inside, since at the bounds the drift is that of π. The inputs are 2x − 1 and,
    for what varies near the bounds on the scale 1/m, log((1 + mx)/(1 + m(1 − x))).
    """

    def inputs(self, process: Jacobi, x, tau):
        m = process.lineages.mean(tau)
        near = jnp.log1p(m * x) - jnp.log1p(m * (1 - x))
        return jnp.concatenate([process.space.features(x), near])

    def outputs(self, process: Jacobi, x):
        return jnp.zeros_like(x)

    def score(self, process: Jacobi, output, x, tau):
        m = process.lineages.mean(tau)
        return process.at_rest(x) + m / (1 + m * x * (1 - x)) * output


@default_parameterisation.register(Jacobi)
def _(process):
    return PredictDeparture()


@default_parameterisation.register(AbstractWrightFisher)
def _(process):
    return PredictLineages()
