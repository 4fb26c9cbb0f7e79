"""Units of likelihoods."""

import math

from jaxtyping import Array, Float

from .._checks import at_least


def bits_per_dimension(nats: Float[Array, " n"], coordinates: int) -> Float[Array, " n"]:
    """−log₂ p a coordinate, from log p of points (or a bound on it) in nats.

    Lower is better; of a lower bound on log p it is an upper bound.
    """
    at_least(1, coordinates=coordinates)
    return -nats / (coordinates * math.log(2))
