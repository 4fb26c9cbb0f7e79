"""exp(τB) of a rate matrix, without a negative entry."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import positive
from .._types import Time

DIRECT = 32  # states up to which exp(τB) is computed on the spot
TERMS = 12  # of the exponential series, after halving τ until λτ ≤ 1: error 1/13!
SMALLEST = 1e-3  # λτ below which three terms of the series suffice: error 1e-9/6


class Transitions(eqx.Module):
    """P(τ) = exp(τB) at any τ up to the horizon, accurate entry by entry in float32.

    With λ the largest exit rate, K = I + B/λ has no negative entry, and exp(τB) = e^{−λτ} e^{λτK}
    is a sum of such, as are its squares: nothing cancels. Up to 32 states this is done on the
    spot. Beyond, log P is kept at times a fixed part of an octave apart, found by squaring in
    double precision, and interpolated by cubics in log τ, in which it is smooth down to τ = 0.
    """

    rates: Float[Array, "S S"]  # B without its diagonal
    fastest: float = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    octave: int = eqx.field(static=True)  # table entries an octave
    table: Float[Array, "n S S"] | None  # log P
    squared: Float[Array, "S S"] | None  # B², for times below the table's

    def __init__(self, matrix: np.ndarray, horizon: float):
        rates = _off_diagonal(np.asarray(matrix, np.float64))
        states = len(rates)
        self.rates = jnp.asarray(rates, jnp.result_type(float))
        self.fastest = float(rates.sum(1).max())
        self.horizon = float(horizon)
        self.octave = 12 if states <= 256 else 6
        self.table = self.squared = None
        if states > DIRECT:
            generator = rates - np.diag(rates.sum(1))
            self.squared = jnp.asarray(generator @ generator, jnp.result_type(float))
            table = _log_table(rates, self.fastest, self.horizon, self.octave)
            self.table = jnp.asarray(table, jnp.float32)

    def __call__(self, tau: Time) -> Float[Array, "S S"]:
        """P(τ): the row of a state is the law at τ of a chain that starts there."""
        tau = jnp.asarray(tau, jnp.result_type(float))
        if self.table is None or self.squared is None:
            return self._on_the_spot(tau)
        return self._interpolated(self.table, self.squared, tau)

    def generator(self) -> Float[Array, "S S"]:
        """B, its rows summing to zero in the precision at hand."""
        return self.rates - jnp.diag(jnp.sum(self.rates, 1))

    def _on_the_spot(self, tau):
        one = jnp.eye(len(self.rates), dtype=self.rates.dtype)
        halvings = max(0, math.ceil(math.log2(self.fastest * self.horizon)))
        h = self.fastest * tau / 2**halvings
        jump, series = one + self.generator() / self.fastest, one
        for n in range(TERMS, 0, -1):
            series = one + (h / n) * _product(jump, series)
        p = _stochastic(series)
        for _ in range(halvings):
            p = _stochastic(_product(p, p))
        return p

    def _interpolated(self, table: Array, squared: Array, tau):
        smallest = SMALLEST / self.fastest
        at = self.octave * jnp.log2(jnp.maximum(tau, smallest) / smallest)
        first = jnp.clip(jnp.floor(at).astype(int) - 1, 0, len(table) - 4)
        f = jnp.minimum(at - first, 3.0)
        weights = (
            -(f - 1) * (f - 2) * (f - 3) / 6,
            f * (f - 2) * (f - 3) / 2,
            -f * (f - 1) * (f - 3) / 2,
            f * (f - 1) * (f - 2) / 6,
        )
        # Term by term: as a sum over a slice of four, XLA takes hundreds of times as long on CPUs.
        terms = [
            weight * jax.lax.dynamic_index_in_dim(table, first + i, keepdims=False)
            for i, weight in enumerate(weights)
        ]
        tabulated = jnp.exp(sum(terms))
        b = self.generator()
        few = jnp.eye(len(b), dtype=b.dtype) + tau * b + 0.5 * tau**2 * squared
        return jnp.where(tau < smallest, few, tabulated)


def check_rates(matrix, states: int) -> np.ndarray:
    """A rate matrix as an array; a `ValueError` names what is wrong with it."""
    array = np.asarray(matrix, np.float64)
    if array.shape != (states, states):
        raise ValueError(
            f"matrix: expected shape ({states}, {states}), a row a state, got {array.shape}"
        )
    if not np.all(np.isfinite(array)):
        raise ValueError("matrix: holds NaN or infinity; repair it")
    if np.any(_off_diagonal(array) < 0):
        i, j = np.argwhere(_off_diagonal(array) < 0)[0]
        raise ValueError(f"matrix: the rate from {i} to {j} is negative; rates are at least 0")
    sums, scale = array.sum(1), np.abs(array).max()
    if np.any(np.abs(sums) > 1e-5 * scale):
        i = int(np.argmax(np.abs(sums)))
        raise ValueError(
            f"matrix: row {i} sums to {sums[i]:.3g}, not to 0; set its diagonal to minus the sum "
            "of its other entries"
        )
    return array


def stationary(matrix: np.ndarray) -> np.ndarray:
    """The probabilities π with πB = 0; a `ValueError` unless there is exactly one such law."""
    rates = _off_diagonal(np.asarray(matrix, np.float64))
    generator = rates - np.diag(rates.sum(1))
    values = np.abs(np.linalg.eigvals(generator))
    if np.sum(values < 1e-9 * values.max()) != 1:
        raise ValueError(
            "matrix: the chain has no unique stationary law; let every state lead to one common set"
        )
    system = np.vstack([generator.T, np.ones(len(generator))])
    law = np.linalg.lstsq(system, np.eye(len(system))[-1], rcond=None)[0]
    if law.min() < 1e-14:
        raise ValueError(
            f"matrix: state {int(law.argmin())} is left for good, and the reference could not tell "
            "what it was; give it a rate back, or use AbsorbingChain for masks"
        )
    return law / law.sum()


def relaxation_time(matrix: np.ndarray) -> float:
    """1/gap: the slowest part of a law dies as e^{−gap τ}."""
    rates = _off_diagonal(np.asarray(matrix, np.float64))
    decay = np.sort(-np.linalg.eigvals(rates - np.diag(rates.sum(1))).real)
    return 1 / float(decay[1])


def horizon_of(matrix: np.ndarray, horizon: float | None) -> float:
    """A horizon as given, or ten relaxation times."""
    if horizon is None:
        return 10 * relaxation_time(matrix)
    positive(horizon=horizon)
    return float(horizon)


def _off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix * (1 - np.eye(len(matrix)))


def _stochastic(p):
    """Rows that sum to one: squaring would double what rounding leaves, again and again."""
    return p / jnp.sum(p, 1, keepdims=True)


def _product(a, b):
    return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)


def _log_table(rates: np.ndarray, fastest: float, horizon: float, octave: int) -> np.ndarray:
    """log exp(τB) at τ = SMALLEST/λ · 2^{k/octave}, k = 0, 1, … past the horizon."""
    one = np.eye(len(rates))
    jump = one + (rates - np.diag(rates.sum(1))) / fastest
    octaves = math.ceil(math.log2(fastest * horizon / SMALLEST)) + 1
    table = np.empty((octaves * octave, *rates.shape), np.float32)
    for k in range(octave):
        h, p = SMALLEST * 2 ** (k / octave), one
        for n in range(6, 0, -1):
            p = one + (h / n) * (jump @ p)
        for i in range(octaves):
            p = p / p.sum(1, keepdims=True)
            with np.errstate(divide="ignore"):
                table[i * octave + k] = np.maximum(np.log(p), -700.0)
            p = p @ p
    return table
