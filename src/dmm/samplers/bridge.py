"""The ancestral bridge: for chains, with a model that predicts the data."""

import jax.numpy as jnp

from ..processes import Chain, Reverse
from ..processes.chain import Denoiser
from ..processes.coordinates import each
from ..processes.jump import invert, uniforms
from .base import Sampler, default_sampler


class Bridge(Sampler):
    """Each coordinate from its law at the earlier time given all of x, exactly and independently.

    p(x_s | x_τ) = Σ_{x_0} p(x_0 | x_τ) q(x_s | x_0) q(x_τ | x_s)/q(x_τ | x_0), a coordinate. With
    one coordinate it is exact at any number of steps. Guidance mixes the laws of a step
    geometrically, which to first order is to mix rates so.
    """

    def step(self, key, at, x, tau, next_tau):
        generative = at(tau)
        if not isinstance(generative, Reverse) or not isinstance(generative.base, Chain):
            raise TypeError("sampler: Bridge runs generative processes of chains; use Euler()")
        if not isinstance(generative.score_fn, Denoiser):
            raise TypeError(
                "sampler: Bridge needs a model that predicts data, as with PriorLogits(); with "
                "another parameterisation pass sampler=dmm.Euler()"
            )

        def draw(x, logits, u):
            law = jnp.exp(logits - jnp.max(logits, -1, keepdims=True))
            return invert(law, u).astype(x.dtype)

        logits = generative.score_fn.bridge(x, next_tau)
        return each(draw, x, logits, uniforms(key, x.shape))


@default_sampler.register(Chain)
def _(process):
    return Bridge()
