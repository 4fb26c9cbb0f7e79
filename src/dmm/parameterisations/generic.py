"""Parameterisations for any process."""

import jax
import jax.numpy as jnp

from ..processes import Jump, Noising, ProductProcess, Simulated
from ..processes.base import Zero
from .base import Parameterisation, default_parameterisation


class PredictScore(Parameterisation):
    """The network's output is the score itself: any process, no preconditioning."""

    def inputs(self, process, x, tau):
        return process.space.features(x)

    def outputs(self, process, x):
        return Zero(process)(x)

    def score(self, process, output, x, tau):
        return output


class Relative(Parameterisation):
    """s = ∇log π + output/√(e^{cτ} − 1), π the reference: any diffusion reversible w.r.t. it.

    c = 10/horizon: the horizon is taken as ten relaxation times.
    """

    def inputs(self, process, x, tau):
        return process.space.features(x)

    def outputs(self, process, x):
        return Zero(process)(x)

    def score(self, process, output, x, tau):
        scale = jax.lax.rsqrt(jnp.expm1(10.0 / process.horizon * tau))
        return process.space.gradient(process.reference.log_prob, x) + scale * output


class Factors(Parameterisation):
    """Each factor of a product by its own parameterisation, at its own speed."""

    factors: tuple[Parameterisation, ...]

    def _each(self, process: ProductProcess):
        return zip(self.factors, process.factors, process.speeds, strict=True)

    def inputs(self, process: ProductProcess, x, tau):
        terms = zip(self._each(process), x, strict=True)
        return tuple(head.inputs(p, y, c * tau) for (head, p, c), y in terms)

    def outputs(self, process: ProductProcess, x):
        terms = zip(self._each(process), x, strict=True)
        return tuple(head.outputs(p, y) for (head, p, _), y in terms)

    def score(self, process: ProductProcess, output, x, tau):
        terms = zip(self._each(process), output, x, strict=True)
        return tuple(head.score(p, out, y, c * tau) for (head, p, c), out, y in terms)


@default_parameterisation.register(Noising)
def _(process):
    return Relative()


@default_parameterisation.register(Jump)
@default_parameterisation.register(Simulated)
def _(process):
    return PredictScore()


@default_parameterisation.register(ProductProcess)
def _(process):
    return Factors(tuple(default_parameterisation(factor) for factor in process.factors))
