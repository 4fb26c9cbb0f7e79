"""What goes into a network, and how what comes out becomes a score."""

import abc
import functools

import equinox as eqx
from jaxtyping import Array

from .._types import Given, Point, Score, Time
from ..processes import Noising


class Parameterisation(eqx.Module):
    """Preconditioning: network inputs and outputs of order one at every τ."""

    @abc.abstractmethod
    def inputs(self, process: Noising, x: Point, tau: Time) -> Point:
        """What the network sees of a state."""

    @abc.abstractmethod
    def outputs(self, process: Noising, x: Point) -> Point:
        """Zeros of the shape that the network must return."""

    @abc.abstractmethod
    def score(self, process: Noising, output: Point, x: Point, tau: Time) -> Score:
        """The score at x from the network's output."""


class Conditioned(eqx.Module):
    """A parameterisation for every observation: preconditioning that looks at what was seen."""

    @abc.abstractmethod
    def given(self, observed: Given, present: Array | float) -> Parameterisation:
        """That for one observation, as networks take it; with `present` 0 it is hidden."""


@functools.singledispatch
def default_parameterisation(process: Noising) -> Parameterisation:
    """The parameterisation that `fit` chooses for a process."""
    raise ValueError(
        f"process: no default parameterisation for {type(process).__name__}; pass parameterisation="
    )
