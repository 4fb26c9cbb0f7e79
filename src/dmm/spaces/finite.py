"""Finitely many states a coordinate: categories, levels, characters."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .base import Space, stacked
from .euclidean import _shape


class Finite(Space):
    """{0, …, states − 1} at every coordinate of an array. Densities are w.r.t. counting measure.

    `ordered` says whether neighbouring numbers are close (grey levels) or mere labels.
    """

    shape: tuple[int, ...] = eqx.field(static=True, converter=_shape)
    states: int = eqx.field(static=True)
    ordered: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not isinstance(self.states, int) or self.states < 2:
            raise ValueError(f"states: a whole number, at least 2, is needed, got {self.states}")

    def contains(self, x):
        return jnp.all((x >= 0) & (x < self.states))

    def check(self, data, name="data"):
        array = stacked(data, self.shape, name, f"reshape it or change {self}")
        known, whole = isinstance(array, np.ndarray), jnp.issubdtype(array.dtype, jnp.integer)
        broken = known and not whole and np.any(array % 1 != 0)
        if broken or (known and (array.min() < 0 or array.max() >= self.states)):
            raise ValueError(
                f"{name}: states must be whole numbers from 0 to {self.states - 1}, got values "
                f"from {array.min()} to {array.max()}; recode them or change `states`"
            )
        return jnp.asarray(array, jnp.int32)

    def features(self, x):
        """A number for a level, a unit vector for a label: mean square 1 if all are as likely."""
        if self.ordered:
            centred = x - (self.states - 1) / 2
            return centred * math.sqrt(12 / (self.states**2 - 1))
        return jax.nn.one_hot(x, self.states) * math.sqrt(self.states)
