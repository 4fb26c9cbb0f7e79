"""The end of sampling where data are behind masks: none may be left."""

import jax
import jax.numpy as jnp

from ..processes import AbsorbingChain, Process, ProductProcess, Reverse
from ..processes.coordinates import each
from ..processes.jump import invert, pick, uniforms
from .base import Sampler


class Unmasking(Sampler):
    """Any sampler; what its last step, to τ = 0, leaves masked is then drawn from the rates."""

    sampler: Sampler

    def step(self, key, at, x, tau, next_tau):
        key, last_key = jax.random.split(key)
        x = self.sampler.step(key, at, x, tau, next_tau)
        return jax.lax.cond(next_tau > 0, lambda x: x, lambda x: _unmask(last_key, at(tau), x), x)


def has_masks(process: Process) -> bool:
    """Whether a process, or a factor of it, hides data behind masks."""
    if isinstance(process, ProductProcess):
        return any(map(has_masks, process.factors))
    return isinstance(process, AbsorbingChain)


def _unmask(key, generative: Process, x):
    if isinstance(x, tuple):
        keys = jax.random.split(key, len(x))
        parts = zip(keys, generative.frozen(x), x, strict=True)
        return tuple(_unmask(k, process, y) for k, process, y in parts)
    if not isinstance(generative, Reverse) or not isinstance(generative.base, AbsorbingChain):
        return x

    def draw(x, rates, u):
        drawn = pick(generative.moves(x), invert(rates, u))
        return jnp.where(x == generative.base.mask, drawn, x)

    return each(draw, x, generative.rates(x), uniforms(key, x.shape))
