"""Markov chains: one chain, in as many independent copies as a point has coordinates."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Score, Time
from ..spaces import Finite
from .base import HasDensity, Law, Noised
from .jump import Jump, draw_states, pick


class Chain(Jump, HasDensity):
    """Independent copies of a chain with rate matrix B, one a coordinate of an array.

    Laws over states run along a last axis. Three verbs give exp(τB) without forming it: its rows,
    its columns and its action on laws. The target is the ratio q_τ(y | x_0)/q_τ(x | x_0). Without
    coordinates, `Finite((), states)`, it is a chain on a set, and not factorised.
    """

    space: eqx.AbstractVar[Finite]
    data: eqx.AbstractVar[Finite]

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
        q = self.row(x0, tau)
        x = draw_states(key, q).astype(x0.dtype)
        return Noised(x, q / pick(q, x)[..., None])

    def log_transition(self, x, x0, tau):
        return jnp.sum(jnp.log(pick(self.row(x0, tau), x)))

    def entropy(self, x0, tau):
        q = self.row(x0, tau)
        # Where q is 0 for good its logarithm must not reach the derivative.
        return -jnp.sum(q * jnp.log(jnp.where(q > 0, q, 1.0)))

    def lift(self, key, x0):
        return x0, jnp.zeros(())


class Categorical(Law):
    """Independent coordinates, each with the same probabilities."""

    shape: tuple[int, ...] = eqx.field(static=True)
    probabilities: Array

    def sample(self, key):
        law = jnp.broadcast_to(self.probabilities, (*self.shape, len(self.probabilities)))
        return draw_states(key, law)

    def log_prob(self, x):
        return jnp.sum(jnp.log(self.probabilities)[x])


class Denoiser(eqx.Module):
    """A score function of a chain at one time that can also look back towards the data."""

    @abc.abstractmethod
    def __call__(self, x: Array) -> Score:
        """The score at x."""

    @abc.abstractmethod
    def bridge(self, x: Array, earlier: Time) -> Array:
        """The law of every coordinate at an earlier time given all of x: logits, unnormalised."""
