"""An encoder of images."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import at_least
from .._types import Key
from .layers import Conv, Dense, Norm
from .residual import Keys, Residual, channel_norm, image_shape


class ResNet(eqx.Module):
    """An image (height, width) or (height, width, channels) as a vector of `features`.

    Residual blocks after He et al. (2016), `blocks` at each of `channels`, which have half the
    resolution of those before; the first already half the image's. What is left at the end is not
    averaged over places, so that where things lie is kept. To be used as

        network=functools.partial(dmm.Embedded, embedding=dmm.ResNet)

    `dtype` is the precision of computation, such as bfloat16; weights, norms and the vector are in
    full precision.
    """

    first: Conv
    levels: list[list[Any]]
    norm: Norm
    last: Dense
    shape: tuple[int, ...] = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self,
        key: Key,
        image: PyTree,
        *,
        features: int = 256,
        channels: tuple[int, ...] = (32, 64, 128, 256),
        blocks: int = 2,
        dtype: Any = None,
    ):
        at_least(1, features=features, blocks=blocks)
        if not channels:
            raise ValueError("channels: give those of one level at least, as (32, 64)")
        self.shape = image_shape(image, "image", "ResNet")
        keys = Keys(key)
        n = channels[0]
        self.first = Conv(keys(), math.prod(self.shape[2:]), n, size=5, stride=2)
        self.levels = []
        for level, m in enumerate(channels):
            halving = [Conv(keys(), n, m, stride=2)] if level else []
            self.levels.append([*halving, *(Residual(keys, m, m) for _ in range(blocks))])
            n = m
        self.norm = channel_norm(n)
        sides = [-(-side // 2 ** len(channels)) for side in self.shape[:2]]
        self.last = Dense(keys(), math.prod(sides) * n, features, gain=math.sqrt(2))
        self.dtype = jnp.dtype(dtype or jnp.result_type(float))

    def __call__(self, image: PyTree) -> Float[Array, " features"]:
        (pixels,) = jax.tree.leaves(image)
        h = self.first(pixels.reshape(*self.shape[:2], -1).astype(self.dtype))
        for layers in self.levels:
            for layer in layers:
                h = layer(h)
        h = jax.nn.silu(self.norm(h)).astype(self.norm.scale.dtype)
        return self.last(h.ravel())
