"""An upsampling network that starts from the small image."""

import equinox as eqx
import jax
import jax.numpy as jnp

from ..networks import Stochastic


class Anchored(Stochastic):
    """A network for `PriorLogistic`, plus (1 − e^{−τ/relaxation}) times the small image, enlarged.

    The place of a pixel's law is that of x times e^{−τ/relaxation}, plus what the network says. So
    before anything is learned it lies between x and a smooth image, and not between x and grey;
    to learn the way from there is what takes weights.
    """

    network: Stochastic
    relaxation: float = eqx.field(static=True)

    def __call__(self, inputs, tau, given=None, present=1.0, key=None):
        output = self.network(inputs, tau, given, present, key)
        smooth = jax.image.resize(given["small"], output.shape[:-1], "cubic")
        share = -jnp.expm1(-jnp.asarray(tau) / self.relaxation)
        return output.at[..., 0].add(present * share * smooth)
