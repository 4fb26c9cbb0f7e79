"""What networks have in common: a call, and for some a source of randomness."""

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
