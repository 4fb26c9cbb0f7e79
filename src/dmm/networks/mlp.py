"""Multilayer perceptrons on pytrees."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._types import Given, Key, Time
from .flat import flatten, like, size, unflatten
from .time import TIME_FEATURES, time_features


class MLP(eqx.Module):
    """`depth` hidden layers of `width`, from (inputs, τ, given) to outputs, all pytrees.

    Dropping an observation (`present` = 0) puts zeros in its place and tells the network so.
    The last layer starts at zero: an untrained model has the score that its parameterisation
    gives to a zero output, that of the reference or of standard Gaussian data.
    """

    layers: tuple[eqx.nn.Linear, ...]
    outputs: PyTree = eqx.field(static=True)

    def __init__(
        self, key: Key, inputs: PyTree, outputs: PyTree, given: Given = None,
        *, width: int = 256, depth: int = 3,
    ):  # fmt: skip
        self.outputs = like(outputs)
        observed = size(given) + 1 if given is not None else 0
        sizes = [size(inputs) + TIME_FEATURES + observed, *[width] * depth, size(outputs)]
        keys = jax.random.split(key, len(sizes) - 1)
        pairs = zip(keys, sizes[:-1], sizes[1:], strict=True)
        layers = [_linear(k, n, m) for k, n, m in pairs]
        layers[-1] = jax.tree.map(jnp.zeros_like, layers[-1])
        self.layers = tuple(layers)

    def __call__(
        self, inputs: PyTree, tau: Time, given: Given = None, present: Array | float = 1.0
    ):
        parts = [flatten(inputs), time_features(tau)]
        if given is not None:
            here = jnp.asarray(present, parts[0].dtype)
            parts += [here * flatten(given), here.reshape(1)]
        h = jnp.concatenate(parts)
        for layer in self.layers[:-1]:
            h = jax.nn.silu(layer(h))
        return unflatten(self.outputs, self.layers[-1](h))


def _linear(key: Key, n: int, m: int) -> eqx.nn.Linear:
    """Weights of variance 2/n, which carry a signal of order one through layers of SiLU."""
    layer = eqx.nn.Linear(n, m, key=key)
    weight = jnp.sqrt(2 / n) * jax.random.normal(key, (m, n))
    return eqx.tree_at(lambda at: (at.weight, at.bias), layer, (weight, jnp.zeros(m)))
