"""Features of time."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Time

FREQUENCIES = tuple(0.25 * 2 ** (0.5 * j) for j in range(8))
TIME_FEATURES = 2 * len(FREQUENCIES) + 1


def time_features(tau: Time) -> Float[Array, " features"]:
    """log τ and sinusoids of it: times span decades, and matter by their ratio."""
    u = jnp.log(jnp.asarray(tau))
    phases = jnp.asarray(FREQUENCIES, u.dtype) * u
    return jnp.concatenate([u.reshape(1) / 5, jnp.sin(phases), jnp.cos(phases)])
