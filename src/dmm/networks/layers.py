"""Layers that compute in the precision of what comes in; their weights stay in full precision."""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Given, Key, Time
from .flat import flatten, size
from .time import TIME_FEATURES, time_features


class Dense(eqx.Module):
    """An affine map of the last axis; weights of variance gain²/inputs."""

    weight: Array
    bias: Array

    def __init__(self, key: Key, inputs: int, outputs: int, *, gain: float = 1.0):
        self.weight = gain / math.sqrt(inputs) * jax.random.normal(key, (inputs, outputs))
        self.bias = jnp.zeros(outputs)

    def __call__(self, x: Array) -> Array:
        return x @ self.weight.astype(x.dtype) + _wide(self.bias, x)


class Conv(eqx.Module):
    """A square convolution of an image (height, width, channels), the edges padded with zeros.

    The weight is (outputs, size, size, inputs): as cuDNN wants it, so that none is transposed.
    """

    weight: Array
    bias: Array
    stride: int = eqx.field(static=True, default=1)

    def __init__(
        self, key: Key, inputs: int, outputs: int, *, size: int = 3, stride: int = 1, gain=1.0
    ):
        scale = gain / math.sqrt(inputs * size**2)
        self.weight = scale * jax.random.normal(key, (outputs, size, size, inputs))
        self.bias = jnp.zeros(outputs)
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        ways = {
            "cpu": functools.partial(_convolve_by_products, stride=self.stride),
            "default": functools.partial(_convolve, stride=self.stride),
        }
        image = jax.lax.platform_dependent(x, self.weight.astype(x.dtype), **ways)
        return image + _wide(self.bias, image)


def _convolve(x: Array, weight: Array, *, stride: int) -> Array:
    numbers = ("NHWC", "OHWI", "NHWC")
    return jax.lax.conv_general_dilated(
        x[None], weight, (stride, stride), "SAME", dimension_numbers=numbers
    )[0]


def _convolve_by_products(x: Array, weight: Array, *, stride: int) -> Array:
    """The same as one matrix product: on CPUs, XLA's convolutions are 20 times slower in loops."""
    size = weight.shape[1]
    pads = jax.lax.padtype_to_pads(x.shape[:2], (size, size), (stride, stride), "SAME")
    padded = jnp.pad(x, [*pads, (0, 0)])
    height, width = (n - size + 1 for n in padded.shape[:2])
    shifted = [
        padded[i : i + height : stride, j : j + width : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(shifted, -1) @ weight.reshape(len(weight), -1).T


class Norm(eqx.Module):
    """Groups of channels at mean 0 and variance 1, over all places, then scaled and shifted.

    One group, of a vector: layer normalisation. Sums are taken in full precision.
    """

    scale: Array
    shift: Array
    groups: int = eqx.field(static=True)
    eps: float = eqx.field(static=True, default=1e-6)  # what is added to variances

    def __init__(self, channels: int, groups: int = 1, *, eps: float = 1e-6):
        self.scale, self.shift = jnp.ones(channels), jnp.zeros(channels)
        self.groups, self.eps = math.gcd(groups, channels), eps

    def __call__(self, x: Array) -> Array:
        channels, places = x.shape[-1], math.prod(x.shape[:-1])
        wide = x.astype(self.scale.dtype).reshape(places, channels)
        # Sums a channel first, then a group: large sums run along one axis, the rest is small.
        mean, square = self._spread(jnp.mean(wide, 0), jnp.mean(jnp.square(wide), 0))
        scale = self.scale * jax.lax.rsqrt(jnp.maximum(square - jnp.square(mean), 0.0) + self.eps)
        shift = self.shift - mean * scale
        return (wide * _wide(scale, wide) + _wide(shift, wide)).astype(x.dtype).reshape(x.shape)

    def _spread(self, *means: Array) -> Array:
        """The means of each group, at each of its channels."""
        groups = jnp.stack(means).reshape(len(means), self.groups, -1)
        return jnp.repeat(jnp.mean(groups, 2), groups.shape[2], 1)


class Attention(eqx.Module):
    """Self-attention of a sequence (places, channels), every place seeing all.

    With `turned`, queries and keys are rotated by their places (Su et al., 2021), so that how two
    places attend depends on their distance before anything is learned: where states are masked,
    nothing else tells a neighbour, and without it text stays for long at its frequencies.
    """

    mix: Dense
    out: Dense
    heads: int = eqx.field(static=True)
    turned: bool = eqx.field(static=True)

    def __init__(self, key: Key, channels: int, heads: int, *, turned: bool = False):
        if channels % heads:
            raise ValueError(f"heads: {heads} do not divide {channels} channels; choose others")
        mix_key, out_key = jax.random.split(key)
        self.mix = Dense(mix_key, channels, 3 * channels)
        self.out = Dense(out_key, channels, channels, gain=0.0)
        self.heads, self.turned = heads, turned

    def __call__(self, x: Array) -> Array:
        parts = self.mix(x).reshape(len(x), 3, self.heads, -1)
        query, key, value = (parts[:, i] for i in range(3))
        if self.turned:
            query, key = _turn(query), _turn(key)
        return self.out(jax.nn.dot_product_attention(query, key, value).reshape(x.shape))


def _turn(x: Array) -> Array:
    """x (places, heads, channels), pairs of channels turned by angles proportional to the place."""
    half = x.shape[-1] // 2
    speeds = 10_000.0 ** (-jnp.arange(half) / max(half, 1))
    angles = jnp.arange(len(x))[:, None, None] * speeds[None, None]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos, rest], -1)


