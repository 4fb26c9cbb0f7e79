"""The evidence bound of Theorem 1."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._types import Key, Point, Scalar, Score, Time
from ..objectives.score_matching import ScoreAt
from ..processes import HasDensity, Stationary, Tractable, supports
from ..processes.coordinates import rowwise
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
    share: Callable[[Time], Scalar] | None = None,
) -> Scalar:
    """An unbiased estimate of the bound E^∞ ≤ log p(x_0), in nats, for one data point.

    E^∞ = E log p_ref(x_T) − ∫₀ᵀ E[β⁻¹L*β + L log β] dτ, all expectations given x_0. The integrand
    is estimated by Φ(u, s) − Φ(u, 0) + L*1, u the target: unbiased for every process. Where the
    transition density is known, −Φ(u, 0) + L*1 has the known mean −h'(τ), h the entropy of
    x_τ | x_0, and serves as a control variate whose coefficient is the share of the target that
    the score leaves unexplained (`unexplained` measures it; by default that of unit Gaussian
    data): 1 near the data and 0 near the reference, where each form is quiet. Without a density,
    but with an invariant reference π, the same is log π(x_0) − ∫ E[Φ(u, s) − Φ(u, ∇log π)] dτ,
    since L log π integrates to the change of log π, and quiet at both ends. `score_fn` must be
    frozen below the schedule's τ_min; times are drawn from `schedule`, and what a lift adds to
    the data is accounted for.
    """
    exact = supports(process, HasDensity)
    rests = isinstance(process, Stationary) and not exact
    times_key, noise_key, low_key, last_key, lift_key = jax.random.split(key, 5)

    def integrand(key, tau):
        noised = process.noise(key, x0, tau)
        x, target = noised.x, noised.target
        score = score_fn(x, tau)
        if rests:
            return process.excess(x, target, score, process.at_rest(x))
        zero = rowwise(jnp.zeros_like, score)
        source = process.source(x)
        estimate = process.excess(x, target, score, zero) + source
        if exact:
            alpha = share(tau) if share else signal(process, tau)
            slope = jax.grad(lambda t: process.entropy(x0, t))(tau)
            estimate += (1 - alpha) * (process.phi(x, target, zero) - source - slope)
        return estimate

    tau, weight = schedule.draw(times_key, draws)
    learned = jnp.mean(weight * jax.vmap(integrand)(jax.random.split(noise_key, draws), tau))

    # Below τ_min: times τ_min u², against targets that grow as 1/√τ.
    u = (jnp.arange(draws) + 0.5) / draws
    low = schedule.tau_min * u**2
    below = jax.vmap(integrand)(jax.random.split(low_key, draws), low)
    frozen = jnp.mean(2 * schedule.tau_min * u * below)

    if rests:
        return process.reference.log_prob(x0) - learned - frozen

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


class Share(eqx.Module):
    """A function of τ by its values at some times, linear in log τ between them."""

    log_tau: Float[Array, " n"]
    values: Float[Array, " n"]

    def __call__(self, tau: Time) -> Scalar:
        return jnp.interp(jnp.log(tau), self.log_tau, self.values)


def unexplained(
    process: Tractable,
    score_fn: Callable[[Array, Point, Time], Score],
    schedule: Schedule,
    keys: Key,
    x0: Point,
    *,
    nodes: int = 24,
    batch_size: int | None = None,
) -> Share:
    """E Φ(u, s)/E Φ(u, 0) over time, u the target: how much of it a score leaves unexplained.

    Estimated at `nodes` times from stacked data x_0 with a key each, one draw a point and time.
    `score_fn(i, x, τ)` is the score for data point number i; so many points at once, or all.
    """
    t = jnp.linspace(schedule.t_min, 1.0, nodes)
    taus = jax.vmap(schedule.tau)(t)

    def one(tau, key, i, x0):
        x, target = process.noise(key, x0, tau)
        score = score_fn(i, x, tau)
        zero = rowwise(jnp.zeros_like, score)
        return process.phi(x, target, score), process.phi(x, target, zero)

    def at(node):
        tau, keys = node
        points, most = (keys, jnp.arange(len(keys)), x0), min(batch_size or len(keys), len(keys))
        left, whole = jax.lax.map(lambda point: one(tau, *point), points, batch_size=most)
        return left.mean(), whole.mean()

    # One time after another: all at once would take more memory than the bound itself.
    keys = jax.vmap(lambda key: jax.random.split(key, nodes))(keys)
    left, whole = jax.lax.map(at, (taus, jnp.swapaxes(keys, 0, 1)))
    # A chain of masks may show no mask at all near the data, where nothing is explained yet.
    share = jnp.where(whole > 0, left / jnp.where(whole > 0, whole, 1.0), 1.0)
    return Share(jnp.log(taus), jnp.clip(share, 0.0, 1.0))
