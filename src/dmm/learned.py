"""A model's network as a score function: what objectives, samplers and bounds are given."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array

from ._types import Given, Key, Point, Score, ScoreFn, Time
from .networks import Stochastic
from .parameterisations import Conditioned
from .parameterisations.chains import PredictsStates
from .processes.chain import Denoiser
from .processes.coordinates import Rows, rowwise


class Observed(NamedTuple):
    """One observation: encoded, and as the network takes it, which may have read it already."""

    encoded: Given
    read: Given


class Learned(eqx.Module):
    """A model's score as a function of (x, τ), given an observation, guided where asked.

    The observation is as `Model.observed` gives it, so that networks which read it do so once.
    """

    model: Any  # a `Model`
    observed: Observed | None = None
    present: Array | float = 1.0
    key: Key | None = None  # for a network with dropout
    guidance: float = eqx.field(static=True, default=1.0)

    def __call__(self, x: Point, tau: Time) -> Score:
        def score(head, output, tau):
            return head.score(self.model.process, output, x, tau)

        return self._guided(score, x, tau)

    def at(self, tau: Time) -> ScoreFn:
        """The score frozen at a time; of a model that predicts states, one that looks back."""
        if isinstance(self.model.parameterisation, PredictsStates):
            return _DenoiserAt(self, tau)
        return lambda x: self(x, tau)

    def bridge(self, x: Array, tau: Time, earlier: Time) -> Array | Rows:
        """The law of every coordinate of a chain at an earlier time: logits."""

        def bridge(head, output, tau):
            return head.bridge(self.model.process, output, x, tau, earlier)

        return self._guided(bridge, x, tau)

    def _guided(self, f: Callable, x: Point, tau: Time) -> Any:
        """f of the network's output; guided, u + w(c − u), u with the observation hidden."""
        tau = jnp.maximum(tau, self.model.schedule.tau_min)
        if self.guidance == 0.0:
            return self._applied(f, x, tau, 0.0)
        conditional = self._applied(f, x, tau, self.present)
        if self.guidance == 1.0:
            return conditional
        free = self._applied(f, x, tau, 0.0)
        return rowwise(Partial(_guide, self.guidance), free, conditional)

    def _applied(self, f: Callable, x: Point, tau: Time, present: Array | float) -> Any:
        model, head = self.model, self.model.parameterisation
        encoded, read = self.observed or (None, None)
        if isinstance(head, Conditioned):
            head = head.given(encoded, present)
        inputs = head.inputs(model.process, x, tau)
        dropout = {"key": self.key} if isinstance(model.network, Stochastic) else {}
        output = model.network(inputs, tau, read, present, **dropout)
        return f(head, output, tau)


def _guide(weight, free, conditional):
    return free + weight * (conditional - free)


class _DenoiserAt(Denoiser):
    learned: Learned
    tau: Time

    def __call__(self, x):
        return self.learned(x, self.tau)

    def bridge(self, x, earlier):
        return self.learned.bridge(x, self.tau, earlier)
