"""The likelihood as an expectation over the auxiliary process (section 3.2)."""

import jax
import jax.numpy as jnp

from .._types import Key, Point, Scalar
from ..objectives.score_matching import ScoreAt
from ..processes import Noising, Zero
from ..schedules import Schedule


def feynman_kac(
    process: Noising,
    score_fn: ScoreAt,
    schedule: Schedule,
    key: Key,
    x: Point,
    *,
    steps: int = 200,
    particles: int = 256,
) -> Scalar:
    """log of an unbiased (up to time steps) estimate of p(x), x a state at τ = 0.

    p(x) = E[p_ref(Z_T) exp ∫₀ᵀ c(Z_τ) dτ | Z_0 = x] over the auxiliary process Z, which is
    `reverse(s).reverse(zero)`, with c = `reverse(s).source`. The variance grows with the horizon.
    """
    taus = schedule.grid(steps)[::-1]

    def particle(key):
        def body(carry, step):
            z, total = carry
            key, tau, next_tau = step
            generative = process.reverse(lambda y: score_fn(y, tau))
            auxiliary = generative.reverse(Zero(generative))
            h = next_tau - tau
            return (auxiliary.step(key, z, h), total + h * generative.source(z)), None

        keys = jax.random.split(key, len(taus) - 1)
        start = (x, jnp.zeros((), taus.dtype))
        (z, total), _ = jax.lax.scan(body, start, (keys, taus[:-1], taus[1:]))
        return process.reference.log_prob(z) + total

    logs = jax.vmap(particle)(jax.random.split(key, particles))
    return jax.nn.logsumexp(logs) - jnp.log(particles)
