"""The chain for ordered levels, after Campbell et al. (2022): the paper's for images."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import positive
from ..spaces import Finite
from .chain import check_chunk
from .matrix import AbstractMatrixChain
from .transitions import Transitions, horizon_of


class OrdinalChain(AbstractMatrixChain):
    """Jumps of all sizes, small ones more often, with a discretised Gaussian as reference.

    Towards the centre the rate from i to j is exp(−(|i − j| − 1)²/reach²); outwards it follows by
    detailed balance with π_j ∝ exp(−(j + 1 − S/2)²/(2 spread²)). For 256 levels the defaults are
    the paper's: reach 6 and spread 512. The horizon is ten relaxation times unless given.
    """

    data: Finite
    transitions: Transitions
    stationary: Array
    chunk: int | None = eqx.field(static=True, default=None)

    def __init__(
        self,
        data: Finite,
        *,
        reach: float | None = None,
        spread: float | None = None,
        horizon: float | None = None,
        chunk: int | None = None,
    ):
        check_chunk(chunk)
        reach = max(1.0, data.states * 6 / 256) if reach is None else reach
        spread = 2.0 * data.states if spread is None else spread
        positive(reach=reach, spread=spread)
        matrix, law = ordinal_rates(data.states, reach, spread)
        self.data = data
        self.transitions = Transitions(matrix, horizon_of(matrix, horizon))
        self.stationary = jnp.asarray(law, jnp.result_type(float))
        self.chunk = chunk


def ordinal_rates(states: int, reach: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """The rate matrix and its stationary law."""
    i = np.arange(states)
    log_law = -((i + 1 - states / 2) ** 2) / (2 * spread**2)
    towards = np.exp(-(((np.abs(i[:, None] - i[None, :]) - 1) / reach) ** 2))
    outwards = towards * np.exp(log_law[None, :] - log_law[:, None])
    # Of two levels equally far from the centre, the lower one jumps "towards".
    far = 2 * np.abs(i - (states - 1) / 2) - 0.5 * (i > (states - 1) / 2)
    rates = np.where(far[:, None] > far[None, :], towards, outwards) * (1 - np.eye(states))
    law = np.exp(log_law - log_law.max())
    return rates - np.diag(rates.sum(1)), law / law.sum()
