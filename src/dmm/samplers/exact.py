"""Samplers of jump processes without an error in time."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..processes import AbsorbingChain, Jump, Process, Reverse
from ..processes.coordinates import row_of, whole
from ..processes.jump import draw_states
from ..spaces import Finite
from .base import Sampler

MOST_POINTS = 4096  # that `Uniformisation` will look at to bound the rates


class Uniformisation(Sampler):
    """Exact simulation of a chain on a small set, whatever the grid.

    Candidate jumps come at a constant rate, `margin` times the largest exit rate of any point at
    either end of the step; each is taken with probability (exit rate)/(that rate). Should the
    exit rate exceed it in between, sampling stops with an error.
    """

    margin: float = eqx.field(static=True, default=2.0)

    def step(self, key, at, x, tau, next_tau):
        process = at(tau)
        if not isinstance(process, Jump) or not isinstance(process.space, Finite):
            raise TypeError("sampler: Uniformisation simulates chains on finite sets; use Euler()")
        points = _every_point(process.space)

        def exit_rate(tau, x):
            return jnp.sum(whole(at(tau).rates(x)))

        ends = jnp.stack([tau, next_tau])
        rates = jax.vmap(lambda t: jax.vmap(lambda y: exit_rate(t, y))(points))(ends)
        bound = self.margin * jnp.max(rates)
        sign, length = jnp.sign(next_tau - tau), jnp.abs(next_tau - tau)

        def going(carry):
            return carry[1] < length

        def event(carry):
            x, elapsed, key = carry
            key, jump_key, pick_key, next_key = jax.random.split(key, 4)
            # In a batch, a draw that is done goes through the motions till the last is.
            process = at(tau + sign * jnp.minimum(elapsed, length))
            rates, moves = whole(process.rates(x)).ravel(), process.moves(x)
            total = eqx.error_if(
                jnp.sum(rates),
                jnp.sum(rates) > bound,
                "sampler: the exit rate exceeds the bound of Uniformisation; raise `margin` or "
                "take more steps",
            )
            which = draw_states(pick_key, rates)
            d, k = which // moves.shape[-1], which % moves.shape[-1]
            moved = x.ravel().at[d].set(moves.reshape(x.size, -1)[d, k]).reshape(x.shape)
            x = jnp.where(jax.random.uniform(jump_key) * bound < total, moved, x)
            return x, elapsed + jax.random.exponential(next_key) / bound, key

        key, first_key = jax.random.split(key)
        first = jax.random.exponential(first_key) / bound
        return jax.lax.while_loop(going, event, (x, first, key))[0]


class FirstHitting(Sampler):
    """Exact simulation of an absorbing chain, a network evaluation for each mask that falls.

    When masks fall does not depend on what is under them: of n masks at τ the next falls at τ′
    with 1 − e^{−τ′} = (1 − e^{−τ}) u^{1/n}, u uniform. One step over all times serves best. Of the
    model only what is under a mask counts: a total rate that guidance or a free parameterisation
    makes other than that of the chain is not followed.
    """

    def step(self, key, at, x, tau, next_tau):
        base = _masking(at(tau), "FirstHitting")

        def fall(tau, x, key):
            n = jnp.sum(x == base.mask)
            u = jax.random.uniform(key, minval=jnp.finfo(float).tiny)
            log_share = jnp.log(-jnp.expm1(-tau)) + jnp.log(u) / jnp.maximum(n, 1)
            # 1 − share by expm1: a share that rounds to 1 must not send the time to infinity.
            return jnp.where(n > 0, jnp.minimum(tau, -jnp.log(-jnp.expm1(log_share))), -1.0)

        def going(carry):
            return carry[1] > jnp.maximum(next_tau, 0.0)

        def event(carry):
            x, tau, key = carry
            key, where_key, what_key, fall_key = jax.random.split(key, 4)
            which = draw_states(where_key, (x == base.mask).ravel().astype(float))
            law = row_of(at(tau).rates(x), x, which)
            what = draw_states(what_key, law).astype(x.dtype)
            x = x.ravel().at[which].set(what).reshape(x.shape)
            return x, fall(tau, x, fall_key), key

        key, fall_key = jax.random.split(key)
        return jax.lax.while_loop(going, event, (x, fall(tau, x, fall_key), key))[0]


def _masking(process: Process, name: str) -> AbsorbingChain:
    base = process.base if isinstance(process, Reverse) else None
    if not isinstance(base, AbsorbingChain):
        raise TypeError(f"sampler: {name} runs generative processes of AbsorbingChain; use Euler()")
    return base


def _every_point(space: Finite) -> np.ndarray:
    size = int(np.prod(space.shape, dtype=int))
    if space.states**size > MOST_POINTS:
        raise ValueError(
            f"sampler: Uniformisation bounds rates over all points, and {space} has more than "
            f"{MOST_POINTS}; use Bridge() or Trapezoidal()"
        )
    points = np.array(list(itertools.product(range(space.states), repeat=size)), np.int32)
    return points.reshape(-1, *space.shape)
