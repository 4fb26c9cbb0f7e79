"""What networks have in common: a call; for some a source of randomness, or a reading."""

import abc

import equinox as eqx
from jaxtyping import Array, PyTree

from .._types import Given, Key, Time


class Stochastic(eqx.Module):
    """A network with dropout: training passes a key; without one it is deterministic."""

    @abc.abstractmethod
    def __call__(
        self,
        inputs: PyTree,
        tau: Time,
        given: Given = None,
        present: Array | float = 1.0,
        key: Key | None = None,
    ) -> PyTree:
        """Outputs for one point."""


class Reader(eqx.Module):
    """A network that reads its observation once, for all that a model does with it.

    What it has read stands for `given` where it is called.
    """

    @abc.abstractmethod
    def read(self, given: Given) -> Given:
        """What the network makes of one encoded observation."""
