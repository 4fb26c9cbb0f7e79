"""Samplers simulate any process: noising, generative, auxiliary."""

import abc
import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Key, Point, Time
from ..processes import AbstractDiffusion, Process, supports

At = Callable[[Time], Process]  # a time-inhomogeneous process: τ → the process frozen at τ


class Sampler(eqx.Module):
    """One step of a simulation. Times may run up (noising) or down (generation)."""

    @abc.abstractmethod
    def step(self, key: Key, at: At, x: Point, tau: Time, next_tau: Time) -> Point:
        """A draw at `next_tau` given x at `tau`."""


def simulate(
    key: Key, sampler: Sampler, at: At, x: Point, taus: Array, *, path: bool = False
) -> Point:
    """The state at the end of the time grid `taus`; with `path`, at every time of it, stacked."""

    def body(x, step):
        key, tau, next_tau = step
        x = sampler.step(key, at, x, tau, next_tau)
        return x, x if path else None

    keys = jax.random.split(key, len(taus) - 1)
    last, states = jax.lax.scan(body, x, (keys, taus[:-1], taus[1:]))
    if not path:
        return last
    return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), x, states)


@functools.singledispatch
def default_sampler(process: Process) -> Sampler:
    """The sampler that `sample` chooses for a noising process."""
    raise ValueError(f"process: no default sampler for {type(process).__name__}; pass sampler=")


def diffusion_only(process: Process, sampler: Sampler) -> None:
    """A clear error for a sampler that needs a drift."""
    if not supports(process, AbstractDiffusion):
        raise TypeError(
            f"sampler: {type(sampler).__name__} simulates diffusions; for "
            f"{type(process).__name__} use Euler()"
        )
