"""Priors: NumPyro distributions, and the spaces that are their supports."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpyro.distributions import (
    BernoulliLogits,
    BernoulliProbs,
    CategoricalLogits,
    CategoricalProbs,
    Distribution,
    constraints,
)

from .._types import Key, Point, Scalar
from ..processes import Noising
from ..spaces import (
    Box,
    Counts,
    Euclidean,
    Factorwise,
    Finite,
    Identity,
    PositiveReals,
    Product,
    Simplex,
    Smooth,
    Space,
    Sphere,
    Torus,
    Units,
    default_units,
)
from ..spaces.box import INSIDE
from .warps import Log, Probit, Warp

LABELS = (BernoulliLogits, BernoulliProbs, CategoricalLogits, CategoricalProbs)


class Part(eqx.Module):
    """The values of one distribution as points that a model works on.

    The support is a space, of ±(value − shift), reshaped; a warp of it leads to the line.
    """

    name: str = eqx.field(static=True)
    support: Space
    shape: tuple[int, ...] = eqx.field(static=True)  # of a value
    shift: Array
    turned: bool = eqx.field(static=True, default=False)  # a support with an upper bound alone
    warp: Warp | None = None

    @property
    def space(self) -> Space:
        """Where the model works."""
        return self.support if self.warp is None else Euclidean(self.shift.shape)

    def point(self, value: Array) -> Array:
        moved = self._moved(value)
        if self.warp is not None:
            return self.warp.forward(moved)
        # Rounding may put a draw on the very boundary, where no density is defined.
        if isinstance(self.support, Box):
            return _off_bounds(self.support, moved)
        return self.support.project(moved) if isinstance(self.support, Smooth) else moved

    def value(self, point: Array) -> Array:
        moved = point if self.warp is None else self.warp.inverse(point)
        moved = -moved if self.turned else moved
        return (moved + self.shift).reshape(self.shape)

    def log_slope(self, point: Array) -> Scalar:
        """log p(value) − log p(point)."""
        return jnp.zeros(()) if self.warp is None else self.warp.log_slope(point)

    def inside(self, value: Array) -> Array:
        """Whether a value lies in the support, up to its boundary."""
        moved = self._moved(value)
        if jnp.issubdtype(moved.dtype, jnp.integer):
            # As a whole number NaN is 0.
            return self.support.contains(moved) & jnp.all(value == value.astype(moved.dtype))
        if self.warp is not None:
            return self.warp.contains(moved)
        if isinstance(self.support, PositiveReals):
            return jnp.all((moved >= 0) & jnp.isfinite(moved))
        return self.support.contains(moved) & jnp.all(jnp.isfinite(moved))

    def _moved(self, value: Array) -> Array:
        moved = value.reshape(self.shift.shape).astype(self.shift.dtype) - self.shift
        return -moved if self.turned else moved


class Parameters(eqx.Module):
    """The parameters of a posterior, in the user's form and as points of a space.

    The user's form is that of the prior: an array, or a dict or a tuple of arrays.
    """

    parts: tuple[Part, ...]
    form: str = eqx.field(static=True)  # "array", "dict" or "tuple"

    @classmethod
    def of(cls, process: Noising) -> "Parameters":
        """Those of a model without a prior: its points as they are."""
        like = jax.eval_shape(
            lambda key: process.drop(process.reference.sample(key)), jax.random.key(0)
        )
        if not isinstance(process.data, Product):
            return cls((_plain_part("theta", process.data, like),), "array")
        parts = zip(process.data.factors, like, strict=True)
        return cls(tuple(_plain_part(f"theta{i}", *p) for i, p in enumerate(parts)), "tuple")

    @property
    def support(self) -> Space:
        """Where the parameters live."""
        return self._together([part.support for part in self.parts], Product)

    @property
    def space(self) -> Space:
        """Where the model works."""
        return self._together([part.space for part in self.parts], Product)

    def units(self, points: Point) -> Units:
        """The units of the model, from stacked points: warped bounds have theirs already."""
        each = [points] if self.form == "array" else points
        found = [
            Identity() if isinstance(part.warp, Probit) else default_units(part.space, values)
            for part, values in zip(self.parts, each, strict=True)
        ]
        return self._together(found, lambda *units: Factorwise(units))

    def log_slope(self, point: Point) -> Scalar:
        """log p(θ) − log p(point), of what is continuous."""
        each = [point] if self.form == "array" else point
        terms = (part.log_slope(y) for part, y in zip(self.parts, each, strict=True))
        return sum(terms, jnp.zeros(()))

    def _together(self, each: list[Any], join: Callable) -> Any:
        return each[0] if self.form == "array" else join(*each)

    @property
    def names(self) -> list[str]:
        """A name for every coordinate, for plots and tables."""
        names = []
        for part in self.parts:
            places = [",".join(map(str, i)) for i in np.ndindex(*part.shape)]
            names += [f"{part.name}[{place}]" if place else part.name for place in places]
        return names

    def point(self, theta: Any) -> Point:
        """One set of parameters as a point."""
        if self.form == "array":
            return self.parts[0].point(theta)
        pairs = zip(self.parts, self.each(theta), strict=True)
        return tuple(part.point(value) for part, value in pairs)

    def value(self, point: Point) -> Any:
        """One point as parameters."""
        if self.form == "array":
            return self.parts[0].value(point)
        values = [part.value(y) for part, y in zip(self.parts, point, strict=True)]
        if self.form == "dict":
            return {part.name: value for part, value in zip(self.parts, values, strict=True)}
        return tuple(values)

    def flat(self, theta: Any) -> np.ndarray:
        """Stacked parameters as a matrix, a column a coordinate, in the order of `names`."""
        columns = [np.asarray(value) for value in self.each(theta)]
        sizes = [len(part.shape) for part in self.parts]
        stacks = [c.shape[: c.ndim - n] for c, n in zip(columns, sizes, strict=True)]
        return np.concatenate(
            [c.reshape(*s, -1) for c, s in zip(columns, stacks, strict=True)], axis=-1
        )

    def check(self, theta: Any, name: str = "theta") -> Any:
        """Stacked parameters as arrays of the right form and shape, inside the support."""
        wanted = [part.name for part in self.parts]
        if self.form == "dict":
            if not isinstance(theta, dict) or set(theta) != set(wanted):
                found = sorted(theta) if isinstance(theta, dict) else type(theta).__name__
                raise ValueError(f"{name}: expected a dict with {', '.join(wanted)}, got {found}")
        elif self.form == "tuple" and (
            not isinstance(theta, tuple | list) or len(theta) != len(self.parts)
        ):
            raise ValueError(f"{name}: expected a tuple of {len(self.parts)} arrays")
        values = []
        for part, value in zip(self.parts, self.each(theta), strict=True):
            label = name if self.form == "array" else f"{name}[{part.name!r}]"
            value = np.asarray(value)
            if value.ndim != len(part.shape) + 1 or value.shape[1:] != part.shape:
                wanted = f"(n, {', '.join(map(str, part.shape))})" if part.shape else "(n,)"
                raise ValueError(f"{label}: expected shape {wanted}, got {value.shape}")
            outside = np.flatnonzero(~np.asarray(jax.vmap(part.inside)(jnp.asarray(value))))
            if len(outside):
                raise ValueError(
                    f"{label}: row {outside[0]} and {len(outside) - 1} others lie outside the "
                    "prior's support, or hold NaN"
                )
            values.append(jnp.asarray(value))
        if self.form == "array":
            return values[0]
        return dict(zip(wanted, values, strict=True)) if self.form == "dict" else tuple(values)

    def each(self, theta: Any) -> list[Any]:
        """The values of the single distributions."""
        if self.form == "array":
            return [theta]
        return [theta[part.name] for part in self.parts] if self.form == "dict" else list(theta)


class Prior:
    """A prior: a NumPyro distribution, or a dict or a tuple of independent ones.

    A batch of distributions, such as Uniform(low, high) of two vectors, is one over vectors.

    A model of positive numbers works on their logarithms, one of numbers between bounds on normal
    quantiles: there the noise is Gaussian, which is the quickest to learn. Draws come back inside
    the support all the same. With `warp=False` it works on the support itself: `PositiveReals`,
    `Box`. Densities reach a bound better so, where a posterior has its mass on one.
    """

    def __init__(self, prior: Any, *, warp: bool = True):
        named, form = _named(prior)
        for name, law in named.items():
            if not isinstance(law, Distribution):
                raise ValueError(
                    f"{name}: expected a NumPyro distribution, or a dict or tuple of them, got "
                    f"{type(law).__name__}"
                )
        self.laws = tuple(named.values())
        self.parameters = Parameters(tuple(_part(n, law, warp) for n, law in named.items()), form)

    @property
    def support(self) -> Space:
        """Where the parameters live."""
        return self.parameters.support

    @property
    def space(self) -> Space:
        """Where a model of them works."""
        return self.parameters.space

    def draw(self, key: Key) -> Any:
        """One draw, traceable."""
        keys = jax.random.split(key, len(self.laws))
        drawn = [law.sample(k) for law, k in zip(self.laws, keys, strict=True)]
        return self.formed(drawn)

    def sample(self, key: Key, n: int) -> Any:
        """n draws, stacked."""
        # Draw number i has a key of its own: more draws begin with the same ones.
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(n))
        return _drawn(self, keys)

    def inside(self, theta: Any, x: Any) -> tuple[Any, Any]:
        """Of pairs, stacked, those whose parameters it may draw: all."""
        return theta, x

    def log_prob(self, theta: Any) -> Scalar:
        """The log-density of one set of parameters."""
        values = self.parameters.each(theta)
        return sum(
            (jnp.sum(law.log_prob(v)) for law, v in zip(self.laws, values, strict=True)),
            jnp.zeros(()),
        )

    def formed(self, values: list[Any]) -> Any:
        """The values of the single distributions in the form of the prior."""
        parts, form = self.parameters.parts, self.parameters.form
        if form == "array":
            return values[0]
        if form == "dict":
            return {part.name: value for part, value in zip(parts, values, strict=True)}
        return tuple(values)


@functools.partial(jax.jit, static_argnums=0)
def _drawn(prior: Prior, keys: Array) -> Any:
    return jax.vmap(prior.draw)(keys)


def _off_bounds(box: Box, x: Array) -> Array:
    """The nearest point that `Box.check` can tell from the bounds."""
    low, high = (jnp.asarray(bound, x.dtype) for bound in (box.low, box.high))
    margin = 2 * INSIDE * (high - low)
    return jnp.clip(x, jnp.nextafter(low + margin, high), jnp.nextafter(high - margin, low))


def _plain_part(name: str, space: Space, like: Any) -> Part:
    return Part(name, space, like.shape, jnp.zeros(like.shape, like.dtype))


def _named(prior: Any) -> tuple[dict[str, Any], str]:
    if isinstance(prior, dict):
        if not prior or not all(isinstance(name, str) for name in prior):
            raise ValueError("prior: expected a dict from names to distributions, not empty")
        return dict(prior), "dict"
    if isinstance(prior, tuple | list):
        if not prior:
            raise ValueError("prior: is empty; pass at least one distribution")
        return {f"theta{i}": law for i, law in enumerate(prior)}, "tuple"
    return {"theta": prior}, "array"


def _part(name: str, law: Distribution, warp: bool) -> Part:
    support: Any = law.support
    while type(support).__name__ in ("_IndependentConstraint", "_RealVector", "_RealMatrix"):
        support = support.base_constraint
    shape = tuple(law.batch_shape) + tuple(law.event_shape)
    make = _KNOWN.get(type(support))
    if make is None or 0 in shape:
        known = "real, positive, bounded, simplex, sphere, circular and integer"
        raise ValueError(
            f"prior: no space is known for {name} with support {support} and values of shape "
            f"{shape}; write it by distributions of {known} support"
        )
    space, shift, turned = make(support, shape, law)
    if not warp or not isinstance(space, Box | PositiveReals):
        return Part(name, space, shape, shift, turned)
    if isinstance(space, PositiveReals):
        return Part(name, space, shape, shift, turned, Log())
    low, high = jnp.asarray(space.low), jnp.asarray(space.high)
    return Part(name, space, shape, low, turned, Probit(high - low))


def _bound(bound: Any, shape: tuple[int, ...], dtype: Any = float) -> np.ndarray:
    """A bound a coordinate, as a vector."""
    return np.broadcast_to(np.asarray(bound, dtype), shape).reshape(-1)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=int))


def _zeros(shape: tuple[int, ...]) -> Array:
    return jnp.zeros(shape)


def _real(support, shape, law):
    points = shape if len(shape) > 1 else (_size(shape),)
    return Euclidean(points), _zeros(points), False


def _above(support, shape, law):
    return PositiveReals(_size(shape)), jnp.asarray(_bound(support.lower_bound, shape)), False


def _below(support, shape, law):
    return PositiveReals(_size(shape)), jnp.asarray(_bound(support.upper_bound, shape)), True


def _interval(support, shape, law):
    low, high = _bound(support.lower_bound, shape), _bound(support.upper_bound, shape)
    return Box(low, high), _zeros((_size(shape),)), False


def _circular(support, shape, law):
    return Torus(_size(shape)), _zeros((_size(shape),)), False


def _whole(make: Callable) -> Callable:
    """One vector only of what lies on a curved space."""

    def one(support, shape, law):
        if len(shape) != 1:
            raise ValueError(f"prior: {type(law).__name__} must be over single vectors, not stacks")
        return make(shape[0]), _zeros(shape), False

    return one


def _counts(support, shape, law):
    low = _bound(getattr(support, "lower_bound", 0), shape, np.int32)
    return Counts(_size(shape)), jnp.asarray(low), False


def _levels(support, shape, law):
    low, high = (_bound(b, shape, np.int32) for b in (support.lower_bound, support.upper_bound))
    states = int(np.max(high - low)) + 1
    if np.any(high - low + 1 != states):
        raise ValueError(
            "prior: integers with bounds of their own must have a distribution each, in a dict"
        )
    ordered = not isinstance(law, LABELS)
    return Finite(_size(shape), states, ordered=ordered), jnp.asarray(low), False


def _boolean(support, shape, law):
    return Finite(_size(shape), 2), jnp.zeros(_size(shape), jnp.int32), False


_KNOWN = {
    type(constraints.real): _real,
    type(constraints.positive): _above,
    type(constraints.nonnegative): _above,
    type(constraints.greater_than(0.0)): _above,
    type(constraints.greater_than_eq(0.0)): _above,
    type(constraints.less_than(0.0)): _below,
    type(constraints.less_than_eq(0.0)): _below,
    type(constraints.interval(0.0, 1.0)): _interval,
    type(constraints.open_interval(0.0, 1.0)): _interval,
    type(constraints.unit_interval): _interval,
    type(constraints.circular): _circular,
    type(constraints.simplex): _whole(Simplex),
    type(constraints.sphere): _whole(lambda n: Sphere(n - 1)),
    type(constraints.nonnegative_integer): _counts,
    type(constraints.positive_integer): _counts,
    type(constraints.integer_greater_than(0)): _counts,
    type(constraints.integer_interval(0, 1)): _levels,
    type(constraints.boolean): _boolean,
}
