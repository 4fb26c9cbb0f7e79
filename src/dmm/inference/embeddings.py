"""Embeddings of observations, chosen by what an observation is."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx

from ..networks import Centred, Embedded, ResNet, SeriesEncoder, SetEncoder

ENCODERS: dict[str, Callable] = {"set": SetEncoder, "series": SeriesEncoder, "image": ResNet}


def with_embedding(network: Any, embedding: Any, width: int, depth: int) -> Any:
    """What `fit` takes for a network: the user's, or `Centred` after the embedding.

    `embedding` is "set", "series" or "image", a module from one encoded observation to arrays, a
    function of (key, observation) that makes one, or None: then the observation enters flat.
    """
    if network is None:
        network = functools.partial(Centred, width=width, depth=depth)
    if embedding is None:
        return network
    if isinstance(embedding, str):
        if embedding not in ENCODERS:
            raise ValueError(f"embedding: choose from {', '.join(ENCODERS)}, got {embedding!r}")
        embedding = ENCODERS[embedding]
    if isinstance(network, eqx.Module):
        raise ValueError("network: with an embedding, pass a function that makes the network")
    if not callable(embedding):
        raise ValueError("embedding: expected a name, an Equinox module or a function making one")
    return functools.partial(Embedded, embedding=embedding, network=network)


def by_feature(embedding: Any) -> bool:
    """Whether rows of an observation are alike, so that columns are standardised as wholes."""
    return embedding in ("set", "series") or embedding in (SetEncoder, SeriesEncoder)
