"""The chain that masks: at rate one a coordinate is hidden, and stays so."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import positive
from ..spaces import Finite
from .base import default_process
from .chain import Categorical, Chain, check_chunk
from .ordinal import OrdinalChain


class AbsorbingChain(Chain):
    """Every state jumps to a mask, added after the data's states, at rate 1: P(not yet) = e^{−τ}.

    The reference is a mask, but with probability e^{−horizon} any of the data's states: what is
    left of the data, so that the bound is finite. No matrix is formed, and the score counts at
    masks alone. Samples have no masks; along a path one shows as the number after the last state.
    """

    data: Finite
    horizon: float = eqx.field(static=True, default=25.0)
    chunk: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        positive(horizon=self.horizon)
        check_chunk(self.chunk)

    @property
    def mask(self) -> int:
        """The state that the data do not have."""
        return self.data.states

    @property
    def space(self):
        return Finite(self.data.shape, self.data.states + 1)

    @property
    def reference(self):
        left, states = math.exp(-self.horizon), self.data.states
        return Categorical(self.data.shape, jnp.array([left / states] * states + [1 - left]))

    def rates(self, x):
        to_mask = jax.nn.one_hot(self.mask, self.space.states)
        return jnp.where((x == self.mask)[..., None], 0.0, to_mask)

    def inflow(self, x):
        from_data = 1 - jax.nn.one_hot(self.mask, self.space.states)
        return jnp.where((x == self.mask)[..., None], from_data, 0.0)

    def row(self, x0, tau):
        return self.propagate(jax.nn.one_hot(x0, self.space.states), tau)

    def column(self, x, tau):
        states = self.space.states
        from_itself = jnp.exp(-tau) * jax.nn.one_hot(x, states)
        to_mask = -jnp.expm1(-tau) * jnp.ones(states)
        to_mask = jnp.where(jnp.arange(states) == self.mask, 1.0, to_mask)
        return jnp.where((x == self.mask)[..., None], to_mask, from_itself)

    def propagate(self, law, tau):
        kept, masked = law[..., : self.mask], law[..., self.mask :]
        gone = -jnp.expm1(-tau) * jnp.sum(kept, -1, keepdims=True)
        return jnp.concatenate([jnp.exp(-tau) * kept, masked + gone], -1)

    def drop(self, x):
        return x


@default_process.register
def _(space: Finite):
    return OrdinalChain(space) if space.ordered else AbsorbingChain(space)