class Summary(eqx.Module):
    """What holds for the whole point (time, labels, other numbers) as one vector.

    An observation's leaves that lie on the same places as the point are handed back instead, to
    be stacked with it. What is dropped (`present` = 0) is 0, and the summary says so.
    """

    first: Dense
    second: Dense
    places: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, key: Key, given: Given, places: tuple[int, ...], width: int):
        first_key, second_key = jax.random.split(key)
        inputs = TIME_FEATURES + (0 if given is None else size(self.split(given, places)[1]) + 1)
        self.first = Dense(first_key, inputs, width, gain=math.sqrt(2))
        self.second = Dense(second_key, width, width)
        self.places = places

    def __call__(
        self, tau: Time, given: Given, present: Array | float, dtype: Any
    ) -> tuple[Array, list[Array]]:
        facts, here = [time_features(tau)], []
        if given is not None:
            flag = jnp.asarray(present, facts[0].dtype)
            here, other = self.split(given, self.places)
            facts += [flag * flatten(other), flag.reshape(1)]
            here = [flag * leaf for leaf in here]
        x = jnp.concatenate(facts).astype(dtype)
        return jax.nn.silu(self.second(jax.nn.silu(self.first(x)))), here

    @staticmethod
    def split(given: Given, places: tuple[int, ...]) -> tuple[list, list]:
        """The leaves of an observation that lie on the places, and the others.

        A vector never does: it could be a label, with as many classes as there are places.
        """

        def placed(leaf):
            return len(leaf.shape) >= 2 and tuple(leaf.shape[: len(places)]) == places

        leaves = jax.tree.leaves(given)
        here = [leaf for leaf in leaves if placed(leaf)]
        return here, [leaf for leaf in leaves if not placed(leaf)]


def drop(key: Key | None, rate: float, x: Array) -> Array:
    """Dropout: a share of the entries is 0 and the rest larger for it; without a key, all stay."""
    if key is None or rate == 0:
        return x
    # Two entries from a random word: on a GPU random bits cost a twentieth of a U-Net's step.
    words = jax.random.bits(key, (math.ceil(x.size / 2),), jnp.uint32)
    halves = jnp.stack([words & 0xFFFF, words >> 16]).ravel()[: x.size].reshape(x.shape)
    return jnp.where(halves >= round(rate * 2**16), x / (1 - rate), jnp.zeros((), x.dtype))


def _wide(vector: Array, like: Array) -> Array:
    return vector.astype(like.dtype).reshape((1,) * (like.ndim - 1) + vector.shape)
