"""Steps on simplices and in boxes that never leave them."""

import jax.numpy as jnp
from jaxtyping import Array

from ..processes import AbstractWrightFisher, Jacobi, Process
from ..processes.draws import log_beta, log_dirichlet
from ..spaces import Box, Simplex
from ..spaces.simplex import SMALLEST
from .base import Sampler, default_sampler, diffusion_only


class DirichletStep(Sampler):
    """Predict by a Dirichlet draw (in a box, a Beta draw a coordinate), then correct the drift.

    Two score evaluations a step. The draw y has mean m = x + h b(x) and shape m/(eʰ − 1), which
    has the covariance of Wright–Fisher over a step h; then y moves by c = ½h(b(y, ahead) − b(x)),
    the correction of a Heun step with its noise, in a form that keeps parts positive. Inside at
    any step size, and where no part is small of second order in what was measured.
    """

    def step(self, key, at, x, tau, next_tau):
        process, ahead = at(tau), at(next_tau)
        diffusion_only(process, self)
        h, space = jnp.abs(next_tau - tau), process.space
        drift = process.drift(x)
        mean = space.project(x + h * drift)
        certainty = 1 / jnp.expm1(h)
        if isinstance(space, Simplex):
            drawn = jnp.maximum(jnp.exp(log_dirichlet(key, certainty * mean)), SMALLEST)
            change = 0.5 * h * (ahead.drift(drawn) - drift)
            return jnp.maximum(_changed(drawn, change), SMALLEST)
        if _is_unit(space):
            logs = log_beta(key, certainty * mean, certainty * (1 - mean))
            drawn = space.project(jnp.exp(logs[0]))
            change = 0.5 * h * (ahead.drift(drawn) - drift)
            pairs = _changed(jnp.stack([drawn, 1 - drawn], -1), jnp.stack([change, -change], -1))
            return space.project(pairs[..., 0])
        raise TypeError("sampler: DirichletStep is for simplices and boxes; use Heun() or Euler()")


def _changed(parts: Array, change: Array) -> Array:
    """parts + change to second order, scaled to sum to 1: p + c, or p²/(p − c) where c < 0."""
    less = parts / (1 - jnp.minimum(change, 0.0) / parts)
    moved = jnp.where(change >= 0, parts + change, less)
    return moved / jnp.sum(moved, -1, keepdims=True)


def _is_unit(space) -> bool:
    return isinstance(space, Box) and set(space.low) == {0.0} and set(space.high) == {1.0}


@default_sampler.register(AbstractWrightFisher)
@default_sampler.register(Jacobi)
def _(process: Process):
    return DirichletStep()
