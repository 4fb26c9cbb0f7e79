"""Products: each factor by its own sampler, in turn."""

import jax

from .._types import Point, Time
from ..processes import Chain, ImmigrationDeath, Process, ProductProcess, SquareRoot
from ..processes.product import AbstractProduct
from .base import Sampler, default_sampler
from .euler import Euler


class Alternating(Sampler):
    """Each factor of a product takes a whole step by its own sampler, the others held meanwhile.

    Each sees what those before it have become; in what order is drawn anew at every step, one or
    its reverse, which makes the whole of weak order two where all samplers are. It costs as many
    score evaluations as all of them together.
    """

    samplers: tuple[Sampler, ...]

    def step(self, key, at, x, tau, next_tau):
        process = at(tau)
        if not isinstance(process, AbstractProduct) or len(process.speeds) != len(self.samplers):
            raise TypeError("sampler: Alternating needs a product of as many factors as samplers")
        speeds, (order_key, *keys) = process.speeds, jax.random.split(key, 1 + len(x))

        def along(x: Point, order) -> Point:
            for i in order:
                y = self.samplers[i].step(
                    keys[i], _held(at, x, i, speeds[i]), x[i], speeds[i] * tau, speeds[i] * next_tau
                )
                x = (*x[:i], y, *x[i + 1 :])
            return x

        order = tuple(range(len(x)))
        forwards = jax.random.bernoulli(order_key)
        return jax.lax.cond(forwards, lambda x: along(x, order), lambda x: along(x, order[::-1]), x)


def _held(at, x: Point, i: int, speed: float):
    """Factor i as a process in its own time, the others held at x."""

    def own(tau: Time):
        return at(tau / speed).conditional(x)[i]

    return own


@default_sampler.register(ProductProcess)
def _(process):
    """Euler's step, but where a factor has one that is far better: counts, positive numbers."""
    if not _outgrows_euler(process):
        return Euler()
    # The bridge of chains needs more than a score of one factor.
    return Alternating(
        tuple(
            Euler() if isinstance(factor, Chain) else default_sampler(factor)
            for factor in process.factors
        )
    )


def _outgrows_euler(process: Process) -> bool:
    if isinstance(process, ProductProcess):
        return any(map(_outgrows_euler, process.factors))
    return isinstance(process, ImmigrationDeath | SquareRoot)
