"""A U-Net for images."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import share
from .._types import Given, Key
from .base import Stochastic
from .flat import like, size
from .layers import Attention, Conv, Dense, Norm, Summary
from .residual import Keys, Residual, channel_norm, image_shape


class UNet(Stochastic):
    """Residual blocks at several resolutions, after Ho, Jain and Abbeel (2020).

    A point is an image (height, width) or (height, width, channels). What is observed on the same
    places, such as an image to condition on, is stacked with it as further channels; labels and
    other numbers join the time. Level i has `channels * multipliers[i]` channels and half the
    resolution of the one before; `attention` names the levels that attend. `dtype` is the
    precision of computation, such as bfloat16; weights, norms and outputs are in full precision.
    """

    summary: Summary
    told: Dense  # what every block is told of the summary
    first: Conv
    down: list[list[Any]]
    middle: list[Any]
    up: list[list[Any]]
    norm: Norm
    last: Conv
    widths: tuple[int, ...] = eqx.field(static=True)  # channels of the blocks, in their order
    outputs: PyTree = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self,
        key: Key,
        inputs: PyTree,
        outputs: PyTree,
        given: Given = None,
        *,
        channels: int = 64,
        multipliers: tuple[int, ...] = (1, 2, 2),
        blocks: int = 2,
        attention: tuple[int, ...] = (),
        heads: int = 4,
        dropout: float = 0.1,
        dtype: Any = None,
    ):
        share(dropout=dropout)
        if not set(attention) <= set(range(len(multipliers))):
            raise ValueError(
                f"attention: levels run from 0 to {len(multipliers) - 1}, got {attention}"
            )
        shape, outputs = image_shape(inputs, "inputs", "UNet"), like(outputs)
        keys = Keys(key)
        width = 4 * channels
        self.summary = Summary(keys(), given, shape[:2], width)
        here, _ = Summary.split(given, shape[:2])
        seen = size((inputs, here)) // math.prod(shape[:2])
        self.first = Conv(keys(), seen, channels)

        widths: list[int] = []

        def block(n, m, level):
            widths.append(m)
            attend = Attention(keys(), m, heads) if level in attention else None
            return Residual(keys, n, m, dropout, attend)

        self.down, skips, n = [], [channels], channels
        for level, multiplier in enumerate(multipliers):
            m = channels * multiplier
            layers: list[Any] = [block(n if i == 0 else m, m, level) for i in range(blocks)]
            n, skips = m, skips + [m] * blocks
            if level < len(multipliers) - 1:
                layers.append(Conv(keys(), m, m, stride=2))
                skips.append(m)
            self.down.append(layers)
        deepest = len(multipliers) - 1
        self.middle = [block(n, n, deepest), block(n, n, None)]
        self.up = []
        for level in reversed(range(len(multipliers))):
            m = channels * multipliers[level]
            layers: list[Any] = []
            for _ in range(blocks + 1):
                layers.append(block(n + skips.pop(), m, level))
                n = m
            if level > 0:
                layers.append(Conv(keys(), m, m))
            self.up.append(layers)
        self.told, self.widths = Dense(keys(), width, sum(widths)), tuple(widths)
        self.norm = channel_norm(n)
        self.last = Conv(keys(), n, size(outputs) // math.prod(shape[:2]), gain=0.0)
        self.outputs, self.dtype = outputs, jnp.dtype(dtype or jnp.result_type(float))

    def __call__(self, inputs, tau, given=None, present=1.0, key=None):
        shape = image_shape(inputs, "inputs", "UNet")
        summary, here = self.summary(tau, given, present, self.dtype)
        # All that blocks are told in one product, and all keys at once: many kernels less.
        told = jnp.split(self.told(summary), np.cumsum(self.widths)[:-1])
        blocks = len(self.widths)
        keys = [None] * blocks if key is None else jax.random.split(key, blocks)
        hints = iter(zip(told, keys, strict=True))

        stack = [leaf.reshape(*shape[:2], -1) for leaf in (inputs, *here)]
        h = self.first(jnp.concatenate(stack, -1).astype(self.dtype))
        skips = [h]
        for layers in self.down:
            for layer in layers:
                h = layer(h) if isinstance(layer, Conv) else layer(h, *next(hints))
                skips.append(h)
        for layer in self.middle:
            h = layer(h, *next(hints))
        for layers in self.up:
            for layer in layers:
                if isinstance(layer, Conv):
                    h = layer(_enlarge(h, skips[-1].shape))
                else:
                    h = layer(jnp.concatenate([h, skips.pop()], -1), *next(hints))
        h = self.last(jax.nn.silu(self.norm(h)))
        return h.astype(self.norm.scale.dtype).reshape(self.outputs.shape)


def _enlarge(x: Array, shape: tuple[int, ...]) -> Array:
    """x at the resolution of a shape, each pixel repeated."""
    wide = jnp.repeat(jnp.repeat(x, 2, 0), 2, 1)
    return wide[: shape[0], : shape[1]]
