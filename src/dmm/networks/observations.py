"""Observations in numbers of order one, as networks like them."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._types import Given


class Encoding(eqx.Module):
    """A fixed map of one leaf of an observation."""

    @abc.abstractmethod
    def encode(self, leaf: Array) -> Array:
        """The leaf in real numbers of order one."""

    @abc.abstractmethod
    def check(self, leaf: Array) -> None:
        """A `ValueError` for values that cannot be encoded."""


class Standardised(Encoding):
    """(leaf − shift)/scale."""

    shift: Array
    scale: Array

    def encode(self, leaf):
        return (leaf - _wide(self.shift, leaf)) / _wide(self.scale, leaf)

    def check(self, leaf):
        if not bool(jnp.all(jnp.isfinite(leaf))):
            raise ValueError("given: holds NaN or infinity; repair it")


class Compressed(Encoding):
    """(asinh(leaf/unit) − shift)/scale: for numbers that range over orders of magnitude.

    Where `heavy` is false the asinh is left out. Standardised alone, such numbers are all alike
    to single precision but for the largest.
    """

    heavy: Array
    unit: Array
    shift: Array
    scale: Array

    def encode(self, leaf):
        compressed = _compress(leaf, self.heavy, self.unit)
        return Standardised(self.shift, self.scale).encode(compressed)

    def check(self, leaf):
        Standardised(self.shift, self.scale).check(leaf)


class OneHot(Encoding):
    """Whole numbers from 0 to classes − 1, as unit vectors."""

    classes: int = eqx.field(static=True)

    def encode(self, leaf):
        return jax.nn.one_hot(leaf, self.classes)

    def check(self, leaf):
        whole = jnp.issubdtype(leaf.dtype, jnp.integer)
        if not whole or not bool(jnp.all((leaf >= 0) & (leaf < self.classes))):
            raise ValueError(
                f"given: expected classes, whole numbers from 0 to {self.classes - 1} as in fitting"
            )


class Observations(eqx.Module):
    """How `given` enters networks: an encoding a leaf, learned from stacked observations."""

    encodings: PyTree

    def encode(self, given: Given) -> Given:
        """One observation, encoded."""
        if given is None:
            return None
        leaves, structure = jax.tree.flatten(given)
        encoded = [e.encode(leaf) for e, leaf in zip(self._each(), leaves, strict=True)]
        return jax.tree.unflatten(structure, encoded)

    def check(self, given: Given) -> None:
        """A `ValueError` for observations, one or stacked, that cannot be encoded."""
        for encoding, leaf in zip(self._each(), jax.tree.leaves(given), strict=True):
            if not isinstance(leaf, jax.core.Tracer):
                encoding.check(leaf)

    def _each(self) -> list[Encoding]:
        return jax.tree.leaves(self.encodings, is_leaf=lambda n: isinstance(n, Encoding))


def observe(given: Given, *, by_feature: bool = False) -> Observations:
    """Encodings for stacked observations: integers one-hot, real numbers standardised.

    Vectors are standardised coordinate by coordinate, images and the like as a whole: a pixel that
    hardly ever changes is not blown up. With `by_feature` the last of two or more axes holds
    features, each standardised over all else, as suits rows of a table and channels of a series.
    Features with tails far out of their quartiles' range are compressed by asinh first.
    """
    return Observations(jax.tree.map(lambda leaf: _encoding(leaf, by_feature), given))


HEAVY = 30.0  # standard deviations, as the quartiles suggest, that a normal number never is away


def _encoding(stacked: Array, by_feature: bool) -> Encoding:
    if jnp.issubdtype(stacked.dtype, jnp.integer):
        return OneHot(int(jnp.max(stacked)) + 1)
    values = stacked.astype(jnp.result_type(float))
    if by_feature and values.ndim > 2:
        axis: tuple[int, ...] | None = tuple(range(values.ndim - 1))
    else:
        axis = (0,) if values.ndim <= 2 else None
    low, middle, high = (jnp.quantile(values, q, axis) for q in (0.25, 0.5, 0.75))
    far = jnp.maximum(jnp.max(values, axis) - middle, middle - jnp.min(values, axis))
    heavy = (high > low) & (far > HEAVY * (high - low) / 1.349)
    if not bool(jnp.any(heavy)):
        return Standardised(*_moments(values, axis))
    # About 0, not the median: what spans orders of magnitude does so about 0.
    sizes = jnp.abs(values)
    unit = jnp.quantile(jnp.where(sizes > 0, sizes, jnp.inf), 0.1, axis, method="higher")
    unit = jnp.where(heavy & jnp.isfinite(unit), unit, 1.0)
    compressed = _compress(values, heavy, unit)
    return Compressed(heavy, unit, *_moments(compressed, axis))


def _moments(values: Array, axis: Any) -> tuple[Array, Array]:
    shift, scale = jnp.mean(values, axis), jnp.std(values, axis)
    # What is constant but for rounding has no scale.
    rounding = 8 * jnp.finfo(values.dtype).eps * jnp.abs(shift)
    return shift, jnp.where(scale > rounding, scale, 1.0)


def _compress(values: Array, heavy: Array, unit: Array) -> Array:
    compressed = jnp.arcsinh(values / _wide(unit, values))
    return jnp.where(_wide(heavy, values), compressed, values)


def _wide(numbers: Array, like: Array) -> Array:
    """Numbers a feature, with axes of length 1 for the rest of an array."""
    return numbers.reshape((1,) * (like.ndim - numbers.ndim) + numbers.shape)
