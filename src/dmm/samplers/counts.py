"""Leaps of counts: what joined since an earlier time leaves, what was lost comes back."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Key, Time
from ..processes import ImmigrationDeath, Process, Reverse
from ..processes.draws import binomial, poisson
from ..spaces.counts import MOST
from .base import Sampler, default_sampler


class CountBridge(Sampler):
    """Steps of immigration and death run backwards, by the exact law given who is new and who died.

    At τ a score says how many of x are newcomers on average, M̂, and how many of the data have died,
    D̂. At an earlier time σ each newcomer was there with probability
    e^{−(τ−σ)}(1 − e^{−σ})/(1 − e^{−τ}), each of the dead with probability
    (e^{−σ} − e^{−τ})/(1 − e^{−τ}), and of newcomers that have died since there were
    Poisson(λ(1 − e^{−σ})(1 − e^{−(τ−σ)})). So binomially many of x leave and a Poisson number
    comes: never below 0, and exact in a step of any length where M is binomial and D Poisson given
    x, as for Poisson data. By default two score evaluations a step: after half of it, at σ, the
    rest is made with 2M̂(σ) less what such a law expects of M there, and so for D (the trapezoidal
    rule of Anderson and Mattingly): of weak order two. With `correct` false one, and order one.
    """

    correct: bool = eqx.field(static=True, default=True)

    def step(self, key, at, x, tau, next_tau):
        process = _base(at(tau), self)
        seen = _who(at(tau), x, tau)
        if not self.correct:
            return _leap(key, process, x, seen, tau, next_tau)[0]
        first_key, second_key = jax.random.split(key)
        middle = 0.5 * (tau + next_tau)
        y, left = _leap(first_key, process, x, seen, tau, middle)
        ahead = _who(at(middle), y, middle)
        corrected = tuple(jnp.maximum(2 * b - a, 0.0) for a, b in zip(left, ahead, strict=True))
        return _leap(second_key, process, y, corrected, middle, next_tau)[0]


def _base(process: Process, sampler: Sampler) -> ImmigrationDeath:
    if not isinstance(process, Reverse) or not isinstance(process.base, ImmigrationDeath):
        raise TypeError(
            f"sampler: {type(sampler).__name__} runs generative processes of ImmigrationDeath; use "
            "Euler()"
        )
    return process.base


def _who(generative: Process, x: Array, tau: Time) -> tuple[Array, Array]:
    """Of x at τ, the mean numbers of newcomers and of data that died."""
    rates, births = generative.rates(x), generative.base.births()
    gone = -jnp.expm1(-tau)
    new = jnp.minimum(gone * rates[..., 1], x.astype(rates.dtype))
    return new, jnp.expm1(tau) * jnp.maximum(rates[..., 0] - births * gone, 0.0)


def _leap(key: Key, process: ImmigrationDeath, x: Array, seen, tau: Time, earlier: Time):
    """x at an earlier time, and what is expected there of newcomers and dead given the leap."""
    new, dead = seen
    births, n = process.births(), x.astype(new.dtype)
    leave_key, come_key = jax.random.split(key)
    gone, gone_before = -jnp.expm1(-tau), -jnp.expm1(-earlier)
    leaves = jnp.expm1(earlier - tau) / jnp.expm1(-tau)
    returns = jnp.exp(-earlier) * leaves
    share = jnp.minimum(new / jnp.maximum(n, 1.0), 1.0)
    left = binomial(leave_key, n, share * leaves)
    forgotten = births * gone_before * gone * leaves
    come = poisson(come_key, jnp.minimum(forgotten + returns * dead, MOST))
    tiny = jnp.finfo(n.dtype).tiny
    stayed = (n - left) * share * (1 - leaves) / jnp.maximum(1 - share * leaves, tiny)
    rejoined = come * forgotten / jnp.maximum(forgotten + returns * dead, tiny)
    y = jnp.minimum(x - left.astype(x.dtype), MOST - come.astype(x.dtype)) + come.astype(x.dtype)
    return y, (stayed + rejoined, (1 - returns) * dead)


@default_sampler.register(ImmigrationDeath)
def _(process):
    return CountBridge()
