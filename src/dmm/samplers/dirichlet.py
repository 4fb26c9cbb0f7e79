"""Steps on simplices and in boxes that never leave them."""

import jax.numpy as jnp

from ..processes import Jacobi, Process, WrightFisher
from ..processes.draws import log_beta, log_dirichlet
from ..spaces import Box, Simplex
from ..spaces.simplex import SMALLEST
from .base import Sampler, default_sampler, diffusion_only


class DirichletStep(Sampler):
    """A Dirichlet draw (in a box, a Beta draw a coordinate) about the mean of a Heun step.

    Two score evaluations a step. With mean m and shape m/(eʰ − 1) the covariance is that of
    Wright–Fisher to first order in h; the point is inside at any step size.
    """

    def step(self, key, at, x, tau, next_tau):
        process, ahead = at(tau), at(next_tau)
        diffusion_only(process, self)
        h, space = jnp.abs(next_tau - tau), process.space
        drift = process.drift(x)
        predicted = space.project(x + h * drift)
        mean = space.project(x + 0.5 * h * (drift + ahead.drift(predicted)))
        certainty = 1 / jnp.expm1(h)
        if isinstance(space, Simplex):
            drawn = jnp.exp(log_dirichlet(key, certainty * mean))
            return jnp.maximum(drawn, SMALLEST)
        if _is_unit(space):
            drawn = jnp.exp(log_beta(key, certainty * mean, certainty * (1 - mean))[0])
            return space.project(drawn)
        raise TypeError("sampler: DirichletStep is for simplices and boxes; use Heun() or Euler()")


def _is_unit(space) -> bool:
    return isinstance(space, Box) and set(space.low) == {0.0} and set(space.high) == {1.0}


@default_sampler.register(WrightFisher)
@default_sampler.register(Jacobi)
def _(process: Process):
    return DirichletStep()
