"""Rates that are constant or linear in t."""

import equinox as eqx
import jax.numpy as jnp

from .base import Schedule


class ConstantRate(Schedule):
    """τ(t) = rate · t."""

    horizon: float = eqx.field(static=True)
    t_min: float = eqx.field(static=True, default=1e-3)

    def tau(self, t):
        return self.horizon * t

    def t(self, tau):
        return tau / self.horizon


class Linear(Schedule):
    """The paper's: β(t) = β_min + (β_max − β_min)t, so τ(t) = β_min t + ½(β_max − β_min)t²."""

    beta_max: float = eqx.field(static=True)
    beta_min: float = eqx.field(static=True, default=1e-3)
    t_min: float = eqx.field(static=True, default=5e-3)

    def __check_init__(self):
        if not 0 < self.beta_min <= self.beta_max:
            raise ValueError(f"beta_min: must lie in (0, beta_max], got {self.beta_min}")

    def tau(self, t):
        return self.beta_min * t + 0.5 * (self.beta_max - self.beta_min) * t**2

    def t(self, tau):
        # The root in the form that does not cancel at small τ.
        slope = self.beta_max - self.beta_min
        return 2 * tau / (self.beta_min + jnp.sqrt(self.beta_min**2 + 2 * slope * tau))
