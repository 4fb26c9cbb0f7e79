"""Schedules: the time change and its inverse, unbiased draws of times, grids and weightings."""

import functools
import json
import pathlib

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import dmm
from dmm.schedules.weightings import noise_variance, signal
from table import DENSE, TRACTABLE, assert_mean, over

SCHEDULES = {
    "constant": dmm.ConstantRate(10.0),
    "linear": dmm.Linear(6.0),
    "geometric": dmm.Geometric(1e-4, 10.0),
    "cosine": dmm.Cosine(10.0),
    "power": dmm.Power(1e-6, 10.0, 4.0),
    "exponential": dmm.Exponential(),
}
GRIDS = {"schedule": dmm.ScheduleGrid(), "power": dmm.PowerGrid(), "power 2": dmm.PowerGrid(2.0)}
OU = json.loads((pathlib.Path(__file__).parent / "reference_values" / "ou.json").read_text())

every = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)


@every
@given(share=st.floats(0, 1))
def test_time_and_its_inverse(schedule, share):
    """t(τ(t)) = t; dτ/dt by central differences, good to ε^{2/3}."""
    with jax.enable_x64(True):
        t = schedule.t_min + (1 - schedule.t_min) * share
        tau = schedule.tau(jnp.asarray(t))
        np.testing.assert_allclose(schedule.t(tau), t, rtol=1e-9, atol=1e-12)
        # Within (0, 1): cosine's rate grows without bound just beyond t = 1.
        t = 0.01 + 0.98 * share
        h = 1e-6
        slope = (schedule.tau(jnp.asarray(t + h)) - schedule.tau(jnp.asarray(t - h))) / (2 * h)
        np.testing.assert_allclose(schedule.rate(t), slope, rtol=1e-6)


@every
def test_inverse_in_single_precision(schedule):
    """To 1e-5 in t, at every time down to τ_min: a network's weight is looked up by it."""
    t = jnp.linspace(schedule.t_min, 1.0, 101)
    np.testing.assert_allclose(jax.vmap(lambda t: schedule.t(schedule.tau(t)))(t), t, atol=1e-5)


@every
def test_ends(schedule):
    assert 0 < schedule.tau_min < schedule.tau_max
    taus = jax.vmap(schedule.tau)(jnp.linspace(schedule.t_min, 1.0, 200))
    assert jnp.all(jnp.diff(taus) > 0)
    np.testing.assert_allclose(taus[0], schedule.tau_min, rtol=1e-6)
    np.testing.assert_allclose(taus[-1], schedule.tau_max, rtol=1e-6)


def test_linear_is_the_papers():
    """τ(t) = ∫β against mpmath, and β itself."""
    with jax.enable_x64(True):
        for row in OU:
            schedule = dmm.Linear(float(row["beta_max"]), row["beta_min"])
            t = jnp.asarray(row["t"])
            np.testing.assert_allclose(schedule.tau(t), row["int_beta"], rtol=1e-14)
            beta = row["beta_min"] + (row["beta_max"] - row["beta_min"]) * row["t"]
            np.testing.assert_allclose(schedule.rate(t), beta, rtol=1e-14)


def test_cosine_signal_falls_as_a_cosine():
    """e^{−τ/2} = cos θt; and τ keeps its digits near 0, where it is (θt)²."""
    schedule = dmm.Cosine(8.0)
    with jax.enable_x64(True):
        t = jnp.linspace(0.01, 1.0, 50)
        left = jnp.exp(-0.5 * schedule.tau(t))
        np.testing.assert_allclose(left, jnp.cos(schedule.angle * t), rtol=1e-10)
        np.testing.assert_allclose(schedule.tau(1.0), 8.0, rtol=1e-10)
    small = 1e-4
    np.testing.assert_allclose(schedule.tau(small), (schedule.angle * small) ** 2, rtol=1e-6)


def test_geometric_is_even_in_the_logarithm():
    schedule = dmm.Geometric(1e-4, 10.0)
    np.testing.assert_allclose(schedule.tau_min, 1e-4, rtol=1e-6)
    np.testing.assert_allclose(schedule.tau_max, 10.0, rtol=1e-6)
    steps = jnp.diff(jnp.log(schedule.grid(20)[:-1]))
    np.testing.assert_allclose(steps, steps[0], rtol=1e-4)


@over(TRACTABLE)
def test_default_schedule_ends_at_the_horizon(row):
    schedule = dmm.default_schedule(row.process)
    np.testing.assert_allclose(schedule.tau_max, row.process.horizon, rtol=1e-6)
    assert schedule.tau_min <= 1e-4 * row.process.horizon


@pytest.mark.parametrize(
    "make",
    [
        lambda: dmm.Geometric(1.0, 0.5),
        lambda: dmm.Geometric(0.0, 1.0),
        lambda: dmm.Linear(2.0, 0.0),
    ],
)
def test_a_schedule_that_is_none_is_refused(make):
    with pytest.raises(ValueError, match=r"start, stop|beta_min"):
        make()


# --- Draws ---------------------------------------------------------------------------------------


