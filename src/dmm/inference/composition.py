"""Several independent observations of the same parameters."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import at_least
from .._types import Given, Key, Point
from ..learned import Learned, Observed
from ..model import Model, check_key
from ..processes import AbstractDiffusion, supports
from ..spaces.tangent import draw_noise, move

STEP = 0.2  # of a Langevin step, as a share of τ over the number of observations


class Composed(eqx.Module):
    """(1 − n) s(x, τ) + Σ_i s(x, τ | ξ_i): at τ = 0 the score of p(x | ξ_1, …, ξ_n).

    The score without observations is that of the prior: learned, by a model that was fitted with
    `drop_given`, or known and the same at every τ, where the prior is the invariant reference.
    """

    model: Model
    observed: Observed  # stacked
    count: int = eqx.field(static=True)
    at_rest: bool = eqx.field(static=True)

    def __call__(self, x: Point, tau: Array) -> Point:
        def one(observed):
            return Learned(self.model, observed)(x, tau)

        each = jax.vmap(one)(self.observed)
        if self.at_rest:
            process = self.model.process
            prior = process.score(process.reference.log_prob, x)
        else:
            any_one = jax.tree.map(lambda leaf: leaf[0], self.observed)
            prior = Learned(self.model, any_one, 0.0)(x, tau)
        share = 1.0 - self.count
        return jax.tree.map(lambda s, p: jnp.sum(s, 0) + share * p, each, prior)


def sample_composed(
    model: Model,
    key: Key,
    n: int,
    *,
    given: Given,
    at_rest: bool = False,
    levels: int = 200,
    corrections: int = 5,
    batch_size: int = 4096,
) -> Point:
    """n draws given all of the stacked observations, independent of one another given the point.

    Langevin dynamics at `levels` times τ that fall to τ_min, `corrections` steps at each (Geffner
    et al., 2023, with every step a correction): the composed scores are not those of a process run
    backwards, but at each τ those of a law, and at the end of the right one. A step is of length
    ∝ τ/n: laws of n observations are √n times as narrow.
    """
    key = check_key(key)
    at_least(1, n=n, levels=levels, corrections=corrections, batch_size=batch_size)
    if not supports(model.process, AbstractDiffusion):
        raise TypeError(
            "independent: some parameters are discrete, where observations cannot be composed; "
            "fit a posterior given all of them, with embedding='set'"
        )
    given, several = model.check_given(given)
    if not several:
        raise ValueError("independent: pass the observations stacked along a leading axis")
    if not at_rest and not model.drop_given:
        raise ValueError(
            "independent: needs a model that knows the prior's score; fit with drop_given=0.1"
        )
    count = len(jax.tree.leaves(given)[0])
    parts = [
        _sample(model, keys, given, count, at_rest, levels, corrections)
        for keys in np.array_split(jax.random.split(key, n), -(-n // batch_size))
    ]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)


@eqx.filter_jit
def _sample(model: Model, keys, given, count: int, at_rest: bool, levels: int, corrections: int):
    process = model.process
    score = Composed(model, jax.vmap(model.observed)(given), count, at_rest)
    low, high = model.schedule.tau_min, model.schedule.tau_max
    taus = jnp.repeat(jnp.geomspace(high, low, levels), corrections)

    def draw(key):
        start_key, key = jax.random.split(key)

        def body(x, step):
            key, tau = step
            # The diffusion of covariance a that leaves the law with this score as it is.
            h = STEP * jnp.minimum(tau, 1.0) / count
            drift = jax.tree.map(
                lambda b, v: b - v, process.drift(x), process.flow(x, score(x, tau))
            )
            noise = process.root(x, draw_noise(key, process.space, x))
            v = jax.tree.map(lambda b, w: h * b + jnp.sqrt(h) * w, drift, noise)
            return move(process.space, x, v, reflect=True), None

        keys = jax.random.split(key, len(taus))
        x = jax.lax.scan(body, process.reference.sample(start_key), (keys, taus))[0]
        return model.units.inverse(process.drop(x))

    return jax.vmap(draw)(keys)
