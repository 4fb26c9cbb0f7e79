"""Denoising with targets of less noise, averaged over the batch."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import at_least
from .._types import Key, Point, Scalar, Score, Time
from ..processes import HasDensity, Process, RotationalBrownian, Tractable, supports
from ..processes.rotation_kernel import log_kernel, slope
from ..spaces.rotations import angle, log_quaternion, to_quaternion, turn_between

BATCH = "batch"  # the mapped axis of the points of a batch


class Pooled(eqx.Module):
    """I_DSM, the target averaged over points of the batch that x may have come from.

    Given x and the set S of the first `size` points of the batch, and its own x_0, that is one of S
    with probability ∝ q(x | x_0), so

        E[target | x, S] = Σ_S q(x | x_j) target(x, x_j) / Σ_S q(x | x_j):

    exactly the minimiser of `denoising`, with less noise where kernels of several points overlap.
    It costs `size` densities and targets a point, and what is left of the noise is shared by all:
    take much more than a few. It needs the batch as a mapped axis, named "batch", as in `fit`; with
    `accumulate` it is a part of one. For fresh independent points: a model without observations,
    each example noised once.
    """

    size: int = eqx.field(static=True, default=1024)

    def __check_init__(self):
        at_least(1, size=self.size)

    def __call__(
        self,
        process: Tractable,
        score_fn: Callable[[Point, Time], Score],
        key: Key,
        x0: Point,
        tau: Time,
    ) -> Scalar:
        noised = process.noise(key, x0, tau)
        x, own = noised.x, noised.target
        log_own, _ = log_density_and_target(process, x, x0, tau)
        others = jax.tree.map(lambda leaf: jax.lax.all_gather(leaf, BATCH)[: self.size], x0)
        logs, targets = jax.vmap(lambda y: log_density_and_target(process, x, y, tau))(others)
        itself = jnp.arange(len(logs)) == jax.lax.axis_index(BATCH)  # counts once
        logs = jnp.append(jnp.where(itself, -jnp.inf, logs), log_own)
        weights = jax.nn.softmax(logs)

        def mean(one, each):
            wide = weights[:-1].reshape(-1, *[1] * one.ndim)
            # A point that cannot have led to x has no target.
            return weights[-1] * one + jnp.sum(jnp.where(wide > 0, wide * each, 0.0), 0)

        return process.phi(x, jax.tree.map(mean, own, targets), score_fn(x, tau))


@functools.singledispatch
def log_density_and_target(
    process: Process, x: Point, x0: Point, tau: Time
) -> tuple[Scalar, Score]:
    """log q_τ(x | x_0), up to what x_0 does not change, and the target of a draw that led there."""
    if not supports(process, HasDensity):
        raise ValueError(
            f"objective: Pooled needs a transition density, {type(process).__name__} has none; "
            "pass objective=dmm.denoising"
        )

    def log_density(y):
        return process.log_transition(y, x0, tau)

    return log_density(x), process.mean(process.score(log_density, x))


@log_density_and_target.register(RotationalBrownian)
def _(process, x, x0, tau):
    """In closed form: derivatives through the series of the kernel lose digits."""
    omega = log_quaternion(turn_between(to_quaternion(x0), to_quaternion(x)))
    alpha = angle(omega)
    return log_kernel(alpha, tau), slope(alpha, tau) * omega
