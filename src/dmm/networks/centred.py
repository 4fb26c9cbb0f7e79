"""A network for posteriors much narrower than their prior."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from .._types import Given, Key, Time
from .base import Reader
from .flat import flatten, size
from .layers import Dense
from .mlp import MLP


class Centred(Reader):
    """A perceptron that also sees how far its inputs are from where the observation puts them.

    Of an observation ξ it learns a centre c(ξ) and a width w(ξ) for each of the inputs u, and sees

        (u − c)/√(w² + g(1 − e^{−τ})) and log of that root,

    g learned, besides u, τ and ξ. A posterior a hundredth as wide as the prior has a
    score that varies on a hundredth of the scale of u, at places that depend on ξ: a perceptron of
    u and ξ alone learns such functions slowly. In these units all posteriors look alike.
    """

    reader: tuple[Dense, ...]
    centre: Dense
    log_width: Dense
    log_gain: Array
    rest: MLP

    def __init__(
        self, key: Key, inputs: PyTree, outputs: PyTree, given: Given = None,
        *, width: int = 256, depth: int = 3,
    ):  # fmt: skip
        if given is None:
            raise ValueError("given: Centred needs observations; use MLP for a model without")
        keys, d, n = jax.random.split(key, 5), size(inputs), size(given)
        half = max(1, width // 2)  # of what reads the observation
        sizes = zip(keys[3:], (n, half), (half, half), strict=True)
        self.reader = tuple(Dense(k, i, o, gain=math.sqrt(2)) for k, i, o in sizes)
        self.centre = Dense(keys[1], n + half, d, gain=0.1)
        self.log_width = Dense(keys[2], n + half, d, gain=0.0)
        self.log_gain = jnp.zeros(d)
        seen = jax.ShapeDtypeStruct((3 * d,), jnp.result_type(float))
        self.rest = MLP(keys[0], seen, outputs, given, width=width, depth=depth)

    def read(self, given: Given) -> tuple[Array, Array, Array]:
        """The observation, the centre and the log of the width."""
        seen = h = flatten(given)
        for layer in self.reader:
            h = jax.nn.silu(layer(h))
        h = jnp.concatenate([seen, h])
        return seen, self.centre(h), jnp.clip(self.log_width(h), -9.0, 2.0)

    def __call__(
        self, inputs: PyTree, tau: Time, given: Given = None, present: Array | float = 1.0
    ) -> PyTree:
        u, (seen, centre, log_width) = flatten(inputs), given
        # Without the observation: where standard data lie.
        centre, log_width = present * centre, present * log_width
        noise = jnp.exp(self.log_gain) * -jnp.expm1(-tau)
        scale = jnp.sqrt(jnp.exp(2 * log_width) + noise)
        away = (u - centre) / scale
        return self.rest(jnp.concatenate([u, away, jnp.log(scale)]), tau, seen, present)
