"""An encoder of exchangeable rows."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._checks import at_least
from .._types import Key
from .layers import Dense
from .residual import Keys


class SetEncoder(eqx.Module):
    """Rows (m, d) as a vector of `features` that does not depend on their order.

    Each row by a perceptron; then the mean and the maximum over rows by another (Zaheer et al.,
    2017). A mean determines what is sufficient of independent rows; a maximum sees extremes.
    """

    rows: list[Dense]
    after: list[Dense]

    def __init__(self, key: Key, given: PyTree, *, features: int = 64, width: int = 128):
        at_least(1, features=features, width=width)
        (d,) = _rows(given)
        keys, gain = Keys(key), math.sqrt(2)
        self.rows = [Dense(keys(), n, width, gain=gain) for n in (d, width, width)]
        sizes = [(2 * width, width), (width, features)]
        self.after = [Dense(keys(), n, m, gain=gain) for n, m in sizes]

    def __call__(self, given: PyTree) -> Float[Array, " features"]:
        (h,) = jax.tree.leaves(given)
        for layer in self.rows:
            h = jax.nn.silu(layer(h))
        h = jnp.concatenate([jnp.mean(h, 0), jnp.max(h, 0)])
        return self.after[1](jax.nn.silu(self.after[0](h)))


def _rows(given: PyTree) -> tuple[int]:
    leaves = jax.tree.leaves(given)
    if len(leaves) != 1 or len(leaves[0].shape) != 2:
        raise ValueError(
            "given: SetEncoder reads one array of rows, (m, d) an observation; reshape m numbers "
            "to (m, 1)"
        )
    return (leaves[0].shape[1],)
