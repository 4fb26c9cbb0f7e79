"""Second order in the weak sense for diffusions with constant covariance."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ..processes import AbstractDiffusion
from ..spaces.tangent import draw_noise, move
from .base import Sampler, default_sampler, diffusion_only


class Heun(Sampler):
    """A stochastic Heun step: predict by Euler–Maruyama, then average the two drifts.

    Two score evaluations a step. Predictor and corrector share their noise, whose size is that at
    x: where the covariance varies the order is one, with a smaller constant. A step that leaves a
    bounded space ends on its boundary or, with `reflect`, as far inside as it went out.
    """

    reflect: bool = eqx.field(static=True, default=False)

    def step(self, key, at, x, tau, next_tau):
        process, ahead = at(tau), at(next_tau)
        diffusion_only(process, self)
        h, space = jnp.abs(next_tau - tau), process.space
        noise = process.root(x, draw_noise(key, space, x))
        noise = jax.tree.map(lambda w: jnp.sqrt(h) * w, noise)
        drift = process.drift(x)
        predicted = jax.tree.map(lambda b, w: h * b + w, drift, noise)
        predicted = move(space, x, predicted, reflect=self.reflect)
        drift_ahead = ahead.drift(predicted)
        step = jax.tree.map(lambda b, c, w: 0.5 * h * (b + c) + w, drift, drift_ahead, noise)
        return move(space, x, step, reflect=self.reflect)


@default_sampler.register(AbstractDiffusion)
def _(process):
    return Heun()
