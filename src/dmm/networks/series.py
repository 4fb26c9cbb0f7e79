"""An encoder of time series."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import at_least
from .._types import Key
from .layers import Dense, Norm
from .residual import Keys, channel_norm

STRIDE, SIZE = 2, 5


class SeriesEncoder(eqx.Module):
    """A series (times,) or (times, channels) as a vector of `features`.

    Convolutions of five times, each level at half the resolution of the one before, down to eight
    times at most; what is left is not averaged, so that when things happen is kept.
    """

    levels: list[tuple[Dense, Norm]]
    last: Dense

    def __init__(self, key: Key, given: PyTree, *, features: int = 64, channels: int = 32):
        at_least(1, features=features, channels=channels)
        times, n = _series_shape(given)
        keys, self.levels = Keys(key), []
        while True:
            layer = Dense(keys(), SIZE * n, channels, gain=math.sqrt(2))
            self.levels.append((layer, channel_norm(channels)))
            times, n = -(-times // STRIDE), channels
            if times <= 8:
                break
            channels = min(2 * channels, 128)
        self.last = Dense(keys(), times * n, features, gain=math.sqrt(2))

    def __call__(self, given: PyTree) -> Float[Array, " features"]:
        (series,) = jax.tree.leaves(given)
        h = series.reshape(len(series), -1)
        for layer, norm in self.levels:
            h = jax.nn.silu(norm(layer(_windows(h))))
        return self.last(h.ravel())


def _windows(h: Array) -> Array:
    """Every second window of five rows, side by side; zeros beyond the ends."""
    padded = jnp.pad(h, [(SIZE // 2, SIZE // 2), (0, 0)])
    return jnp.concatenate([padded[i : i + len(h) : STRIDE] for i in range(SIZE)], -1)


def _series_shape(given: PyTree) -> tuple[int, int]:
    leaves = jax.tree.leaves(given)
    if len(leaves) != 1 or len(leaves[0].shape) not in (1, 2):
        raise ValueError(
            "given: SeriesEncoder reads one array, (times,) or (times, channels) an observation"
        )
    shape = leaves[0].shape
    return shape[0], math.prod(shape[1:])
