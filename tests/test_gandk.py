"""The g-and-k law: its density, its order statistics, its posterior by Markov chains."""

import functools
import itertools
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import optimize, stats

from dmm.datasets import GAndK, gandk

TABLE = json.loads(Path(__file__, "../reference_values/gk_logpdf.json").resolve().read_text())
NORMAL = jnp.array([0.0, 1.0, 0.0, 0.0])  # θ of the standard normal law


def table(dtype):
    """Parameters, places, normal scores and log-densities, to fifty digits before rounding."""
    theta = np.array([[row[name] for name in gandk.PARAMETERS] for row in TABLE])
    columns = [np.array([row[name] for row in TABLE]) for name in ("x", "z", "logpdf")]
    return jnp.asarray(theta, dtype), jnp.asarray(columns[0], dtype), *columns[1:]


def density_error(dtype) -> tuple[float, float]:
    """The largest error of log-densities and of normal scores, as a share of them above 1."""
    theta, x, z, log_prob = table(dtype)
    found = jax.jit(jax.vmap(gandk.log_prob))(theta, x), jax.vmap(gandk.normal_score)(theta, x)
    pairs = zip(found, (log_prob, z), strict=True)
    return tuple(float(np.max(np.abs(f - t) / np.maximum(1, np.abs(t)))) for f, t in pairs)


def test_density_in_single_precision():
    assert max(density_error(jnp.float32)) < 5e-6


def test_density_in_double_precision(x64):
    assert max(density_error(jnp.float64)) < 1e-9


def test_density_integrates_to_one(x64):
    theta = jnp.array([3.0, 1.0, 2.0, 0.5])
    # Over z, where dx = (dx/dz) dz: the trapezoidal rule is exact to rounding.
    z = jnp.linspace(-9.0, 9.0, 2001)
    slope = jax.vmap(jax.grad(gandk.quantile, 1), (None, 0))(theta, z)
    places = jax.vmap(gandk.quantile, (None, 0))(theta, z)
    density = jnp.exp(jax.vmap(gandk.log_prob, (None, 0))(theta, places))
    assert abs(float(jnp.sum(density * slope)) * 18 / 2000 - 1) < 1e-10


def test_gradient_of_the_log_likelihood(x64):
    task = GAndK(2_000, 40)
    theta = jnp.array([2.0, 0.7, 1.5, 0.3])
    x = task.simulate(jax.random.key(0), theta)
    likelihood = functools.partial(task.log_likelihood, x=x)
    check_grads(likelihood, (theta,), 1, modes=("rev",), eps=1e-4, rtol=1e-4)


@pytest.mark.parametrize("task", [GAndK(), GAndK(10_000, 100)], ids=["all", "some"])
def test_order_statistics_have_their_law(task):
    # Levels of the standard normal law: the r-th of n uniform numbers is Beta(r, n + 1 − r), the
    # ratio of the r-th to the s-th Beta(r, s − r). Tests of 12 ranks: false once in 4,000 keys.
    x = jax.vmap(task.simulate, (0, None))(jax.random.split(jax.random.key(1), 4000), NORMAL)
    u, n = stats.norm.cdf(np.asarray(x, np.float64)), task.size
    assert np.all(np.diff(u, axis=1) >= 0)
    for i in np.linspace(0, task.count - 1, 6).astype(int):
        r = task.ranks[i]
        assert stats.kstest(u[:, i], stats.beta(r, n + 1 - r).cdf).pvalue > 2e-5
        s = n + 1 if i == task.count - 1 else task.ranks[i + 1]
        above = 1.0 if i == task.count - 1 else u[:, i + 1]
        # The ratio loses digits as r grows: the gap above, told from 1, has as many as are needed.
        assert stats.kstest(1 - u[:, i] / above, stats.beta(s - r, r).cdf).pvalue > 2e-5


def test_simulations_are_quantiles():
    task, key, theta = GAndK(60), jax.random.key(2), jnp.array([3.0, 1.0, 2.0, 0.5])
    z = task.simulate(key, NORMAL)
    expected = jax.vmap(gandk.quantile, (None, 0))(theta, z)
    np.testing.assert_allclose(task.simulate(key, theta), expected, rtol=1e-5)


def test_prior_is_uniform():
    # Four tests, false once in 10,000 keys each.
    theta, _ = jax.vmap(GAndK(5).sample)(jax.random.split(jax.random.key(3), 20_000))
    assert np.isfinite(jax.vmap(GAndK().prior.log_prob)(theta)).all()
    assert (
        min(stats.kstest(column, stats.uniform(0, 10).cdf).pvalue for column in np.asarray(theta).T)
        > 1e-4
    )