def integral(f, schedule):
    """∫ f dτ over the schedule's times, by Gauss–Legendre in t."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    t = schedule.t_min + (1 - schedule.t_min) * (nodes + 1) / 2
    values = jax.vmap(lambda s: f(schedule.tau(s)) * schedule.rate(s))(jnp.asarray(t))
    return (1 - schedule.t_min) / 2 * np.dot(weights, values)


@every
def test_draws_are_stratified_and_weighed_exactly(schedule):
    """One time a stratum of t, weight (1 − t_min) dτ/dt."""
    n = 64
    tau, weight = schedule.draw(jax.random.key(0), n)
    t = jax.vmap(schedule.t)(tau)
    place = (t - schedule.t_min) / (1 - schedule.t_min) * n
    # Within the stratum, up to the inverse's rounding.
    assert jnp.all(jnp.abs(place - (jnp.arange(n) + 0.5)) <= 0.5 + 1e-3)
    rate = jax.vmap(schedule.rate)(t)
    np.testing.assert_allclose(weight, (1 - schedule.t_min) * rate, rtol=1e-3)


@every
def test_draws_are_unbiased_and_quiet(schedule):
    """mean(w f(τ)) over 4,096 sets of 16 times against quadrature, within 5 standard errors; its
    variance under a tenth of that of 16 independent times."""

    def f(tau):
        return jnp.exp(-tau)

    keys = jax.random.split(jax.random.key(1), 4096)

    @functools.partial(jax.jit, static_argnums=0)
    def estimates(n):
        def one(key):
            tau, weight = schedule.draw(key, n)
            return jnp.mean(weight * f(tau))

        return jax.vmap(one)(keys)

    stratified, single = estimates(16), estimates(1)
    with jax.enable_x64(True):
        truth = integral(f, schedule)
    assert_mean(stratified, truth, rounding=1e-5)
    assert jnp.var(stratified) < 0.1 * jnp.var(single) / 16


def test_drawing_by_importance_changes_nothing_but_the_noise():
    """Geometric draws estimate the integral over a linear schedule's times, exactly weighed; for
    a loss that grows as 1/τ they are the quieter by far."""
    linear = dmm.Linear(6.0)
    geometric = dmm.Geometric(float(linear.tau_min), float(linear.tau_max))

    def loss(tau):
        return 1 / tau

    with jax.enable_x64(True):
        truth = np.log(float(linear.tau_max / linear.tau_min))
    keys = jax.random.split(jax.random.key(2), 4096)
    spread = {}
    for name, schedule in {"linear": linear, "geometric": geometric}.items():

        def one(key, schedule=schedule):
            tau, weight = schedule.draw(key, 8)
            return jnp.mean(weight * loss(tau))

        draws = jax.jit(jax.vmap(one))(keys)
        assert_mean(draws, truth, rounding=1e-4)
        spread[name] = float(jnp.std(draws))
    assert spread["geometric"] < 1e-3 * spread["linear"]


# --- Grids and weightings ------------------------------------------------------------------------


@every
@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("steps", [1, 20])
def test_grids_fall_from_the_horizon_to_zero(schedule, grid, steps):
    """From τ_max by `steps` steps to τ_min, and one more to 0."""
    taus = grid(schedule, steps)
    assert taus.shape == (steps + 2,)
    assert taus[-1] == 0
    assert jnp.all(jnp.diff(taus) < 0)
    np.testing.assert_allclose(taus[0], schedule.tau_max, rtol=1e-5)
    np.testing.assert_allclose(taus[-2], schedule.tau_min, rtol=1e-4)


def test_power_grid_is_even_in_the_root():
    schedule = dmm.Geometric(1e-3, 10.0)
    roots = dmm.PowerGrid(3.0)(schedule, 10)[:-1] ** (1 / 3)
    np.testing.assert_allclose(jnp.diff(roots), jnp.diff(roots)[0], rtol=1e-4)


@every
def test_weightings(schedule):
    """Likelihood: 1. Variance: v(τ)/(dτ/dt), so that times uniform in t have weight v."""
    p = dmm.OrnsteinUhlenbeck(dmm.Euclidean(2))
    for t in (0.1, 0.5, 0.9):
        tau = jnp.asarray(schedule.tau(t))
        assert dmm.likelihood_weighting(p, schedule, tau) == 1
        weight = dmm.variance_weighting(p, schedule, tau)
        np.testing.assert_allclose(weight * schedule.rate(t), -jnp.expm1(-tau), rtol=1e-4)


def test_noise_variance_of_linear_diffusions():
    """OU: 1 − e^{−τ}. Brownian: τ. Damped: the velocity's, given the position."""
    with jax.enable_x64(True):
        tau, space = jnp.asarray(0.7), dmm.Euclidean(1)
        ou, brownian = dmm.OrnsteinUhlenbeck(space), dmm.Brownian(space)
        np.testing.assert_allclose(noise_variance(ou, tau), 1 - np.exp(-0.7), rtol=1e-12)
        np.testing.assert_allclose(noise_variance(brownian, tau), 0.7, rtol=1e-12)
        damped = dmm.CriticallyDamped(space)
        _, r = damped.kernel(tau)
        covariance = r @ r.T
        given_position = covariance[1, 1] - covariance[0, 1] ** 2 / covariance[0, 0]
        np.testing.assert_allclose(noise_variance(damped, tau), given_position, rtol=1e-10)


@over(DENSE)
def test_signal_falls_from_one(row):
    """The share of a target's mean square that data explain; e^{−τ} for Ornstein–Uhlenbeck."""
    taus = jnp.geomspace(1e-4, 1.0, 40) * row.process.horizon
    share = jax.jit(jax.vmap(lambda tau: signal(row.process, tau)))(taus)
    assert jnp.all((share >= 0) & (share <= 1 + 1e-5))
    assert jnp.all(jnp.diff(share) <= 1e-6)
    assert share[0] > 0.95
    if row.name == "ou":
        np.testing.assert_allclose(share, jnp.exp(-taus), rtol=1e-4)
