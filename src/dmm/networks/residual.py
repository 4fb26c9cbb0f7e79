"""What networks for images are made of: residual blocks, and the norms between."""

import math
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .._types import Key
from .layers import Attention, Conv, Dense, Norm, drop


class Residual(eqx.Module):
    """x + conv(silu(norm(conv(silu(norm(x)))) + told)), and attention after it where given.

    What it is told, if anything, comes after the norm, which would take away what is the same at
    all places.
    """

    norm: Norm
    conv: Conv
    second_norm: Norm
    second_conv: Conv
    shortcut: Dense | None
    attention: tuple[Norm, Attention] | None
    dropout: float = eqx.field(static=True)

    def __init__(
        self, keys: "Keys", n: int, m: int, dropout: float = 0.0, attend: Attention | None = None
    ):
        self.norm, self.conv = channel_norm(n), Conv(keys(), n, m, gain=math.sqrt(2))
        self.second_norm, self.second_conv = channel_norm(m), Conv(keys(), m, m, gain=0.1)
        self.shortcut = None if n == m else Dense(keys(), n, m)
        self.attention = None if attend is None else (channel_norm(m), attend)
        self.dropout = dropout

    def __call__(self, x: Array, told: Array | None = None, key: Key | None = None) -> Array:
        h = self.second_norm(self.conv(jax.nn.silu(self.norm(x))))
        h = h if told is None else h + told[None, None]
        h = self.second_conv(drop(key, self.dropout, jax.nn.silu(h)))
        h = h + (x if self.shortcut is None else self.shortcut(x))
        if self.attention is None:
            return h
        norm, attend = self.attention
        return h + attend(norm(h).reshape(-1, h.shape[-1])).reshape(h.shape)


def channel_norm(channels: int) -> Norm:
    """Groups of four channels or more: one alone would lose how bright the image is."""
    return Norm(channels, min(32, max(1, channels // 4)))


class Keys:
    """As many keys as asked for."""

    def __init__(self, key: Key):
        self.key, self.count = key, 0

    def __call__(self) -> Key:
        self.count += 1
        return jax.random.fold_in(self.key, self.count)


def image_shape(tree: PyTree, name: str, user: str) -> tuple[int, ...]:
    """The shape of the one image that a pytree holds."""
    leaves: list[Any] = jax.tree.leaves(tree)
    if len(leaves) != 1 or len(leaves[0].shape) < 2:
        raise ValueError(
            f"{name}: {user} works on images, arrays (height, width) or (height, width, channels)"
        )
    return tuple(leaves[0].shape)
