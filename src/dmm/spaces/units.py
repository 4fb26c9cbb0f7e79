"""Units: the map between the user's numbers and those a process works in."""

import abc
import functools

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Point, Scalar
from .base import Space
from .box import Box
from .euclidean import Euclidean
from .positive import PositiveReals
from .product import Product


class Units(eqx.Module):
    """An invertible map of points with a constant volume factor."""

    @abc.abstractmethod
    def forward(self, x: Point) -> Point:
        """The user's point, in the process's units."""

    @abc.abstractmethod
    def inverse(self, z: Point) -> Point:
        """Back to the user's units."""

    @abc.abstractmethod
    def log_volume(self) -> Scalar:
        """log |∂forward/∂x|: log p(x) = log p(forward(x)) + log_volume."""


class Identity(Units):
    """The process works in the user's units."""

    def forward(self, x):
        return x

    def inverse(self, z):
        return z

    def log_volume(self):
        return jnp.zeros(())


class Affine(Units):
    """forward(x) = (x − shift) / scale, coordinate by coordinate."""

    shift: Array
    scale: Array

    def forward(self, x):
        return (x - self.shift) / self.scale

    def inverse(self, z):
        return z * self.scale + self.shift

    def log_volume(self):
        return -jnp.sum(jnp.log(self.scale))


class Factorwise(Units):
    """Each factor of a product in its own units."""

    factors: tuple[Units, ...]

    def forward(self, x):
        return tuple(units.forward(y) for units, y in zip(self.factors, x, strict=True))

    def inverse(self, z):
        return tuple(units.inverse(y) for units, y in zip(self.factors, z, strict=True))

    def log_volume(self):
        return sum((units.log_volume() for units in self.factors), jnp.zeros(()))


@functools.singledispatch
def default_units(space: Space, data: Point) -> Units:
    """The units `fit` chooses for stacked data of a space: as they are, unless registered."""
    return Identity()


@default_units.register
def _(space: Euclidean, data: Point) -> Units:
    """Zero mean and unit variance: a coordinate for vectors, overall for images and the like."""
    axis = 0 if len(space.shape) == 1 else None
    shift, scale = jnp.mean(data, axis), jnp.std(data, axis)
    # A constant coordinate has no scale of its own: leave it in the user's.
    scale = jnp.where(scale > 1e-6 * (1 + jnp.abs(shift)), scale, 1.0)
    return Affine(jnp.broadcast_to(shift, space.shape), jnp.broadcast_to(scale, space.shape))


@default_units.register
def _(space: Box, data: Point) -> Units:
    """The bounds become 0 and 1."""
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return Affine(low, high - low)


@default_units.register
def _(space: PositiveReals, data: Point) -> Units:
    """A mean of 1: a coordinate for vectors, overall for arrays. No datum of n is then above n."""
    scale = jnp.mean(data, 0 if len(space.shape) == 1 else None)
    return Affine(jnp.zeros(space.shape), jnp.broadcast_to(scale, space.shape))


@default_units.register
def _(space: Product, data: Point) -> Units:
    return Factorwise(
        tuple(default_units(s, part) for s, part in zip(space.factors, data, strict=True))
    )
