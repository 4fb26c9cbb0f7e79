"""The time change: t ∈ [0, 1] to a process's own time τ. `t` appears here and nowhere else."""

import abc
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Key, Time
from ..processes import Noising


class Schedule(eqx.Module):
    """An increasing map t → τ, used on [t_min, 1].

    It is given by its integral; the rate is its derivative. It is also a law of times, that of
    τ(t) for uniform t, with density 1/rate. So to draw training times by importance is to draw
    them from another schedule than the one sampled with, and the weights stay exact.
    """

    t_min: eqx.AbstractVar[float]

    @abc.abstractmethod
    def tau(self, t: Time) -> Time:
        """τ(t)."""

    @abc.abstractmethod
    def t(self, tau: Time) -> Time:
        """The inverse of `tau`."""

    @property
    def tau_min(self) -> Float[Array, ""]:
        """The least time a score is learned at; below it the score is frozen."""
        return jnp.asarray(self.tau(self.t_min))

    @property
    def tau_max(self) -> Float[Array, ""]:
        """The time that generation starts from."""
        return jnp.asarray(self.tau(1.0))

    def rate(self, t: Time) -> Float[Array, ""]:
        """dτ/dt."""
        return jax.grad(lambda t: self.tau(t))(jnp.asarray(t, jnp.result_type(t, float)))

    def draw(self, key: Key, n: int) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """n times, stratified, and weights w so that mean(w f(τ)) is unbiased for ∫f dτ."""
        strata = (jnp.arange(n) + jax.random.uniform(key, (n,))) / n
        t = self.t_min + (1 - self.t_min) * strata
        return jnp.asarray(jax.vmap(self.tau)(t)), (1 - self.t_min) * jax.vmap(self.rate)(t)

    def grid(self, steps: int) -> Float[Array, " times"]:
        """Times to sample at: evenly spaced in t from 1 down to t_min, and then τ = 0."""
        t = jnp.linspace(1.0, self.t_min, steps + 1)
        return jnp.append(jax.vmap(self.tau)(t), 0.0)


@functools.singledispatch
def default_schedule(process: Noising) -> Schedule:
    """The schedule that `fit` chooses for a process."""
    raise ValueError(f"process: no default schedule for {type(process).__name__}; pass schedule=")
