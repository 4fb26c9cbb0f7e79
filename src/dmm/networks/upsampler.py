"""The upsampling U-Net of guided diffusion: large images from small ones."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._checks import at_least, positive, share
from .._types import Given, Key, Scalar, Time
from .base import Stochastic
from .flat import flatten, like, size
from .layers import Attention, Conv, Dense, Norm, drop
from .residual import Keys, image_shape

GAIN = 1 / math.sqrt(3)  # PyTorch's weights start with variance 1/(3 inputs), and so do these


class Upsampler(Stochastic):
    """The class-conditional U-Net for super-resolution of Dhariwal and Nichol (2021).

    The defaults are the published setting, from 64 × 64 to 256 × 256 pixels, of 311.8 million
    weights; `load_published` fills in those that were published. A point is an image (height,
    width) or (height, width, colours), with sides that 2^(levels − 1) divides. Level i has
    `channels * multipliers[i]` channels and half the resolution of the one before; `attention`
    names the levels that attend, and the middle always does.

    Of an observation, arrays of two axes or more are images, enlarged to the point's sides
    (bilinear) and stacked with it as further channels; all else, such as a label as a unit vector,
    joins the time through `labels`. What is hidden (`present` = 0) is 0. The last channels are
    ordered by kind first, then by colour: outputs (height, width, 3, 2) are, in this order, place
    of red, green, blue, log-scale of red, green, blue.

    Time enters as a step of the published schedule, the one at which its images are as noisy as
    this process's; see `step`. For that, `relaxation` is the time in which the process forgets
    all but 1/e of an image (`process.horizon / 10` for chains), and `white` the largest number in
    an image as the network sees it (√3 where grey levels are standardised, as `Finite` does).

    `dtype` is the precision of computation, such as bfloat16; weights, norms, time and outputs are
    in full precision. With `remat`, what a block computes is not kept for the gradient, but
    computed again: less memory, a third more time.
    """

    time: tuple[Dense, Dense]
    labels: Array | None
    first: Conv
    down: list["Block"]
    middle: list["Block"]
    up: list[list["Block"]]  # the first of each takes a skip, the other enlarges
    norm: Norm
    last: Conv
    outputs: PyTree = eqx.field(static=True)
    relaxation: float = eqx.field(static=True)
    white: float = eqx.field(static=True)
    remat: bool = eqx.field(static=True)
    dtype: Any = eqx.field(static=True)

    def __init__(
        self,
        key: Key,
        inputs: PyTree,
        outputs: PyTree,
        given: Given = None,
        *,
        relaxation: float,
        channels: int = 192,
        multipliers: tuple[int, ...] = (1, 1, 2, 2, 4, 4),
        blocks: int = 2,
        attention: tuple[int, ...] = (3, 4, 5),
        heads: int = 4,
        dropout: float = 0.0,
        white: float = math.sqrt(3),
        remat: bool = False,
        dtype: Any = None,
    ):
        share(dropout=dropout)
        positive(relaxation=relaxation, white=white)
        at_least(2, channels=channels)
        at_least(1, blocks=blocks, heads=heads, multipliers=min(multipliers, default=0))
        deepest = len(multipliers) - 1
        if not set(attention) <= set(range(deepest + 1)):
            raise ValueError(f"attention: levels run from 0 to {deepest}, got {attention}")
        shape, outputs = image_shape(inputs, "inputs", "Upsampler"), like(outputs)
        if any(side % 2**deepest for side in shape[:2]):
            raise ValueError(
                f"inputs: {deepest + 1} levels halve the sides {deepest} times, and {shape[:2]} "
                f"cannot be; crop to multiples of {2**deepest} or pass fewer multipliers"
            )
        keys, width = Keys(key), 4 * channels
        images, facts = _split(given)
        if any(low.shape[0] > shape[0] or low.shape[1] > shape[1] for low in images):
            raise ValueError(
                f"given: holds an image larger than the point's {shape[:2]}; shrink it first"
            )
        self.time = (
            Dense(keys(), 2 * (channels // 2), width, gain=GAIN),
            Dense(keys(), width, width, gain=GAIN),
        )
        self.labels = jax.random.normal(keys(), (size(facts), width)) if facts else None

        def block(n, m, attend, resample=""):
            attend = Attention(keys(), m, heads) if attend else None
            return Block(keys, n, m, width, dropout, attend, resample)

        n = channels * multipliers[0]
        seen = math.prod(shape[2:]) + sum(math.prod(low.shape[2:]) for low in images)
        self.first = Conv(keys(), seen, n, gain=GAIN)
        self.down, skips = [], [n]
        for level, m in enumerate(channels * multiplier for multiplier in multipliers):
            for _ in range(blocks):
                self.down.append(block(n, m, level in attention))
                skips.append(n := m)
            if level < deepest:
                self.down.append(block(n, n, False, "half"))
                skips.append(n)
        self.middle = [block(n, n, True), block(n, n, False)]
        self.up = []
        for level in reversed(range(deepest + 1)):
            m = channels * multipliers[level]
            for _ in range(blocks + 1):
                self.up.append([block(n + skips.pop(), m, level in attention)])
                n = m
            if level > 0:
                self.up[-1].append(block(n, n, False, "double"))
        self.norm = _norm(n)
        self.last = Conv(keys(), n, size(outputs) // math.prod(shape[:2]), gain=0.0)
        self.outputs, self.dtype = outputs, jnp.dtype(dtype or jnp.result_type(float))
        self.relaxation, self.white, self.remat = float(relaxation), float(white), remat

    def __call__(self, inputs, tau, given=None, present=1.0, key=None):
        step, factor = self.step(tau)
        return self.at_step(jax.tree.map(lambda u: factor * u, inputs), step, given, present, key)

    def step(self, tau: Time) -> tuple[Scalar, Scalar]:
        """The step from 0 to 999 of the published schedule that is as noisy as time τ, and the
        factor that brings an image to the published scale.

        Of an image x0 in [−1, 1] this process keeps f = white e^{−τ/relaxation}, with noise of
        variance g = 1 − e^{−2τ/relaxation}; the published one √ᾱ with noise of variance 1 − ᾱ,
        where −log ᾱ = s/10 + 9.95 s² at step 1000 s − 1. Equal ratios of signal to noise give
        −log ᾱ = log(1 + g/f²), and the factor 1/√(f² + g).
        """
        exponent = jnp.maximum(-2 * jnp.asarray(tau) / self.relaxation, -40.0)
        signal, noise = self.white**2 * jnp.exp(exponent), -jnp.expm1(exponent)
        lost = jnp.log1p(noise / signal)
        s = 2 * lost / (0.1 + jnp.sqrt(0.01 + 39.8 * lost))
        return jnp.clip(1000 * s - 1, 0.0, 999.0), jax.lax.rsqrt(signal + noise)

    def at_step(
        self,
        inputs: PyTree,
        step: Time,
        given: Given = None,
        present: Array | float = 1.0,
        key: Key | None = None,
    ) -> Array:
        """The published function: of an image, a step from 0 to 999, and what is observed."""
        shape = image_shape(inputs, "inputs", "Upsampler")
        told, images = self._told(step), [*jax.tree.leaves(inputs)]
        lows, facts = _split(given)
        if self.labels is not None:
            told = told + present * (flatten(facts) @ self.labels)
        images += [present * _enlarge(low, shape) for low in lows]
        told = jax.nn.silu(told)
        blocks = len(jax.tree.leaves((self.down, self.middle, self.up), is_leaf=_is_block))
        keys = iter([None] * blocks if key is None else jax.random.split(key, blocks))

        def run(block, h):
            call = eqx.filter_checkpoint(block) if self.remat else block
            return call(h, told, next(keys))

        stack = [image.reshape(*shape[:2], -1) for image in images]
        h = self.first(jnp.concatenate(stack, -1).astype(self.dtype))
        skips = [h]
        for block in self.down:
            h = run(block, h)
            skips.append(h)
        for block in self.middle:
            h = run(block, h)
        for first, *enlarging in self.up:
            h = run(first, jnp.concatenate([h, skips.pop()], -1))
            for block in enlarging:
                h = run(block, h)
        h = h.astype(self.norm.scale.dtype)  # bfloat16 would round places to half a grey level
        return self._arranged(self.last(jax.nn.silu(self.norm(h))))

    def _told(self, step: Time) -> Array:
        """The embedding of a step: cosines and sines at periods of 2π to 2π · 10,000 steps."""
        first, second = self.time
        half = first.weight.shape[0] // 2
        phases = jnp.asarray(step) * 10_000.0 ** (-jnp.arange(half) / half)
        return second(jax.nn.silu(first(jnp.concatenate([jnp.cos(phases), jnp.sin(phases)]))))

    def _arranged(self, h: Array) -> Array:
        """Channels, by kind first and then by colour, as outputs (height, width, colour, kind)."""
        height, width, *rest = self.outputs.shape
        axes = (0, 1, *range(len(rest) + 1, 1, -1))
        return jnp.transpose(h.reshape(height, width, *rest[::-1]), axes)


class Block(eqx.Module):
    """x + conv(silu(norm(conv(silu(norm(x)))) (1 + a) + b)), and attention after it where given.

    a and b come from what the block is told. With `resample` "half" or "double" the resolution
    changes, of x and before the first convolution.
    """

    norm: Norm
    conv: Conv
    told: Dense
    second_norm: Norm
    second_conv: Conv
    shortcut: Dense | None
    attention: tuple[Norm, Attention] | None
    dropout: float = eqx.field(static=True)
    resample: str = eqx.field(static=True)

    def __init__(
        self, keys: Keys, n: int, m: int, width: int, dropout: float,
        attend: Attention | None, resample: str,
    ):  # fmt: skip
        self.norm, self.conv = _norm(n), Conv(keys(), n, m, gain=GAIN)
        self.told = Dense(keys(), width, 2 * m, gain=GAIN)
        self.second_norm, self.second_conv = _norm(m), Conv(keys(), m, m, gain=0.0)
        self.shortcut = None if n == m else Dense(keys(), n, m, gain=GAIN)
        self.attention = None if attend is None else (_norm(m), attend)
        self.dropout, self.resample = dropout, resample

    def __call__(self, x: Array, told: Array, key: Key | None = None) -> Array:
        h = self.conv(self._resampled(jax.nn.silu(self.norm(x))))
        a, b = jnp.split(self.told(told).astype(h.dtype)[None, None], 2, -1)
        h = jax.nn.silu(self.second_norm(h) * (1 + a) + b)
        h = self.second_conv(drop(key, self.dropout, h))
        x = self._resampled(x)
        h = h + (x if self.shortcut is None else self.shortcut(x))
        if self.attention is None:
            return h
        norm, attend = self.attention
        return h + attend(norm(h).reshape(-1, h.shape[-1])).reshape(h.shape)

    def _resampled(self, x: Array) -> Array:
        height, width, channels = x.shape
        if self.resample == "half":
            return jnp.mean(x.reshape(height // 2, 2, width // 2, 2, channels), (1, 3))
        return jnp.repeat(jnp.repeat(x, 2, 0), 2, 1) if self.resample == "double" else x


def _norm(channels: int) -> Norm:
    return Norm(channels, 32, eps=1e-5)


def _is_block(node: Any) -> bool:
    return isinstance(node, Block)


def _split(given: Given) -> tuple[list, list]:
    """The images of an observation, and all else."""
    leaves = jax.tree.leaves(given)
    images = [leaf for leaf in leaves if len(leaf.shape) >= 2]
    return images, [leaf for leaf in leaves if len(leaf.shape) < 2]


def _enlarge(image: Array, shape: tuple[int, ...]) -> Array:
    """An image at the sides of a shape; bilinear, pixels being squares about their centres."""
    return jax.image.resize(image, (*shape[:2], *image.shape[2:]), "bilinear")
