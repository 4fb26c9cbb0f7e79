"""Draws without rejection, the lineages, and the exact noising that rests on them."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import psi

import dmm
from dmm.processes.draws import log_beta, log_gamma, multinomial
from dmm.processes.lineages import Lineages
from table import assert_mean

VALUES = pathlib.Path(__file__).parent / "reference_values"


# --- Draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 1.5, 30.0, 2000.0])
def test_gamma_draws(shape):
    """Kolmogorov–Smirnov over 2¹⁵ draws, in log space, where small shapes live: p above 10⁻⁴."""
    logs = log_gamma(jax.random.key(0), jnp.full(2**15, shape))
    assert np.all(np.isfinite(logs))

    def cdf(y):
        return stats.gamma(shape).cdf(np.exp(y))

    assert stats.kstest(np.asarray(logs, np.float64), cdf).pvalue > 1e-4


def test_gamma_draws_of_large_shapes_keep_their_digits():
    """Shape 10⁹ in single precision: (G/10⁹ − 1)√10⁹ is normal; Kolmogorov–Smirnov as above."""
    logs = log_gamma(jax.random.key(1), jnp.full(2**15, 1e9), 1e9)
    standard = np.expm1(np.asarray(logs, np.float64)) * 1e9**0.5
    assert stats.kstest(standard, "norm").pvalue > 1e-4


def test_beta_draws_sum_to_one():
    """log y and log(1 − y), at shapes from 0.1 to 1000; means within 5 standard errors."""
    a, b = jnp.full(2**14, 0.1), jnp.full(2**14, 1000.0)
    y, rest = log_beta(jax.random.key(0), a, b)
    np.testing.assert_allclose(jnp.exp(y) + jnp.exp(rest), 1.0, rtol=1e-6)
    assert_mean(jnp.exp(y), 0.1 / 1000.1)


@pytest.mark.parametrize("count", [0, 1, 40, 128, 129, 1000])
def test_multinomial_draws(count):
    """They sum to the count; each class has its binomial law (χ² over 2¹⁵ draws at 10⁻⁵ a class,
    where it is drawn by it) and the right covariance with the others."""
    p = np.array([0.6, 0.295, 0.1, 0.004, 0.001])
    keys = jax.random.split(jax.random.key(1), 2**15)
    draws = jax.jit(jax.vmap(lambda key: multinomial(key, jnp.float32(count), jnp.asarray(p), 128)))
    found = np.asarray(draws(keys))
    assert np.all(found >= 0)
    assert np.all(found == np.round(found))
    assert np.all(found.sum(1) == count)
    assert_mean(found, count * p, sigmas=5.5)
    covariance = count * (np.diag(p) - np.outer(p, p))
    np.testing.assert_allclose(np.cov(found.T), covariance, atol=0.03 * (1 + covariance.max()))
    for i in (3, 4):
        law = stats.binom(count, p[i])
        cells = np.arange(int(law.ppf(0.999)) + 1)
        expected = np.append(law.pmf(cells), law.sf(cells[-1])) * 2**15
        counts = np.append(
            [np.sum(found[:, i] == k) for k in cells], np.sum(found[:, i] > cells[-1])
        )
        kept = expected > 5
        if kept.sum() > 1:
            statistic = np.sum((counts - expected)[kept] ** 2 / expected[kept])
            assert stats.chi2.sf(statistic, kept.sum()) > 1e-5


# --- Lineages ------------------------------------------------------------------------------------


CASES = json.loads((VALUES / "wf_dn_pmf.json").read_text())


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("theta", sorted({case["theta"] for case in CASES}))
def test_number_of_lineages(theta):
    """χ² of 2¹⁶ draws at each time against the law in high precision: 10⁻⁵ each by chance."""
    n, law = 2**16, Lineages(float(theta))
    cases = [case for case in CASES if case["theta"] == theta]
    keys = jax.random.split(jax.random.key(3), n)
    draw = jax.jit(jax.vmap(law.draw, (0, None)))
    for case in cases:
        draws = np.asarray(draw(keys, case["t"]))
        expected = np.array(case["d"], float) * n
        counts = np.array([np.sum(draws == k) for k in case["n"]])
        kept = expected > 5
        observed = np.append(counts[kept], n - counts[kept].sum())
        expected = np.append(expected[kept], max(n - expected[kept].sum(), 0.0))
        large = expected > 5
        assert observed[~large].sum() < 40
        statistic = np.sum((observed - expected)[large] ** 2 / expected[large])
        assert stats.chi2.sf(statistic, max(large.sum() - 1, 1)) > 1e-5, case["t"]


def early_moments(theta: float, tau: float) -> tuple[float, float]:
    """Mean and variance of A(τ) from those of the time until k are left, where that is τ on
    average: the law of large numbers, in double precision."""
    a = theta - 1

    def mean_time(k):
        return 2 / a * (psi(k + a) - psi(k))

    k = brentq(lambda k: mean_time(k) - tau, 1.0, 4 / tau)
    j = np.floor(k) + np.arange(int(30 * k))
    variance = np.sum((2 / (j * (j + a))) ** 2) + 4 / (3 * j[-1] ** 3)
    return k, variance * (k * (k + a) / 2) ** 2


@pytest.mark.parametrize(
    ("theta", "tau"),
    [(0.5, 1e-6), (3000.0, 1e-6), (2.0, 1e-5), (60.0, 1e-4), (3000.0, 1e-3), (0.5, 0.02)],
)
def test_many_lineages(theta, tau):
    """Early on: mean within 1, variance within 6%; draws are whole, finite and not negative."""
    mean, variance = early_moments(theta, tau)
    keys = jax.random.split(jax.random.key(0), 2**14)
    draws = np.asarray(jax.jit(jax.vmap(lambda k: Lineages(theta).draw(k, tau)))(keys), np.float64)
    assert np.all(draws >= 0)
    assert np.all(draws == np.round(draws))
    assert abs(draws.mean() - mean) < 1 + 5 * variance**0.5 / 2**7
    np.testing.assert_allclose(draws.var(), variance, rtol=0.06)


# --- The simplex ---------------------------------------------------------------------------------

MOMENTS = json.loads((VALUES / "wf_moments.json").read_text())


@pytest.mark.parametrize("case", MOMENTS, ids=lambda c: f"{len(c['x0'])}-{c['t']}")
def test_noised_proportions_have_their_moments(case):
    """Mean and covariance of x_τ given x_0, 2¹⁶ draws, 5 standard errors."""
    x0 = jnp.asarray(case["x0"])
    process = dmm.WrightFisher(dmm.Simplex(len(x0)), case["vartheta"])
    keys = jax.random.split(jax.random.key(0), 2**16)
    x = np.asarray(jax.jit(jax.vmap(lambda k: process.draw(k, x0, case["t"])))(keys), np.float64)
    assert_mean(x, case["mean"], rounding=1e-5)
    centred = x - np.array(case["mean"])
    products = centred[:, :, None] * centred[:, None, :]
    assert_mean(products, case["cov"], rounding=1e-6)


@pytest.mark.parametrize("tau", [3e-3, 0.05, 0.6])
def test_target_has_the_score_as_its_mean(tau):
    """E⟨u, av⟩ = −E div(av) for the target u and any smooth field v: Stein's identity holds for
    what has the conditional mean of the score. Six fields, 2¹⁶ draws, 5 standard errors."""
    process = dmm.WrightFisher(dmm.Simplex(3), (3.0, 2.5, 4.0))
    x0 = jnp.array([0.2, 0.3, 0.5])
    slopes = jax.random.normal(jax.random.key(5), (6, 3, 3))

    def field(slope, x):
        return process.flux(x, jnp.sin(slope @ x))

    def both(key, slope):
        x, target = process.noise(key, x0, tau)
        return jnp.sum(target * field(slope, x)) + process.space.divergence(
            lambda y: field(slope, y), x
        )

    keys = jax.random.split(jax.random.key(1), 2**16)
    values = jax.jit(jax.vmap(jax.vmap(both, (None, 0)), (0, None)))(keys, slopes)
    scale = np.std(values, 0) / 2**8
    assert_mean(values, np.zeros(6), rounding=0.0)
    assert np.all(scale < 0.2 / tau**0.5), "too noisy to show anything"


@pytest.mark.parametrize(("parts", "mutation"), [(2, 0.5), (5, 50.0), (300, 3.0)])
def test_nothing_leaves_the_simplex(parts, mutation):
    """In single precision, at every time: inside, finite, and so are targets and losses."""
    process = dmm.WrightFisher(dmm.Simplex(parts), mutation)
    x0 = process.reference.sample(jax.random.key(0))
    x0 = jnp.maximum(x0, 1e-6) / jnp.sum(jnp.maximum(x0, 1e-6))
    taus = jnp.geomspace(1e-9, 10.0, 64)
    head = dmm.PredictLineages()

    def one(key, tau):
        x, target = process.noise(key, x0, tau)
        s = head.score(process, jnp.ones(parts), x, tau)
        difference = process.excess(x, target, s, process.at_rest(x))
        flow = process.flow(x, s)
        return x, process.space.contains(x), difference, flow

    keys = jax.random.split(jax.random.key(2), 64)
    x, inside, loss, flow = jax.jit(jax.vmap(one))(keys, taus)
    assert np.all(inside)
    assert np.all(x > 0)
    assert np.all(np.isfinite(loss))
    assert np.all(np.isfinite(flow))


@pytest.mark.usefixtures("optimised")
def test_noise_in_single_precision_has_its_size_at_small_times():
    """τ E Φ(u, ∇log π) → N − 1 as τ → 0, over 2¹⁶ draws: 5 standard errors, under 2.5%."""
    process = dmm.WrightFisher(dmm.Simplex(3))
    x0 = jnp.array([0.2, 0.3, 0.5])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def one(key, tau):
        x, target = process.noise(key, x0, tau)
        return tau * process.phi(x, target, process.at_rest(x))

    for tau in (1e-9, 1e-8, 1e-7, 1e-5):
        values = one(jax.random.split(jax.random.key(6), 2**16), tau)
        assert_mean(values, 2.0, rounding=0.0)
        assert 5 * np.std(values) / 2**8 < 0.05


# --- A law that stays known: π times 1 + ε e^{−λτ} φ, φ an eigenfunction --------------------------

TILTED = {
    "simplex": (dmm.WrightFisher(dmm.Simplex(3), (3.0, 2.5, 4.0)), 4.75, 3.0 / 9.5),
    "box": (dmm.Jacobi(dmm.Box([0.0, 0.0], [1.0, 1.0]), 3.0, 2.5), 2.75, 3.0 / 5.5),
    "circle": (dmm.SphericalBrownian(dmm.Sphere(1)), 0.5, 0.0),
    "sphere": (dmm.SphericalBrownian(dmm.Sphere(2)), 1.0, 0.0),
    "sphere in 6": (dmm.SphericalBrownian(dmm.Sphere(5)), 2.5, 0.0),
}


def tilt(process, rate, mean, x, tau):
    """log of q_τ/π: the first coordinate less its mean decays at the given rate."""
    return jnp.log1p(0.9 * jnp.exp(-rate * tau) * (x[0] - mean))


@pytest.mark.parametrize("name", TILTED)
def test_bound_is_the_likelihood_where_the_score_is_exact(name):
    """At three points, 2¹¹ estimates of 16 draws each: 5 standard errors, which are under 0.03."""
    process, rate, mean = TILTED[name]
    schedule = dmm.default_schedule(process)

    def score(x, tau):
        def log_tilt(y):
            return tilt(process, rate, mean, y, tau)

        return process.at_rest(x) + jax.grad(log_tilt)(x)

    def bound(key, x0):
        return dmm.elbo(process, score, schedule, key, x0, draws=16)

    points = jax.vmap(process.reference.sample)(jax.random.split(jax.random.key(3), 3))
    keys = jax.random.split(jax.random.key(4), 2**11)
    values = jax.jit(jax.vmap(jax.vmap(bound, (None, 0)), (0, None)))(keys, points)
    truth = jax.vmap(
        lambda x0: process.reference.log_prob(x0) + tilt(process, rate, mean, x0, 0.0)
    )(points)
    assert_mean(values, truth, rounding=1e-4)
    assert np.max(np.std(values, 0)) / 2**5.5 < 0.03


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", TILTED)
def test_targets_have_the_known_score_as_their_mean(name):
    """E⟨target − score, av⟩ = 0 for two fields v, over data drawn from π and weighted: 2¹⁶ draws,
    5 standard errors."""
    process, rate, mean = TILTED[name]
    tau = 0.3 / rate

    def one(key):
        data_key, noise_key = jax.random.split(key)
        x0 = process.reference.sample(data_key)
        weight = jnp.exp(tilt(process, rate, mean, x0, 0.0))
        x, target = process.noise(noise_key, x0, tau)
        known = process.at_rest(x) + jax.grad(lambda y: tilt(process, rate, mean, y, tau))(x)
        fields = jnp.stack([jnp.sin(3 * x), jnp.cos(2 * x[::-1])])
        return weight * jax.vmap(lambda v: jnp.sum((target - known) * process.flux(x, v)))(fields)

    values = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(6), 2**16))
    assert_mean(values, np.zeros(2))


# --- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dmm.Simplex(1), "at least 2 parts"),
        (lambda: dmm.Simplex(3).check([[0.5, 0.5, 0.0]]), r"data: 1 rows have parts that are 0"),
        (lambda: dmm.Simplex(3).check([[2.0, 3.0, 5.0]]), "row 0 sums to 10"),
        (lambda: dmm.Simplex(3).check([[0.6, 0.6, -0.2]]), "positive"),
        (lambda: dmm.closure([[1.0, 0.0]]), "zeros="),
        (lambda: dmm.closure([[1.0, -1.0]]), "none negative"),
        (lambda: dmm.closure([[1.0, 0.0]], zeros=2.0), "leave room"),
        (
            lambda: dmm.WrightFisher(dmm.Simplex(3), [1.0, 2.0]),
            "mutation: expected one number or 3",
        ),
        (lambda: dmm.WrightFisher(dmm.Simplex(3), 0.0), "mutation: must be positive"),
        (lambda: dmm.Box(1.0, 0.0), "each low below its high"),
        (lambda: dmm.Box(0.0, 1.0).check([[1.5]]), "outside the bounds 0 and 1"),
        (lambda: dmm.Box(0.0, 1.0).check([[1.0]]), "lie on a bound"),
        (lambda: dmm.Sphere(0), "at least 1"),
        (lambda: dmm.Sphere(2).check([[1.0, 1.0, 0.0]]), "row 0 has length 1.41421"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_closure_keeps_ratios():
    """Multiplicative replacement: what is not 0 keeps its ratios, and rows sum to 1."""
    closed = dmm.closure([[8.0, 2.0, 0.0], [1.0, 1.0, 2.0]], zeros=0.01)
    np.testing.assert_allclose(closed.sum(1), 1.0)
    np.testing.assert_allclose(closed[0], [0.792, 0.198, 0.01])
    np.testing.assert_allclose(closed[1], [0.25, 0.25, 0.5])


def test_units_of_a_box_are_its_bounds():
    """Fitted for one step: samples lie between the bounds, densities are in the user's units."""
    data = np.random.default_rng(0).uniform([1.0, -3.0], [2.0, 7.0], (64, 2))
    model = dmm.fit(data, space=dmm.Box([1.0, -3.0], [2.0, 7.0]), key=jax.random.key(0), steps=1)
    samples = model.sample(jax.random.key(1), 256, steps=5)
    assert np.all((samples >= jnp.array([[1.0, -3.0]])) & (samples <= jnp.array([[2.0, 7.0]])))
    np.testing.assert_allclose(model.units.log_volume(), -np.log(10.0), rtol=1e-6)


@pytest.mark.usefixtures("optimised")
def test_feynman_kac_on_the_simplex():
    """The tilted law of ϑ = 1, at three points, by 2¹⁴ paths of 100 steps: to 0.03, where the
    densities differ by 0.5; with the uniform law's score all three would be log 2."""
    process = dmm.WrightFisher(dmm.Simplex(3))
    schedule = dmm.Power(1e-4, process.horizon, 2.0)

    def score(x, tau):
        return process.at_rest(x) + jax.grad(lambda y: tilt(process, 1.5, 1 / 3, y, tau))(x)

    points = jnp.array([[0.1, 0.3, 0.6], [0.4, 0.4, 0.2], [0.7, 0.2, 0.1]])

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0))
    def found(key, x):
        return dmm.feynman_kac(process, score, schedule, key, x, steps=100, particles=2**14)

    truth = jax.vmap(lambda x: process.reference.log_prob(x) + tilt(process, 1.5, 1 / 3, x, 0.0))
    np.testing.assert_allclose(
        found(jax.random.split(jax.random.key(8), 3), points), truth(points), atol=0.03
    )
