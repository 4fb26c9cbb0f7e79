"""Inputs that show a network fine detail."""

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import at_least
from ..processes import SphericalBrownian, ToroidalBrownian
from ..schedules.weightings import noise_variance
from .base import Parameterisation, default_parameterisation
from .generic import Relative


class WithWaves(Parameterisation):
    """Another parameterisation whose inputs u are joined by sin(2ᵏu) and cos(2ᵏu), k ≤ octaves.

    Networks learn slowly what varies fast; these inputs vary fast already. Each octave is damped
    by e^{−½4ᵏv(τ)}, v the variance of the noise: that is what noise leaves of such a wave.
    """

    head: Parameterisation
    octaves: int = eqx.field(static=True, default=6)

    def __check_init__(self):
        at_least(1, octaves=self.octaves)

    def inputs(self, process, x, tau):
        plain = self.head.inputs(process, x, tau)
        frequencies = 2.0 ** jnp.arange(1, self.octaves + 1)
        damping = jnp.exp(-0.5 * frequencies**2 * noise_variance(process, tau))

        def waves(u):
            phases = frequencies[None] * u.ravel()[:, None]
            both = jnp.stack([jnp.sin(phases), jnp.cos(phases)])
            return jnp.concatenate([u.ravel(), (damping[None, None] * both).ravel()])

        return jax.tree.map(waves, plain)

    def outputs(self, process, x):
        return self.head.outputs(process, x)

    def score(self, process, output, x, tau):
        return self.head.score(process, output, x, tau)


@default_parameterisation.register(SphericalBrownian)
@default_parameterisation.register(ToroidalBrownian)
def _(process):
    return WithWaves(Relative())
