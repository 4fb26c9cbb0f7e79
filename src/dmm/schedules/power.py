"""Times evenly spaced in a root of τ."""

import equinox as eqx

from ..processes import AbstractWrightFisher, ImmigrationDeath, Jacobi, SquareRoot
from .base import Schedule, default_schedule


class Power(Schedule):
    """τ(t) = (τ_min^{1/p} + t (τ_max^{1/p} − τ_min^{1/p}))^p.

    Down to a first time far below the scale of most data, with few of the times spent on the way.
    """

    start: float = eqx.field(static=True)
    stop: float = eqx.field(static=True)
    power: float = eqx.field(static=True, default=7.0)
    t_min: float = eqx.field(static=True, default=0.0)

    def __check_init__(self):
        if not 0 < self.start < self.stop:
            raise ValueError(f"start, stop: need 0 < start < stop, got {self.start}, {self.stop}")
        if not self.power >= 1:
            raise ValueError(f"power: must be at least 1, got {self.power}")

    def _ends(self):
        return self.start ** (1 / self.power), self.stop ** (1 / self.power)

    def tau(self, t):
        first, last = self._ends()
        return (first + t * (last - first)) ** self.power

    def t(self, tau):
        first, last = self._ends()
        return (tau ** (1 / self.power) - first) / (last - first)


# Data may be small: about as small as τ_min is what a model can tell apart.


@default_schedule.register(AbstractWrightFisher)
@default_schedule.register(SquareRoot)
def _(process):
    return Power(1e-9, process.horizon)


@default_schedule.register(Jacobi)
def _(process):
    return Power(1e-7, process.horizon)  # next to 1 nothing smaller can be written


@default_schedule.register(ImmigrationDeath)
def _(process):
    return Power(1e-5, process.horizon, 3.0)  # counts near 1/τ_min are seen to the last unit
