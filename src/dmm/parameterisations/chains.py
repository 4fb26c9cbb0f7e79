"""Parameterisations of chains.

The network speaks of the data or of the rates; what comes out is the score, the log-ratios
log q_τ(y)/q_τ(x) of every coordinate.
"""

import abc

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array

from .._types import Time
from ..processes import Chain, Jump
from ..processes.coordinates import Rows, at_once
from ..processes.jump import pick
from .base import Parameterisation, default_parameterisation


class PredictsStates(Parameterisation):
    """Weights w over the data's states, a law a coordinate: s(x, y) = log (wQ_τ)(y)/(wQ_τ)(x).

    w is the law of a coordinate of x_0 given the *other* coordinates of x, so that this is exact
    for the right w; the law given all of x is w ∘ q_τ(x | ·), normalised. No ratio of
    probabilities is clamped.
    """

    @abc.abstractmethod
    def weights(self, process: Chain, output: Array, x: Array, tau: Time) -> Array:
        """w, along the last axis."""

    def inputs(self, process: Chain, x, tau):
        return process.space.features(x)

    def score(self, process: Chain, output, x, tau):
        return _rows(_log_ratios, (self, process, tau), output, x)

    def bridge(
        self, process: Chain, output: Array, x: Array, tau: Time, earlier: Time
    ) -> Array | Rows:
        """log (wQ_s)(·) + log q_{τ−s}(x | ·), s = `earlier`: the law at s given x, unnormalised."""
        return _rows(_log_bridge, (self, process, tau, earlier), output, x)


def _rows(f, settings: tuple, output: Array, x: Array) -> Array | Rows:
    """f(*settings, output, x): as `Rows` where all together would be too many."""
    form, chunk = Partial(f, *settings), at_once(settings[1], x)
    return form(output, x) if chunk is None else Rows(form, (output, x), chunk)


def _log_ratios(head, process, tau, output, x):
    logs = _log_law(head, process, tau, output, x, tau)
    return logs - pick(logs, x)[..., None]


def _log_bridge(head, process, tau, earlier, output, x):
    back = process.column(x, tau - earlier)
    return _log_law(head, process, tau, output, x, earlier) + _log(back)


def _log_law(head, process, tau, output, x, at):
    w = process.embed(head.weights(process, output, x, tau))
    return _log(process.propagate(w, at))


class PriorLogits(PredictsStates):
    """The logarithms of the weights, up to a constant: any law over the states."""

    def outputs(self, process: Chain, x):
        return jnp.zeros((*x.shape, process.data.states))

    def weights(self, process, output, x, tau):
        return jax.nn.softmax(output)


class PriorLogistic(PredictsStates):
    """Two numbers a coordinate, the place and log-scale of a discretised logistic law: many levels.

    Levels lie evenly in [−1, 1]; the outermost two take the tails. The place is that of x, faded
    as time passes, plus the first output.
    """

    def outputs(self, process: Chain, x):
        return jnp.zeros((*x.shape, 2))

    def weights(self, process, output, x, tau):
        states = process.data.states
        level = 2 * x.astype(output.dtype) / (states - 1) - 1
        place = jnp.exp(-10 / process.horizon * tau) * level + output[..., 0]
        narrowness = jnp.exp(jnp.minimum(2.0 - output[..., 1], 9.0))
        n, place = narrowness[..., None], place[..., None]
        ranks = (1,) * (place.ndim - 1)
        lower, upper, width = (
            ends.astype(output.dtype).reshape(*ranks, -1) for ends in _cells(states)
        )
        # σ(a) − σ(b) = (1 − e^{b−a}) σ(a) σ(−b): nothing cancels.
        share = -jnp.expm1(-n * width)
        return share * jax.nn.sigmoid(n * (upper - place)) * jax.nn.sigmoid(n * (place - lower))


def _cells(states: int) -> tuple[np.ndarray, ...]:
    """Ends and widths of the cells around levels even in [−1, 1]; the outermost end far out."""
    edges = (2 * np.arange(1, states) - 1) / (states - 1) - 1
    lower, upper = np.concatenate([[-1e20], edges]), np.concatenate([edges, [1e20]])
    return lower, upper, upper - lower


class PredictRates(Parameterisation):
    """The logarithms of the reverse rates A(x → y) (Example 5): s = log A − log B(y → x).

    For any jump process; entries without a rate back are not used.
    """

    def inputs(self, process: Jump, x, tau):
        return process.space.features(x)

    def outputs(self, process: Jump, x):
        return jnp.zeros(process.moves(x).shape)

    def score(self, process: Jump, output, x, tau):
        inflow = process.inflow(x)
        return jnp.where(inflow > 0, output - jnp.log(jnp.where(inflow > 0, inflow, 1.0)), 0.0)


def _log(law: Array) -> Array:
    return jnp.log(jnp.maximum(law, jnp.finfo(law.dtype).tiny))


@default_parameterisation.register(Chain)
def _(process):
    """Two numbers a coordinate rather than a number a state, where there are many levels."""
    levels = process.data.ordered and process.data.states > 64
    return PriorLogistic() if levels else PriorLogits()
