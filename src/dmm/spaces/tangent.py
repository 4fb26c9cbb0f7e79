"""Tangent vectors on a smooth space or on a product of such: a pytree of coordinates."""

import jax
import jax.numpy as jnp

from .._types import Key, Point, Scalar
from .base import Smooth, Space
from .product import Product


def zeros(space: Space, x: Point) -> Point:
    """The zero tangent vector at x."""
    if isinstance(space, Product):
        return tuple(zeros(factor, y) for factor, y in zip(space.factors, x, strict=True))
    return _smooth(space).zero(x)


def move(space: Space, x: Point, v: Point, *, reflect: bool = False) -> Point:
    """The point of the space reached from x along v; one outside goes to the nearest inside.

    With `reflect` it goes as far inside as it was out.
    """
    if isinstance(space, Product):
        terms = zip(space.factors, x, v, strict=True)
        return tuple(move(factor, y, w, reflect=reflect) for factor, y, w in terms)
    space = _smooth(space)
    reached = space.exp(x, v)
    inside = space.project(reached)
    return space.project(2 * inside - reached) if reflect else inside


def pull(space: Space, x: Point, v: Point, w: Point) -> Point:
    """A tangent vector w at the point reached from x along v, as the change of v it stands for."""
    if isinstance(space, Product):
        terms = zip(space.factors, x, v, w, strict=True)
        return tuple(pull(factor, *term) for factor, *term in terms)
    return _smooth(space).pull(x, v, w)


def draw_noise(key: Key, space: Space, x: Point) -> Point:
    """Standard normal coordinates of a tangent vector at x."""
    leaves, structure = jax.tree.flatten(zeros(space, x))
    keys = jax.random.split(key, len(leaves))
    draws = [jax.random.normal(k, z.shape, z.dtype) for k, z in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, draws)


def divergence(space: Space, field, x: Point, key: Key | None = None) -> Scalar:
    """div field(x): exact, or by one random probe a factor where a key is given."""
    if isinstance(space, Product):
        keys = [None] * len(x) if key is None else jax.random.split(key, len(x))

        def factor(i):
            def own(y):
                return field((*x[:i], y, *x[i + 1 :]))[i]

            return divergence(space.factors[i], own, x[i], keys[i])

        return sum((factor(i) for i in range(len(x))), jnp.zeros(()))
    space = _smooth(space)
    if key is None:
        return space.divergence(field, x)
    return space.probe_divergence(key, field, x)


def _smooth(space: Space) -> Smooth:
    if not isinstance(space, Smooth):
        raise TypeError(f"{space} has no tangent space")
    return space
