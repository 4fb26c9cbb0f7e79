"""A transformer for sequences, every place seeing all."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import share
from .._types import Given, Key
from .base import Stochastic
from .flat import like, size
from .layers import Attention, Dense, Norm, Summary, drop


class Transformer(Stochastic):
    """Blocks of attention and a two-layer network, told the time by shifts, scales and gates.

    A point is a sequence, (places,) or (places, features); what is observed on the same places,
    (places, features), is stacked with it; labels and other numbers join the time. `dtype` is the
    precision of computation, such as bfloat16; weights, norms and outputs are in full precision.
    """

    summary: Summary
    embed: Dense
    places: Array
    blocks: list["_Block"]
    norm: Norm
    last: Dense
    outputs: PyTree = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self,
        key: Key,
        inputs: PyTree,
        outputs: PyTree,
        given: Given = None,
        *,
        width: int = 256,
        depth: int = 6,
        heads: int = 4,
        dropout: float = 0.0,
        dtype: Any = None,
    ):
        share(dropout=dropout)
        length = _sequence(inputs)
        outputs = like(outputs)
        keys = jax.random.split(key, depth + 4)
        self.summary = Summary(keys[0], given, (length,), width)
        here, _ = Summary.split(given, (length,))
        self.embed = Dense(keys[1], size((inputs, here)) // length, width)
        self.places = 0.02 * jax.random.normal(keys[2], (length, width))
        self.blocks = [_Block(k, width, heads, dropout) for k in keys[4:]]
        self.norm = Norm(width)
        self.last = Dense(keys[3], width, size(outputs) // length, gain=0.0)
        self.outputs, self.dtype = outputs, jnp.dtype(dtype or jnp.result_type(float))

    def __call__(self, inputs, tau, given=None, present=1.0, key=None):
        length = _sequence(inputs)
        summary, here = self.summary(tau, given, present, self.dtype)
        stack = [leaf.reshape(length, -1) for leaf in (inputs, *here)]
        h = self.embed(jnp.concatenate(stack, -1).astype(self.dtype))
        h = h + self.places.astype(h.dtype)
        for i, block in enumerate(self.blocks):
            h = block(h, summary, None if key is None else jax.random.fold_in(key, i))
        h = self.last(jax.vmap(self.norm)(h))
        return h.astype(self.places.dtype).reshape(self.outputs.shape)


class _Block(eqx.Module):
    """Two residual steps, each shifted, scaled and gated by what holds for the whole point."""

    told: Dense
    norm: Norm
    attention: Attention
    second_norm: Norm
    widen: Dense
    narrow: Dense
    dropout: float = eqx.field(static=True)

    def __init__(self, key: Key, width: int, heads: int, dropout: float):
        keys = jax.random.split(key, 4)
        self.told = Dense(keys[0], width, 6 * width, gain=0.1)
        self.norm, self.second_norm = Norm(width), Norm(width)
        self.attention = Attention(keys[1], width, heads, turned=True)
        self.widen = Dense(keys[2], width, 4 * width, gain=math.sqrt(2))
        self.narrow = Dense(keys[3], 4 * width, width, gain=0.1)
        self.dropout = dropout

    def __call__(self, x: Array, summary: Array, key: Key | None) -> Array:
        keys = (None, None) if key is None else jax.random.split(key)
        told = self.told(summary).reshape(6, 1, -1)
        h = (1 + told[0]) * jax.vmap(self.norm)(x) + told[1]
        x = x + drop(keys[0], self.dropout, (1 + told[2]) * self.attention(h))
        h = (1 + told[3]) * jax.vmap(self.second_norm)(x) + told[4]
        h = (1 + told[5]) * self.narrow(jax.nn.gelu(self.widen(h)))
        return x + drop(keys[1], self.dropout, h)


def _sequence(inputs: PyTree) -> int:
    leaves = jax.tree.leaves(inputs)
    if len(leaves) != 1 or len(leaves[0].shape) < 1:
        raise ValueError("inputs: Transformer works on sequences, arrays (places, ...)")
    return leaves[0].shape[0]
