"""The probability flow: deterministic generation with the same marginal laws."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .._types import Point, Time
from ..processes import Reverse
from ..spaces import Euclidean, Product
from ..spaces.tangent import move, zeros
from .base import At, Sampler, diffusion_only


def velocity(at: At, x: Point, tau: Time, sampler: Sampler) -> Point:
    """dx per unit of simulated time, x following the flow of a generative process."""
    process = at(tau)
    diffusion_only(process, sampler)
    if not isinstance(process, Reverse):
        raise TypeError(f"sampler: {type(sampler).__name__} runs generative processes only")
    return process.flow(x, process.score_fn(x))


class ProbabilityFlow(Sampler):
    """Heun's method of second order on the probability flow; the key is not used."""

    def step(self, key, at, x, tau, next_tau):
        h = jnp.abs(next_tau - tau)
        space = at(tau).space
        first = velocity(at, x, tau, self)
        predicted = move(space, x, jax.tree.map(lambda v: h * v, first))
        second = velocity(at, predicted, next_tau, self)
        return move(space, x, jax.tree.map(lambda v, w: 0.5 * h * (v + w), first, second))


class AdaptiveFlow(Sampler):
    """The probability flow on R^d by Diffrax's adaptive solver: one solve a grid interval.

    Few grid steps suffice; the solver refines within each by the tolerances.
    """

    rtol: float = eqx.field(static=True, default=1e-5)
    atol: float = eqx.field(static=True, default=1e-5)
    max_steps: int = eqx.field(static=True, default=4096)

    def step(self, key, at, x, tau, next_tau):
        import diffrax

        space, sign = at(tau).space, jnp.sign(next_tau - tau)
        factors = space.factors if isinstance(space, Product) else (space,)
        if not all(isinstance(factor, Euclidean) for factor in factors):
            raise TypeError("sampler: AdaptiveFlow works on R^d; elsewhere use ProbabilityFlow()")

        def field(elapsed, v, _):
            return velocity(at, move(space, x, v), tau + sign * elapsed, self)

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            t0=jnp.zeros_like(tau),
            t1=jnp.abs(next_tau - tau),
            dt0=None,
            y0=zeros(space, x),
            stepsize_controller=diffrax.PIDController(rtol=self.rtol, atol=self.atol),
            max_steps=self.max_steps,
        )
        return move(space, x, jax.tree.map(lambda v: v[0], solution.ys))
