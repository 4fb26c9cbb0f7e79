"""A model's network as a score function: what objectives, samplers and bounds are given."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array

from ._types import Given, Key, Point, Score, ScoreFn, Time
from .networks import Stochastic
from .parameterisations.chains import PredictsStates
from .processes.chain import Denoiser
from .processes.coordinates import Rows, rowwise


class Learned(eqx.Module):
    """A model's score as a function of (x, τ), given an observation, guided where asked.

    The observation is as `Model.observed` gives it, so that networks which embed it do so once.
    """

    model: Any  # a `Model`
    observed: Given = None
    present: Array | float = 1.0
    key: Key | None = None  # for a network with dropout
    guidance: float = eqx.field(static=True, default=1.0)

    def __call__(self, x: Point, tau: Time) -> Score:
        def score(output, tau):
            return self.model.parameterisation.score(self.model.process, output, x, tau)

        return self._guided(score, x, tau)

    def at(self, tau: Time) -> ScoreFn:
        """The score frozen at a time; of a model that predicts states, one that looks back."""
        if isinstance(self.model.parameterisation, PredictsStates):
            return _DenoiserAt(self, tau)
        return lambda x: self(x, tau)

    def bridge(self, x: Array, tau: Time, earlier: Time) -> Array | Rows:
        """The law of every coordinate of a chain at an earlier time: logits."""

        def bridge(output, tau):
            head = self.model.parameterisation
            return head.bridge(self.model.process, output, x, tau, earlier)

        return self._guided(bridge, x, tau)

    def _guided(self, f: Callable, x: Point, tau: Time) -> Any:
        """f of the network's output; guided, u + w(c − u), u with the observation hidden."""
        tau = jnp.maximum(tau, self.model.schedule.tau_min)
        if self.guidance == 0.0:
            return f(self._output(x, tau, 0.0), tau)
        conditional = f(self._output(x, tau, self.present), tau)
        if self.guidance == 1.0:
            return conditional
        free = f(self._output(x, tau, 0.0), tau)
        return rowwise(Partial(_guide, self.guidance), free, conditional)

    def _output(self, x: Point, tau: Time, present: Array | float) -> Any:
        model = self.model
        inputs = model.parameterisation.inputs(model.process, x, tau)
        dropout = {"key": self.key} if isinstance(model.network, Stochastic) else {}
        return model.network(inputs, tau, self.observed, present, **dropout)


def _guide(weight, free, conditional):
    return free + weight * (conditional - free)


class _DenoiserAt(Denoiser):
    learned: Learned
    tau: Time

    def __call__(self, x):
        return self.learned(x, self.tau)

    def bridge(self, x, earlier):
        return self.learned.bridge(x, self.tau, earlier)
