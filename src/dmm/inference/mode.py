"""The most probable point of a model."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Given, Key, Point
from ..learned import Learned
from ..model import Model
from ..processes import AbstractDiffusion, Zero, supports
from ..spaces.tangent import move


def climb(
    model: Model, key: Key, given: Given, *, draws: int, rounds: int, steps: int
) -> tuple[Point, Array]:
    """The most probable point found, and its log-density.

    The best of `draws` samples climb x + ½τ a(x) s(x, τ), the score at a time τ that falls: that
    leads to the mode of the law at τ, whose score varies on the scale √τ at least, and so to the
    mode of the law of the data. The best of where they come out and of the samples is returned.
    """
    if not supports(model.process, AbstractDiffusion):
        raise TypeError("map: some parameters are discrete; count the draws of `sample` instead")
    points = model.sample(key, draws, given=given, steps=steps)
    logs = model.log_likelihood(points, given=given, steps=steps)
    best = jnp.argsort(-jnp.where(jnp.isnan(logs), -jnp.inf, logs))[: max(1, draws // 16)]
    starts = jax.tree.map(lambda leaf: leaf[best], points)
    ends = _ascend(model, rounds, starts, given)
    reached = model.log_likelihood(ends, given=given, steps=steps)
    points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), starts, ends)
    logs = jnp.concatenate([logs[best], reached])
    row = jnp.argmax(jnp.where(jnp.isnan(logs), -jnp.inf, logs))
    return jax.tree.map(lambda leaf: leaf[row], points), logs[row]


@eqx.filter_jit
def _ascend(model: Model, rounds: int, points: Point, given: Given) -> Point:
    process, score = model.process, Learned(model, model.observed(given))
    low, high = model.schedule.tau_min, 0.1 * model.schedule.tau_max
    taus = jnp.geomspace(high, low, rounds)

    def one(x):
        def body(x, tau):
            still, moving = process.flow(x, Zero(process)(x)), process.flow(x, score(x, tau))
            step = jax.tree.map(lambda a, b: tau * (a - b), still, moving)
            return move(process.space, x, step), None

        return jax.lax.scan(body, x, taus)[0]

    ended = jax.vmap(lambda x: one(model.units.forward(x)))(points)
    return jax.vmap(model.units.inverse)(ended)
