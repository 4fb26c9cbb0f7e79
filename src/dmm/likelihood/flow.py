"""Log-likelihoods by the probability flow."""

import jax
import jax.numpy as jnp

from .._types import Key, Point, Scalar
from ..objectives.score_matching import ScoreAt
from ..processes import AbstractDiffusion, Noising, supports
from ..schedules import Schedule
from ..spaces.tangent import divergence, move, pull


def flow_log_likelihood(
    process: Noising,
    score_fn: ScoreAt,
    schedule: Schedule,
    x: Point,
    *,
    steps: int = 100,
    key: Key | None = None,
) -> Scalar:
    """log p(x) of one *state* x at τ = 0 under the flow ẋ = f(x, τ) = b − ½ div a − ½ as.

    log p(x) = log p_ref(x_T) + ∫₀ᵀ div f dτ along the flow from x, by the classical Runge–Kutta
    method on the schedule's grid; on a curved space (Munthe-Kaas) for the tangent vector that leads
    from x to where the flow is, so that the order stays four. The divergence is exact, or, with a
    key, by one random probe a step (unbiased, a derivative instead of one a coordinate).
    Differentiable throughout.
    """
    if not supports(process, AbstractDiffusion):
        raise TypeError(
            f"log_likelihood: {type(process).__name__} has no probability flow; use elbo"
        )
    space = process.space

    def slope(x, tau, key):
        def field(y):
            return process.flow(y, score_fn(y, tau))

        return field(x), divergence(space, field, x, key)

    def ahead(x, v, h, tau, key):
        """The flow from x along hv, as a change of that vector, and its divergence there."""
        v = jax.tree.map(lambda leaf: h * leaf, v)
        w, divergence = slope(move(space, x, v), tau, key)
        return pull(space, x, v, w), divergence

    def body(carry, step):
        x, total = carry
        tau, next_tau, key = step
        h, middle = next_tau - tau, 0.5 * (tau + next_tau)
        v1, d1 = slope(x, tau, key)
        v2, d2 = ahead(x, v1, 0.5 * h, middle, key)
        v3, d3 = ahead(x, v2, 0.5 * h, middle, key)
        v4, d4 = ahead(x, v3, h, next_tau, key)
        step = jax.tree.map(lambda a, b, c, d: h / 6 * (a + 2 * b + 2 * c + d), v1, v2, v3, v4)
        return (move(space, x, step), total + h * (d1 + 2 * d2 + 2 * d3 + d4) / 6), None

    taus = schedule.grid(steps)[::-1]
    keys = None if key is None else jax.random.split(key, len(taus) - 1)
    start = (x, jnp.zeros((), taus.dtype))
    (x, total), _ = jax.lax.scan(body, start, (taus[:-1], taus[1:], keys))
    return process.reference.log_prob(x) + total
