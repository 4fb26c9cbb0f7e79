"""The chain that forgets: at rate one, a state drawn afresh."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import positive
from ..spaces import Finite
from .chain import Categorical, Chain, check_chunk


class UniformChain(Chain):
    """Rate 1/S to every other state. q_τ(y | x_0) = 1/S + (δ − 1/S)e^{−τ}, whatever S is.

    The reference is uniform. No S × S matrix is formed.
    """

    data: Finite
    horizon: float = eqx.field(static=True, default=10.0)
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        positive(horizon=self.horizon)
        check_chunk(self.chunk)

    @property
    def space(self):
        return self.data

    @property
    def reference(self):
        states = self.space.states
        return Categorical(self.space.shape, jnp.full(states, 1 / states))

    def rates(self, x):
        states = self.space.states
        return (1 - jax.nn.one_hot(x, states)) / states

    def inflow(self, x):
        return self.rates(x)

    def row(self, x0, tau):
        return self.propagate(jax.nn.one_hot(x0, self.space.states), tau)

    def column(self, x, tau):
        return self.row(x, tau)

    def propagate(self, law, tau):
        total = jnp.sum(law, -1, keepdims=True)
        return jnp.exp(-tau) * law - jnp.expm1(-tau) / self.space.states * total

    def drop(self, x):
        return x
