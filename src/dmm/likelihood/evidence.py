"""The evidence bound of Theorem 1."""

import jax
import jax.numpy as jnp

from .._types import Key, Point, Scalar
from ..objectives.score_matching import ScoreAt
from ..processes import HasDensity, Tractable, supports
from ..schedules import Schedule
from ..schedules.weightings import signal


def elbo(
    process: Tractable,
    score_fn: ScoreAt,
    schedule: Schedule,
    key: Key,
    x0: Point,
    *,
    draws: int = 64,
) -> Scalar:
    """An unbiased estimate of the bound E^∞ ≤ log p(x_0), in nats, for one data point.

    E^∞ = E log p_ref(x_T) − ∫₀ᵀ E[β⁻¹L*β + L log β] dτ, all expectations given x_0. The integrand is
    estimated by Φ(u, s) − Φ(u, 0) + L*1, u the target: unbiased for every process. Where the
    transition density is known, −Φ(u, 0) + L*1 has the known mean −h'(τ), h the entropy of
    x_τ | x_0, and serves as a control variate with coefficient α: 1 near the data, 0 near the
    reference, where each form is quiet. `score_fn` must be frozen below the schedule's τ_min;
    times are drawn from `schedule`, and what a lift adds to the data is accounted for.
    """
    exact = supports(process, HasDensity)
    times_key, noise_key, low_key, last_key, lift_key = jax.random.split(key, 5)

    def integrand(key, tau):
        noised = process.noise(key, x0, tau)
        x, target = noised.x, noised.target
        score = score_fn(x, tau)
        zero = jax.tree.map(jnp.zeros_like, score)
        offset = process.source(x) - process.phi(x, target, zero)
        if exact:
            alpha = signal(process, tau) ** 2
            slope = jax.grad(lambda t: process.entropy(x0, t))(tau)
            offset = alpha * offset - (1 - alpha) * slope
        return process.phi(x, target, score) + offset

    tau, weight = schedule.draw(times_key, draws)
    learned = jnp.mean(weight * jax.vmap(integrand)(jax.random.split(noise_key, draws), tau))

    # Below τ_min: times τ_min u², against targets that grow as 1/√τ.
    u = (jnp.arange(draws) + 0.5) / draws
    low = schedule.tau_min * u**2
    below = jax.vmap(integrand)(jax.random.split(low_key, draws), low)
    frozen = jnp.mean(2 * schedule.tau_min * u * below)

    def last(key):
        x = process.draw(key, x0, schedule.tau_max)
        log_prob = process.reference.log_prob(x)
        if exact:
            log_prob = log_prob - process.log_transition(x, x0, schedule.tau_max)
        return log_prob

    end = jnp.mean(jax.vmap(last)(jax.random.split(last_key, draws)))
    if exact:
        end = end - process.entropy(x0, schedule.tau_max)

    added = jax.vmap(lambda key: process.lift(key, x0)[1])(jax.random.split(lift_key, draws))
    return end - learned - frozen - jnp.mean(added)
