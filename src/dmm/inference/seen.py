"""What was simulated, to tell observations apart that no simulation resembles."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._types import Given
from ..model import Model
from ..networks import Observations

SLACK = 0.05  # by how much of its width a range may be left


class Seen(eqx.Module):
    """The ranges of the numbers of simulated observations, as they enter the network."""

    low: Any
    high: Any
    count: int = eqx.field(static=True)

    @classmethod
    def of(cls, model: Model, given: Given) -> "Seen":
        """The ranges over stacked observations."""
        encoded = _encoded(model, given)
        low = jax.tree.map(lambda leaf: jnp.min(leaf, 0), encoded)
        high = jax.tree.map(lambda leaf: jnp.max(leaf, 0), encoded)
        return cls(low, high, len(jax.tree.leaves(encoded)[0]))

    def outside(self, model: Model, given: Given) -> str | None:
        """What to say of observations outside the ranges: a model knows nothing there."""
        given, several = model.check_given(given)
        stacked = given if several else jax.tree.map(lambda leaf: leaf[None], given)
        far = jax.tree.map(_far, _encoded(model, stacked), self.low, self.high)
        out = np.concatenate(jax.tree.leaves(far), axis=1)
        rows, places = np.flatnonzero(out.any(1)), np.flatnonzero(out.any(0))
        if not len(rows):
            return None
        which = f"{len(rows)} of {len(out)} observations lie" if several else "the observation lies"
        return (
            f"given: {which} outside the range of the {self.count} simulations, in {len(places)} "
            f"of {out.shape[1]} numbers (the first is number {places[0]}); the simulator may be "
            "misspecified, and the posterior is not to be trusted there"
        )


def _far(leaf: jax.Array, low: jax.Array, high: jax.Array) -> np.ndarray:
    """Which numbers of stacked observations are out of range."""
    margin = SLACK * (high - low)
    out = (leaf < (low - margin)[None]) | (leaf > (high + margin)[None])
    return np.asarray(out).reshape(len(leaf), -1)


def _encoded(model: Model, stacked: Given) -> Given:
    assert model.observations is not None
    return _encode(model.observations, stacked)


@eqx.filter_jit
def _encode(observations: Observations, stacked: Given) -> Given:
    return jax.vmap(observations.encode)(stacked)
