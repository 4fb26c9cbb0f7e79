"""Predictor–corrector, for every family."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ..processes import Reverse
from .base import Sampler
from .heun import Heun


class PredictorCorrector(Sampler):
    """Each predictor step is followed by `corrections` moves that leave the current law invariant.

    The noising generator plus the generative one leaves the law at τ invariant (for diffusions
    the sum is Langevin dynamics of covariance 2a), so a correction is a short step back in time
    and a short step forward again, each `size` times as long as the predictor's.
    """

    predictor: Sampler = eqx.field(default_factory=Heun)
    corrections: int = eqx.field(static=True, default=1)
    size: float = eqx.field(static=True, default=0.2)

    def step(self, key, at, x, tau, next_tau):
        key, predictor_key = jax.random.split(key)
        x = self.predictor.step(predictor_key, at, x, tau, next_tau)
        generative = at(next_tau)
        if not isinstance(generative, Reverse):
            raise TypeError("sampler: PredictorCorrector runs generative processes only")
        # No correction at τ = 0, where the score is frozen at τ_min and no longer the state's.
        h = self.size * jnp.abs(next_tau - tau) * (next_tau > 0)
        for correction_key in jax.random.split(key, self.corrections):
            back_key, forth_key = jax.random.split(correction_key)
            x = generative.step(back_key, x, h)
            x = generative.base.step(forth_key, x, h)
        return x