def brute_force(task: GAndK, theta: np.ndarray, x: np.ndarray) -> float:
    """The log-likelihood by bracketing every root, and by differences of tail probabilities."""
    a, b, g, k = theta

    def quantile(z):
        return a + b * (1 + 0.8 * math.tanh(g * z / 2)) * (1 + z**2) ** k * z

    z = np.array([optimize.brentq(lambda z, y=y: quantile(z) - y, -9, 9, xtol=1e-14) for y in x])
    step = 1e-5
    slopes = np.array([(quantile(t + step) - quantile(t - step)) / (2 * step) for t in z])
    total = np.sum(stats.norm.logpdf(z) - np.log(slopes))
    ends = np.concatenate([[-np.inf], z, [np.inf]])
    between = np.diff(np.concatenate([[0], task.ranks, [task.size + 1]])) - 1
    for low, high, count in zip(ends[:-1], ends[1:], between, strict=True):
        tails = stats.norm.sf if low > 0 else stats.norm.cdf
        total += count * math.log(abs(tails(high) - tails(low)))
    return total


def test_likelihood_of_some_order_statistics(x64):
    task = GAndK(10_000, 100)
    truth = np.array([3.0, 1.0, 2.0, 0.5])
    x = np.asarray(task.simulate(jax.random.key(4), jnp.asarray(truth)))
    for theta in (truth, np.array([2.0, 3.0, 0.5, 1.0]), np.array([6.0, 2.0, 8.0, 0.1])):
        found = float(task.log_likelihood(jnp.asarray(theta), jnp.asarray(x)))
        assert found == pytest.approx(brute_force(task, theta, x), rel=1e-8)


@pytest.mark.parametrize("theta", [(3.0, 1.0, 2.0, 0.5), (1.0, 4.0, 6.0, 0.2)])
def test_likelihood_of_a_median_is_normalised(x64, theta):
    # The middle of three: 3! F(1 − F)f integrates to 1, whatever θ.
    task, theta = GAndK(3, 1), jnp.array(theta)
    z = jnp.linspace(-9.0, 9.0, 2001)
    slope = jax.vmap(jax.grad(gandk.quantile, 1), (None, 0))(theta, z)
    places = jax.vmap(gandk.quantile, (None, 0))(theta, z)[:, None]
    density = jnp.exp(jax.vmap(task.log_likelihood, (None, 0))(theta, places))
    assert abs(6 * float(jnp.sum(density * slope)) * 18 / 2000 - 1) < 1e-10


@pytest.mark.parametrize("task", [GAndK(), GAndK(10_000, 100)], ids=["all", "some"])
def test_no_nan_at_the_corners_of_the_prior(task):
    corners = np.array(list(itertools.product([1e-5, 9.999], repeat=4)))
    keys = jax.random.split(jax.random.key(5), 16)
    assert np.isfinite(jax.vmap(task.simulate)(keys, jnp.asarray(corners, jnp.float32))).all()
    with jax.enable_x64(True):
        x = jax.vmap(task.simulate)(keys, jnp.asarray(corners))
        each = jax.jit(jax.vmap(jax.value_and_grad(task.log_likelihood)))
        assert all(np.isfinite(found).all() for found in each(jnp.asarray(corners), x))
        # Data far from what the parameters would give have a likelihood too.
        assert all(np.isfinite(found).all() for found in each(jnp.asarray(corners), x[::-1]))


def test_a_gap_drawn_as_zero_is_none():
    """A key, found among two million, whose first gap between levels is drawn as exactly 0."""
    key = jax.random.wrap_key_data(jnp.array([1963735742, 4118922171], jnp.uint32))
    _, x = jax.jit(GAndK(250).sample)(key)
    assert bool(jnp.isfinite(x).all())


@pytest.mark.usefixtures("optimised")
def test_reference_posterior():
    # 1000 draws of an effective size of 350 at least: means within five standard errors, 0.27 sd,
    # and standard deviations within 20%.
    known = gandk.paper_data()
    draws = GAndK().reference(jax.random.key(0), known["x"], 1_000, warmup=300, thin=1)
    assert draws.shape == (1_000, 4)
    assert np.all(np.abs(draws.mean(0) - known["mean"]) < 0.27 * known["sd"])
    assert np.all(np.abs(draws.std(0) / known["sd"] - 1) < 0.2)


def test_observations_are_the_same_everywhere():
    task = GAndK()
    np.testing.assert_allclose(task.observation(0), np.sort(gandk.paper_data()["x"]), rtol=1e-6)
    # To a hundredth: other versions may round elsewhere, not draw other numbers.
    assert float(np.median(task.observation(1))) == pytest.approx(3.0, abs=0.3)
    assert np.any(task.observation(1) != task.observation(2))
    assert GAndK(10_000, 100).observation(0).shape == (100,)


def test_features_hold_the_data():
    # Middle, log spread and the rest give x back, at all scales of the prior.
    task = GAndK(100)
    _, x = jax.vmap(task.sample)(jax.random.split(jax.random.key(8), 200))
    told = np.asarray(jax.vmap(gandk.features)(x), np.float64)
    assert np.abs(told[:, 2:]).max() < 100
    back = told[:, :1] + np.exp(told[:, 1:2]) * np.sinh(told[:, 2:])
    np.testing.assert_allclose(back, np.delete(x, 50, axis=1), rtol=2e-4, atol=1e-4)
    np.testing.assert_array_equal(told[:, 0], x[:, 50])


def test_task_that_cannot_be():
    with pytest.raises(ValueError, match="choose fewer"):
        GAndK(10, 11)
    with pytest.raises(ValueError, match="size"):
        GAndK(0)
