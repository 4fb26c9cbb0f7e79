"""Exact noise between two halves of what was learned: second order on curved spaces too."""

import jax.numpy as jnp

from ..processes import (
    AbstractDiffusion,
    Reverse,
    RotationalBrownian,
    SphericalBrownian,
    SquareRoot,
)
from ..processes.base import Stationary
from ..spaces import PositiveReals
from ..spaces.tangent import move
from .base import Sampler, default_sampler, diffusion_only


class Splitting(Sampler):
    """The noising process drawn exactly, and the rest of the generative drift, in turn.

    The time reversal of a process that is reversible w.r.t. its reference π has the generator
    L + ⟨c, ∇⟩, c = a(s − ∇log π). With N an exact draw of the noising process over the step h,

        x̂ = N(x + h c(x)),  x' = N(x + ½h c(x)) + ½h c(x̂, ahead),

    both draws with the same random numbers: of weak order two, where tangent Gaussians, as in
    `Heun`, leave an error of first order on curved spaces. Two score evaluations a step. Positive
    numbers are moved by factors, x e^{hc/x}, and stay so.
    """

    def step(self, key, at, x, tau, next_tau):
        process, ahead = at(tau), at(next_tau)
        diffusion_only(process, self)
        if not isinstance(process, Reverse):
            raise TypeError("sampler: Splitting runs generative processes only")
        noising, space, h = process.base, process.space, jnp.abs(next_tau - tau)
        if not isinstance(noising, Stationary) or noising.data != space:
            raise TypeError(
                f"sampler: Splitting needs exact noising and an invariant reference, which "
                f"{type(noising).__name__} does not declare; use Heun()"
            )

        def along(process, x, share):
            departure = process.score_fn(x) - noising.at_rest(x)
            return share * h * noising.flux(x, departure)

        # A step of length 0 has no noise to draw, and no time to draw it at.
        length = jnp.maximum(h, jnp.finfo(x.dtype).tiny)
        full = along(process, x, 1.0)
        guess = noising.draw(key, _led(space, x, full), length)
        x = noising.draw(key, _led(space, x, 0.5 * full), length)
        if isinstance(space, PositiveReals):
            # The field at the guess, as a share of the guess.
            return _led(space, x, x / guess * along(ahead, guess, 0.5))
        return move(space, x, space.tangent(x, along(ahead, guess, 0.5)))


def _led(space, x, v):
    """The point that v leads to from x."""
    if isinstance(space, PositiveReals):
        return space.project(x * jnp.exp(v / x))
    return move(space, x, v)


@default_sampler.register(RotationalBrownian)
@default_sampler.register(SphericalBrownian)
@default_sampler.register(SquareRoot)
def _(process: AbstractDiffusion):
    return Splitting()
