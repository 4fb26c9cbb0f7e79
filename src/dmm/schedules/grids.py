"""Other time grids to sample on than the schedule's own."""

import equinox as eqx
import jax.numpy as jnp

from .base import Schedule


class PowerGrid(eqx.Module):
    """Evenly spaced in τ^{1/power}, then τ = 0: the larger the power, the more steps near 0."""

    power: float = eqx.field(static=True, default=7.0)

    def __call__(self, schedule: Schedule, steps: int):
        ends = jnp.stack([schedule.tau_max, schedule.tau_min]) ** (1 / self.power)
        return jnp.append(jnp.linspace(ends[0], ends[1], steps + 1) ** self.power, 0.0)


class ScheduleGrid(eqx.Module):
    """The schedule's own: evenly spaced in t."""

    def __call__(self, schedule: Schedule, steps: int):
        return schedule.grid(steps)
