"""Observations in numbers of order one, as networks like them."""

import abc

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
        return (leaf - self.shift) / self.scale

    def check(self, leaf):
        if not bool(jnp.all(jnp.isfinite(leaf))):
            raise ValueError("given: holds NaN or infinity; repair it")


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


def observe(given: Given) -> Observations:
    """Encodings for stacked observations: integers one-hot, real numbers standardised.

    Vectors are standardised coordinate by coordinate, images and the like as a whole: a pixel that
    hardly ever changes is not blown up.
    """
    return Observations(jax.tree.map(_encoding, given))


def _encoding(stacked: Array) -> Encoding:
    if jnp.issubdtype(stacked.dtype, jnp.integer):
        return OneHot(int(jnp.max(stacked)) + 1)
    values = stacked.astype(jnp.result_type(float))
    axis = 0 if values.ndim <= 2 else None
    shift, scale = jnp.mean(values, axis), jnp.std(values, axis)
    return Standardised(shift, jnp.where(scale > 0, scale, 1.0))
