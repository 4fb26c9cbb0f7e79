"""The denoising objective of a chain, helped by cross-entropy."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .._types import Key, Point, Scalar, Time
from ..processes import Chain, Tractable
from ..processes.chain import Denoiser
from ..processes.coordinates import each
from ..processes.jump import pick
from .score_matching import ScoreAt


class WithCrossEntropy(eqx.Module):
    """I_DSM − weight · E Σ_d log p(x_0^d | x_τ): no longer a bound, but with steadier gradients.

    Both parts are least at the same weights over states, where these can be any.
    """

    weight: float = eqx.field(static=True, default=0.01)

    def __call__(
        self, process: Tractable, score_fn: ScoreAt, key: Key, x0: Point, tau: Time
    ) -> Scalar:
        at = getattr(score_fn, "at", lambda tau: score_fn)(tau)
        if not isinstance(at, Denoiser) or not isinstance(process, Chain):
            raise TypeError(
                "objective: WithCrossEntropy needs a chain, and a parameterisation that predicts "
                "states, as PriorLogits()"
            )
        noised = process.noise(key, x0, tau)

        def log_prob(x0, logits):
            return pick(jax.nn.log_softmax(logits[..., : process.data.states]), x0)

        known = jnp.sum(each(log_prob, x0, at.bridge(noised.x, jnp.zeros(()))))
        loss = process.phi(noised.x, noised.target, at(noised.x))
        return loss - self.weight * known
