"""The most probable point of a model."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Given, Key, Point
from ..learned import Learned
from ..model import Model
from ..processes import AbstractDiffusion, Zero, supports
from ..spaces.tangent import move
from .priors import Parameters


def climb(
    model: Model, parameters: Parameters, key: Key, given: Given,
    *, draws: int, rounds: int, steps: int,
) -> tuple[Point, Array]:  # fmt: skip
    """The point where the log-density of the parameters is largest, and that.

    The best of `draws` samples climb x + ½τ a(x) s(x, τ), the score at a time τ that falls: that
    leads to the mode of the law at τ, whose score varies on the scale √τ at least, and so to the
    mode of the law of the data. The best of where they come out and of the samples is returned.
    """
    if not supports(model.process, AbstractDiffusion):
        raise TypeError("map: some parameters are discrete; count the draws of `sample` instead")
    # There and back: that leads off bounds, on which there is no density.
    settled = jax.vmap(lambda point: parameters.point(parameters.value(point)))
    points = settled(model.sample(key, draws, given=given, steps=steps))
    heights = jax.vmap(parameters.log_slope)
    logs = model.log_likelihood(points, given=given, steps=steps) + heights(points)
    best = jnp.argsort(-jnp.where(jnp.isnan(logs), -jnp.inf, logs))[: max(1, draws // 16)]
    starts = jax.tree.map(lambda leaf: leaf[best], points)
    ends = settled(_ascend(model, parameters.log_slope, rounds, starts, given))
    reached = model.log_likelihood(ends, given=given, steps=steps) + heights(ends)
    points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), starts, ends)
    logs = jnp.concatenate([logs[best], reached])
    row = jnp.argmax(jnp.where(jnp.isnan(logs), -jnp.inf, logs))
    return jax.tree.map(lambda leaf: leaf[row], points), logs[row]


@eqx.filter_jit
def _ascend(model: Model, log_slope: Callable, rounds: int, points: Point, given: Given) -> Point:
    process, score = model.process, Learned(model, model.observed(given))
    low, high = model.schedule.tau_min, 0.1 * model.schedule.tau_max
    taus = jnp.geomspace(high, low, rounds)

    def one(x):
        def body(x, tau):
            lift = process.score(lambda y: log_slope(model.units.inverse(y)), x)
            uphill = jax.tree.map(jnp.add, score(x, tau), lift)
            still, moving = process.flow(x, Zero(process)(x)), process.flow(x, uphill)
            step = jax.tree.map(lambda a, b: tau * (a - b), still, moving)
            return move(process.space, x, step), None

        return jax.lax.scan(body, x, taus)[0]

    ended = jax.vmap(lambda x: one(model.units.forward(x)))(points)
    return jax.vmap(model.units.inverse)(ended)
