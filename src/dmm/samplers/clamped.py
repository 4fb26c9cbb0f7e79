"""Inpainting: part of a point is known."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._types import Key, Point, Time
from ..processes import AbsorbingChain, Chain, Noising, ProductProcess, Reverse
from .base import Sampler


class Clamped(Sampler):
    """Any sampler of a generative process; after each step what is known is put in, noised.

    `known` is a data point in the process's units, `where` true at the entries that count. The
    model need not have seen such a task. For masks, which hide and do not change, the known is put
    in as it is, and the law of the rest is the model's own. Elsewhere the rest is drawn with only
    a noised view of it, so that the two may not agree; to take each step back and `repeats` times
    lets them settle (Lugmayr et al. 2022). A model fitted with the known as `given` needs none.
    """

    sampler: Sampler
    known: Point
    where: PyTree
    repeats: int = eqx.field(static=True, default=1)

    def step(self, key, at, x, tau, next_tau):
        process = at(tau)
        if not isinstance(process, Reverse) or not isinstance(process.base, Noising):
            raise TypeError("sampler: Clamped runs generative processes of models only")
        base, h = process.base, jnp.abs(next_tau - tau)

        def clamp(key, x, tau):
            noised = _reveal(key, base, self.known, tau)
            return jax.tree.map(_put, self.where, noised, x)

        def once(x, key):
            before_key, step_key, after_key = jax.random.split(key, 3)
            x = clamp(before_key, x, tau)
            x = self.sampler.step(step_key, at, x, tau, next_tau)
            return clamp(after_key, x, next_tau)

        def again(x, key):
            noise_key, key = jax.random.split(key)
            return once(_noise_further(noise_key, base, x, h), key), None

        first, *rest = jax.random.split(key, self.repeats)
        x = once(x, first)
        return jax.lax.scan(again, x, jnp.stack(rest))[0] if rest else x


def _reveal(key: Key, process: Noising, known: Point, tau: Time) -> Point:
    """What a state at τ shows of the known."""
    if isinstance(process, ProductProcess):
        return _each(_reveal, key, process, known, tau)
    return known if isinstance(process, AbsorbingChain) else process.draw(key, known, tau)


def _noise_further(key: Key, process: Noising, x: Point, h: Time) -> Point:
    """A state after a time h more: exactly, where a state is noised as data are."""
    if isinstance(process, ProductProcess):
        return _each(_noise_further, key, process, x, h)
    if isinstance(process, Chain) or process.data == process.space:
        return process.draw(key, x, h)
    return process.step(key, x, h)


def _each(f, key: Key, process: ProductProcess, x: Point, tau: Time) -> Point:
    parts = zip(jax.random.split(key, len(x)), process.factors, x, process.speeds, strict=True)
    return tuple(f(k, factor, y, c * tau) for k, factor, y, c in parts)


def _put(where, noised, x):
    # A state may hold more than the data, in front: a velocity.
    return jnp.where(jnp.broadcast_to(where, x.shape), noised, x)
