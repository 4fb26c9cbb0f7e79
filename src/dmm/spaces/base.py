"""Where one point lives."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from .._checks import finite, numbers
from .._types import Function, Point, Scalar


class Space(eqx.Module):
    """A set of points. Everything here is written for one point, except `check`."""

    @abc.abstractmethod
    def contains(self, x: Point) -> Bool[Array, ""]:
        """Whether x is a point of the space."""

    @abc.abstractmethod
    def check(self, data: Point, name: str = "data") -> Point:
        """Points stacked along a leading axis, as arrays; a `ValueError` names what is wrong."""

    @abc.abstractmethod
    def features(self, x: Point) -> Point:
        """Real network inputs of order one."""


class Smooth(Space):
    """A space with a tangent space at each point, in one array of coordinates.

    The coordinates may be overcomplete (a vector of R³ for a direction of the sphere); `tangent`
    is the projection on those that count. Gradient, Hessian and divergence follow from `exp`.
    """

    @abc.abstractmethod
    def exp(self, x: Array, v: Array) -> Array:
        """The point reached from x along v. Smooth at v = 0; may leave a bounded space."""

    @abc.abstractmethod
    def log(self, x: Array, y: Array) -> Array:
        """The tangent vector that leads from x to y: `exp(x, log(x, y)) == y`."""

    @abc.abstractmethod
    def zero(self, x: Array) -> Array:
        """The zero of the tangent coordinates at x."""

    @abc.abstractmethod
    def tangent(self, x: Array, v: Array) -> Array:
        """The tangent part of v."""

    @abc.abstractmethod
    def project(self, x: Array) -> Array:
        """The nearest point of the space."""

    def gradient(self, f: Function, x: Array) -> Array:
        """∇f(x), in tangent coordinates."""
        return jax.grad(lambda v: f(self.exp(x, v)))(self.zero(x))

    def pull(self, x: Array, v: Array, w: Array) -> Array:
        """A tangent vector w at exp(x, v) as the change of v that moves that point along w."""
        y = self.exp(x, v)
        return jax.jvp(lambda e: self.log(x, self.exp(y, e)), (self.zero(y),), (w,))[1]

    def hessian(self, f: Function, x: Array) -> Array:
        """The second derivative of f along `exp` at x, a matrix over the flattened coordinates."""
        zero = self.zero(x)
        along = jax.hessian(lambda v: f(self.exp(x, v.reshape(zero.shape))))
        return along(zero.ravel())

    def divergence(self, field, x: Array) -> Scalar:
        """div field(x), by one derivative a coordinate."""
        zero = self.zero(x)
        along = jax.jacfwd(lambda v: field(self.exp(x, v.reshape(zero.shape))).ravel())
        return jnp.trace(along(zero.ravel()))

    def probe_divergence(self, key: Array, field, x: Array) -> Scalar:
        """Hutchinson's unbiased estimate of `divergence`, by one derivative."""
        zero = self.zero(x)
        e = jax.random.rademacher(key, zero.shape, zero.dtype)
        return jnp.sum(e * jax.jvp(lambda v: field(self.exp(x, v)), (zero,), (e,))[1])


class Flat(Smooth):
    """A part of R^d: tangent vectors are differences of points."""

    def exp(self, x, v):
        return x + v

    def log(self, x, y):
        return y - x

    def zero(self, x):
        return jnp.zeros_like(x)

    def tangent(self, x, v):
        return v


def stacked(data, shape: tuple[int, ...], name: str, fix: str) -> np.ndarray | Array:
    """`data` as a non-empty host array of finite numbers of shape (n, *shape).

    Traced data, inside a transformation of the caller's, have a shape to check but no values.
    """
    array = numbers(data, name)
    wanted = f"(n, {', '.join(map(str, shape))})" if shape else "(n,)"
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        raise ValueError(f"{name}: expected shape {wanted}, got {array.shape}; {fix}")
    if len(array) == 0:
        raise ValueError(f"{name}: is empty; pass at least one point")
    finite(array, name)
    return array
