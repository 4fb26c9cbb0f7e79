"""Inputs that show a network the functions on rotations."""

import equinox as eqx
import jax.numpy as jnp

from .._checks import at_least
from ..processes import AbstractRotationalBrownian
from ..spaces.representations import representations
from .base import Parameterisation, default_parameterisation
from .generic import Relative


class WithHarmonics(Parameterisation):
    """Another parameterisation of a process on SO(3) whose inputs are joined by the entries of the
    irreducible representations D²(x), …, D^degree(x): what waves are on circles.

    Networks learn slowly what varies fast. And a law that a finite group leaves as it is differs
    from the uniform one by polynomials of degree 3 at least for the group of the tetrahedron, 4 for
    the cube's, 6 for the icosahedron's: networks hardly find these in the nine entries of x. Each
    degree is damped by e^{−½l(l + 1)τ}: that is what noise leaves of it.
    """

    head: Parameterisation
    degree: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        at_least(2, degree=self.degree)

    def inputs(self, process: AbstractRotationalBrownian, x, tau):
        parts = [jnp.ravel(self.head.inputs(process, x, tau))]
        for order, matrix in enumerate(representations(x, self.degree), 1):
            if order > 1:  # the first are the entries of x
                size = (2 * order + 1) ** 0.5 * jnp.exp(-0.5 * order * (order + 1) * tau)
                parts.append(size * matrix.ravel())
        return jnp.concatenate(parts)

    def outputs(self, process, x):
        return self.head.outputs(process, x)

    def score(self, process, output, x, tau):
        return self.head.score(process, output, x, tau)


@default_parameterisation.register(AbstractRotationalBrownian)
def _(process):
    return WithHarmonics(Relative())
