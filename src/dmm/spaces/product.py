"""Several spaces side by side."""

import jax
import jax.numpy as jnp

from .base import Space


class Product(Space):
    """Points are tuples, one entry a factor; densities are w.r.t. the product measure."""

    factors: tuple[Space, ...]

    def __init__(self, *factors: Space):
        if not factors or not all(isinstance(factor, Space) for factor in factors):
            raise ValueError("factors: pass one space or more, as in Product(Euclidean(2), ...)")
        self.factors = factors

    def contains(self, x):
        inside = [factor.contains(y) for factor, y in zip(self.factors, x, strict=True)]
        return jnp.all(jnp.stack(inside))

    def check(self, data, name="data"):
        if not isinstance(data, tuple | list) or len(data) != len(self.factors):
            raise ValueError(
                f"{name}: expected a tuple of {len(self.factors)} arrays, one a factor"
            )
        parts = tuple(
            factor.check(part, f"{name}[{i}]")
            for i, (factor, part) in enumerate(zip(self.factors, data, strict=True))
        )
        lengths = [len(jax.tree.leaves(part)[0]) for part in parts]
        if len(set(lengths)) > 1:
            raise ValueError(f"{name}: factors differ in length, {lengths}; they must agree")
        return parts

    def features(self, x):
        return tuple(factor.features(y) for factor, y in zip(self.factors, x, strict=True))
