"""Markov chains: one chain, in as many independent copies as a point has coordinates."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array

from .._checks import at_least
from .._types import Score, Time
from ..spaces import Finite
from .base import HasDensity, Law, Noised
from .coordinates import CHUNK, LARGE, Compact, Rows, at_once, each
from .jump import Jump, draw_states, invert, pick, uniforms


class Chain(Jump, HasDensity):
    """Independent copies of a chain with rate matrix B, one a coordinate of an array.

    Laws over states run along a last axis. Three verbs give exp(τB) without forming it: its rows,
    its columns and its action on laws. The target is the ratio q_τ(y | x_0)/q_τ(x | x_0). Without
    coordinates, `Finite((), states)`, it is a chain on a set, and not factorised.

    Points of many coordinates and states are treated `chunk` coordinates at a time, unless given
    as many as hold a million numbers. In a batch that is so many of every point.
    """

    space: eqx.AbstractVar[Finite]
    data: eqx.AbstractVar[Finite]
    chunk: eqx.AbstractVar[int | None]

    @abc.abstractmethod
    def row(self, x0: Array, tau: Time) -> Array:
        """q_τ(· | x_0)."""

    @abc.abstractmethod
    def column(self, x: Array, tau: Time) -> Array:
        """q_τ(x | ·), over the states to have started from."""

    @abc.abstractmethod
    def propagate(self, law: Array, tau: Time) -> Array:
        """Σ_z law(z) q_τ(· | z)."""

    def embed(self, law: Array) -> Array:
        """A law over the data's states, as one over the states of the space."""
        added = self.space.states - self.data.states
        return jnp.pad(law, [(0, 0)] * (law.ndim - 1) + [(0, added)])

    def moves(self, x):
        states = jnp.arange(self.space.states, dtype=x.dtype)
        return jnp.broadcast_to(states, (*x.shape, self.space.states))

    def noise(self, key, x0, tau):
        chunk = at_once(self, x0)
        if chunk is None:
            q = self.row(x0, tau)
            x = draw_states(key, q).astype(x0.dtype)
            return Noised(x, q / pick(q, x)[..., None])

        def one(x0, u):
            return invert(self.row(x0, tau), u).astype(x0.dtype)

        x = each(one, x0, uniforms(key, x0.shape), chunk=chunk)
        return Noised(x, Ratios(x0, jnp.asarray(tau)))

    def log_transition(self, x, x0, tau):
        def one(x, x0):
            return jnp.log(pick(self.row(x0, tau), x))

        return jnp.sum(each(one, x, x0, chunk=at_once(self, x)))

    def entropy(self, x0, tau):
        def one(x0):
            q = self.row(x0, tau)
            # Where q is 0 for good its logarithm must not reach the derivative.
            return -jnp.sum(q * jnp.log(jnp.where(q > 0, q, 1.0)), -1)

        return jnp.sum(each(one, x0, chunk=at_once(self, x0)))

    def lift(self, key, x0):
        return x0, jnp.zeros(())


def check_chunk(chunk: int | None) -> None:
    """A `ValueError` unless it is None, or a number of coordinates."""
    if chunk is not None:
        at_least(1, chunk=chunk)


@at_once.register(Chain)
def _(process, x):
    states, chunk = process.space.states, process.chunk
    if chunk is None:
        chunk = max(1, CHUNK // states) if x.size * states > LARGE else x.size
    return chunk if chunk < x.size else None


class Ratios(Compact):
    """The target by what it follows from: q_τ(y | x_0)/q_τ(x | x_0)."""

    x0: Array
    tau: Time

    def rows(self, process: Chain, x: Array) -> Rows:
        """The ratios at x."""
        form = Partial(_ratios, process, self.tau)
        return Rows(form, (x, self.x0), at_once(process, x) or x.size)


def _ratios(process: Chain, tau: Time, x: Array, x0: Array) -> Array:
    q = process.row(x0, tau)
    return q / pick(q, x)[..., None]


class Categorical(Law):
    """Independent coordinates, each with the same probabilities."""

    shape: tuple[int, ...] = eqx.field(static=True)
    probabilities: Array

    def sample(self, key):
        sums = jnp.cumsum(self.probabilities)
        u = uniforms(key, self.shape, sums.dtype) * sums[-1]
        drawn = jnp.searchsorted(sums, u, side="right").astype(jnp.int32)
        return jnp.minimum(drawn, len(sums) - 1)

    def log_prob(self, x):
        return jnp.sum(jnp.log(self.probabilities)[x])


class Denoiser(eqx.Module):
    """A score function of a chain at one time that can also look back towards the data."""

    @abc.abstractmethod
    def __call__(self, x: Array) -> Score:
        """The score at x."""

    @abc.abstractmethod
    def bridge(self, x: Array, earlier: Time) -> Array | Rows:
        """The law of every coordinate at an earlier time given all of x: logits, unnormalised."""
