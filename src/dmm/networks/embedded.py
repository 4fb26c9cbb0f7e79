"""Networks that read their observation once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .._types import Given, Key, Time
from .base import Reader, Stochastic
from .mlp import MLP


class Embedded(Stochastic, Reader):
    """A network after an `embedding` of its observation, such as an encoder of images.

    Models embed an observation once for all that they do with it: all draws and all steps of a
    sample, all noisings of a training example. `embedding` is any module from one encoded
    observation to a pytree of arrays, or a function of (key, given) that makes one; `network` a
    function of (key, inputs, outputs, given) that makes what takes the embedding for `given`.
    """

    embedding: Any
    network: Any

    def __init__(
        self, key: Key, inputs: PyTree, outputs: PyTree, given: Given = None,
        *, embedding: Any, network: Callable = MLP,
    ):  # fmt: skip
        if given is None:
            raise ValueError("given: there is no observation to embed; pass given=... to fit")
        embedding_key, network_key = jax.random.split(key)
        made = isinstance(embedding, eqx.Module)
        self.embedding = embedding if made else embedding(embedding_key, given)
        features = jax.eval_shape(self.embedding, given)
        self.network = network(network_key, inputs, outputs, features)

    def read(self, given: Given) -> Given:
        """The embedding, and what the network after it reads of that."""
        features = self.embedding(given)
        return self.network.read(features) if isinstance(self.network, Reader) else features

    def __call__(
        self,
        inputs: PyTree,
        tau: Time,
        given: Given = None,
        present: Array | float = 1.0,
        key: Key | None = None,
    ) -> PyTree:
        """Outputs for one point."""
        dropout = {"key": key} if isinstance(self.network, Stochastic) else {}
        return self.network(inputs, tau, given, present, **dropout)
