"""Chains by their rate matrix."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..spaces import Finite
from .chain import Categorical, Chain, check_chunk
from .transitions import Transitions, check_rates, horizon_of, stationary


class AbstractMatrixChain(Chain):
    """A chain whose exp(τB) is formed. The reference is the stationary law.

    Its products are in full precision, unless `jax.default_matmul_precision` says otherwise.
    """

    data: eqx.AbstractVar[Finite]
    transitions: eqx.AbstractVar[Transitions]
    stationary: eqx.AbstractVar[Array]

    @property
    def space(self):
        return self.data

    @property
    def horizon(self):
        return self.transitions.horizon

    @property
    def reference(self):
        return Categorical(self.space.shape, self.stationary)

    def rates(self, x):
        return self.transitions.rates[x]

    def inflow(self, x):
        return self.transitions.rates.T[x]

    def row(self, x0, tau):
        return self.transitions(tau)[x0]

    def column(self, x, tau):
        return self.transitions(tau).T[x]

    def propagate(self, law, tau):
        # JAX alone would round to ten bits on a GPU.
        precision = jax.config.jax_default_matmul_precision or "highest"
        return jnp.matmul(law, self.transitions(tau), precision=precision)

    def drop(self, x):
        return x


class MatrixChain(AbstractMatrixChain):
    """Any rate matrix B: `matrix[i][j]` is the rate from i to j, and rows sum to 0.

    The horizon is ten relaxation times unless given.
    """

    data: Finite
    transitions: Transitions
    stationary: Array
    chunk: int | None = eqx.field(static=True, default=None)

    def __init__(
        self, data: Finite, matrix, *, horizon: float | None = None, chunk: int | None = None
    ):
        check_chunk(chunk)
        matrix = check_rates(matrix, data.states)
        law = stationary(matrix)
        self.data = data
        self.transitions = Transitions(matrix, horizon_of(matrix, horizon))
        self.stationary = jnp.asarray(law, jnp.result_type(float))
        self.chunk = chunk
