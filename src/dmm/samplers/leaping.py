"""Leaps of chains: rates held for the length of a step."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array

from ..processes import Jump, Process
from ..processes.coordinates import each, rowwise
from ..processes.jump import draw_states, hop, pick, rates_of
from ..spaces import Finite
from .base import Sampler


class TauLeaping(Sampler):
    """The paper's: every move of a coordinate happens a Poisson number of times a step.

    First order. For ordered states the jumps add up (and stay within the range); for categories,
    where a sum means nothing, a coordinate moves only if it jumped just once.
    """

    def step(self, key, at, x, tau, next_tau):
        process = _jumps(at(tau), self)
        space = process.space
        sums = isinstance(space, Finite) and space.ordered

        def leap(x, rates, key):
            moves = process.moves(x)
            number_key, key = jax.random.split(key)
            total = jnp.sum(rates, -1) * jnp.abs(next_tau - tau)
            number = jax.random.poisson(number_key, total)

            def jump(carry):
                i, moved = carry
                to = pick(moves, draw_states(jax.random.fold_in(key, i), rates))
                return i + 1, moved + jnp.where(i < number, to - x, 0)

            # All jumps start from x, so their sum takes one draw of a move for each.
            most = jnp.max(number)
            _, moved = jax.lax.while_loop(lambda c: c[0] < most, jump, (0, jnp.zeros_like(x)))
            if sums:
                return jnp.clip(x + moved, 0, space.states - 1)
            return jnp.where(number == 1, x + moved, x)

        return each(leap, x, rates_of(process, x), key=key)


class Trapezoidal(Sampler):
    """The θ-trapezoidal rule: second order, two score evaluations a step.

    A leap over θh with the rates μ at x; then, from where it led, one over (1 − θ)h with the rates
    α₁μ′ − α₂μ (where positive), α₁ = 1/(2θ(1 − θ)), α₂ = α₁ − 1, μ′ those at the point and time
    reached. A coordinate that has moved has other moves now, and takes α₁μ′ (to second order that
    is the same, and it is never negative). Where the jump of one coordinate cuts the rates of
    another to less than α₂/α₁ of what they were, the order there is one.
    """

    theta: float = eqx.field(static=True, default=0.5)

    def __check_init__(self):
        if not 0 < self.theta < 1:
            raise ValueError(f"theta: must lie between 0 and 1, got {self.theta}")

    def step(self, key, at, x, tau, next_tau):
        first_key, second_key = jax.random.split(key)
        process = _jumps(at(tau), self)
        h = jnp.abs(next_tau - tau)
        rates = rates_of(process, x)
        middle = hop(first_key, process, x, rates, self.theta * h)
        ahead = _jumps(at(tau + self.theta * (next_tau - tau)), self)
        a = 1 / (2 * self.theta * (1 - self.theta))
        stayed = middle == x
        corrected = rowwise(Partial(_corrected, a), stayed, rates, rates_of(ahead, middle))
        return hop(second_key, ahead, middle, corrected, (1 - self.theta) * h)


def _corrected(a: float, stayed: Array, before: Array, after: Array) -> Array:
    before = jnp.where(stayed[..., None], before, 0.0)
    return jnp.maximum(a * after - (a - 1) * before, 0.0)


def _jumps(process: Process, sampler: Sampler) -> Jump:
    if not isinstance(process, Jump):
        raise TypeError(
            f"sampler: {type(sampler).__name__} simulates jump processes; for "
            f"{type(process).__name__} use Euler()"
        )
    return process
