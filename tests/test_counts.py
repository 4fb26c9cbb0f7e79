"""Counts: draws, noising, bound, sampler and training of immigration and death."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy import stats

import dmm
from dmm.processes import immigration_death
from dmm.processes.draws import binomial, poisson
from table import assert_mean

# --- Draws ---------------------------------------------------------------------------------------


def assert_law(draws, law):
    """Whole, not negative, and χ² over cells of 5 and more at 10⁻⁵; means within 5 standard errors
    where there are too many values for cells."""
    draws = np.asarray(draws, np.float64)
    assert np.all((draws >= 0) & (draws == np.round(draws)))
    low, high = law.ppf(1e-4), law.isf(1e-4)
    if high - low > 400:
        assert_mean(draws, law.mean(), rounding=1e-6 * law.mean())
        assert_mean((draws - law.mean()) ** 2 / law.var(), 1.0)
        return
    values = np.arange(low, high + 1)
    counts = np.array([np.sum(draws == k) for k in values])
    counts = np.append(counts, [np.sum(draws < low), np.sum(draws > high)])
    expected = np.append(law.pmf(values), [law.cdf(low - 1), law.sf(high)]) * len(draws)
    kept = expected > 5
    statistic = np.sum((counts - expected)[kept] ** 2 / expected[kept])
    assert stats.chi2.sf(statistic, max(kept.sum() - 1, 1)) > 1e-5


@pytest.mark.parametrize("mean", [0.003, 0.7, 15.9, 16.1, 40.0, 1e3, 1e8])
def test_poisson_draws(mean):
    """2²⁰ draws, in single precision: a hundredth of total variation would be seen."""
    assert_law(jax.jit(poisson)(jax.random.key(0), jnp.full(2**20, mean)), stats.poisson(mean))


@pytest.mark.parametrize(
    ("count", "p"),
    [(0, 0.3), (1, 0.3), (5, 0.5), (33, 0.5), (40, 0.4), (100, 0.97), (1000, 0.5), (10**8, 1e-7)],
)
def test_binomial_draws(count, p):
    """As above."""
    n = jnp.full(2**20, count, jnp.int32)
    draws = jax.jit(binomial)(jax.random.key(1), n, jnp.full(2**20, p))
    assert np.all(draws <= count)
    if count:
        assert_law(draws, stats.binom(count, p))


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("mean", [1e-8, 1e-5])
def test_rare_events_have_their_probability(mean):
    """Uniform numbers of single precision are multiples of 10⁻⁷: the sum of 2²⁵ draws is
    within 5 standard errors, and of means of 10⁻⁵ not 0."""

    def total(key):
        return jnp.sum(poisson(key, jnp.full(2**16, mean)))

    keys = jax.random.split(jax.random.key(2), 2**9)
    found = float(jnp.sum(jax.jit(lambda keys: jax.lax.map(total, keys))(keys)))
    due = 2**25 * mean
    assert found > 0 or due < 1
    assert abs(found - due) < 5 * due**0.5 + 1e-6 * due


# --- Noising -------------------------------------------------------------------------------------


def law_of(lam, x0, tau, size):
    """q_τ(· | x_0) on 0, …, size − 1, by convolution in double precision."""
    k = np.arange(size)
    return np.convolve(
        stats.binom(x0, np.exp(-tau)).pmf(k), stats.poisson(-lam * np.expm1(-tau)).pmf(k)
    )[:size]


@pytest.mark.parametrize(("lam", "x0", "tau"), [(1.0, 7, 0.3), (20.0, 3, 1.5), (0.2, 60, 0.01)])
def test_noise_is_survivors_and_newcomers(lam, x0, tau):
    """χ² of 2¹⁶ draws, at 10⁻⁵."""
    process = dmm.ImmigrationDeath(dmm.Counts(1), lam)
    keys = jax.random.split(jax.random.key(3), 2**16)
    x = jax.jit(jax.vmap(lambda key: process.draw(key, jnp.array([x0]), tau)))(keys)
    q = law_of(lam, x0, tau, 100)
    assert_law(x.ravel(), stats.rv_discrete(values=(np.arange(100), q / q.sum())))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("lam", "x0", "tau"), [(1.0, 6, 0.3), (4.0, 2, 1.5), (2.5, 0, 0.1)])
def test_mean_target_is_the_ratio(lam, x0, tau, monkeypatch):
    """Over all survivors and newcomers, in double precision: E[target | x] = q(y)/q(x), to 10⁻⁹."""
    process, size = dmm.ImmigrationDeath(dmm.Counts(()), lam), 40
    pairs = np.array(list(itertools.product(range(x0 + 1), range(size))))
    log_weight = stats.binom(x0, -np.expm1(-tau)).logpmf(pairs[:, 0])
    log_weight += stats.poisson(-lam * np.expm1(-tau)).logpmf(pairs[:, 1])

    def at(pair):
        with monkeypatch.context() as patch:
            patch.setattr(immigration_death, "binomial", lambda *_: pair[0])
            patch.setattr(immigration_death, "poisson", lambda *_: pair[1])
            return process.noise(jax.random.key(0), jnp.asarray(x0, jnp.int32), tau)

    x, target = jax.vmap(at)(jnp.asarray(pairs, float))
    q = law_of(lam, x0, tau, size + x0 + 2)
    for i in range(12):
        weight = np.where(np.asarray(x) == i, np.exp(log_weight), 0.0)
        up, down = weight @ np.asarray(target) / weight.sum()
        np.testing.assert_allclose(up, q[i + 1] / q[i], rtol=1e-9)
        np.testing.assert_allclose(down, q[i - 1] / q[i] if i else 0.0, rtol=1e-9)


@pytest.mark.parametrize("lam", [0.01, 1e6])
def test_nothing_leaves_the_counts(lam):
    """In single precision, from τ = 10⁻⁶ to 10 and data up to 10⁹: whole and not negative after
    noise and after a step back with any score, and targets, losses and rates are finite."""
    process, head = dmm.ImmigrationDeath(dmm.Counts(12), lam), dmm.PredictIntensities()
    x0 = jnp.asarray([0, 1, 2, 3, *(10**i for i in range(1, 9))], jnp.int32)
    sampler = dmm.CountBridge()

    def one(key, tau, size):
        noise_key, key = jax.random.split(key)
        x, target = process.noise(noise_key, x0, tau)

        def at(tau):
            return process.reverse(lambda y: head.score(process, jnp.full((12, 2), size), y, tau))

        s = at(tau).score_fn(x)
        y = sampler.step(key, at, x, tau, 0.5 * tau)
        z = sampler.step(key, at, y, 0.5 * tau, 0.0)
        inside = jax.vmap(process.space.contains)(jnp.stack([x, y, z]))
        loss = process.excess(x, target, s, process.at_rest(x))
        return inside, loss, target, at(tau).rates(x), head.inputs(process, x, tau)

    keys, taus = jax.random.split(jax.random.key(4), 48), jnp.geomspace(1e-6, 10.0, 48)
    sizes = jnp.tile(jnp.array([-5.0, 0.0, 5.0]), 16)
    inside, *numbers = jax.jit(jax.vmap(one))(keys, taus, sizes)
    assert np.all(inside)
    for number in numbers:
        assert np.all(np.isfinite(number))


# --- A law that stays known: mixtures of Poisson laws --------------------------------------------


def known(lam, means, shares, tau_min=1e-5):
    """The process, its exact score, and the log-law of data that are mixtures of Poisson laws."""
    process = dmm.ImmigrationDeath(dmm.Counts(()), lam)
    means, log_shares = jnp.asarray(means), jnp.log(jnp.asarray(shares))

    def log_q(x, tau):
        mean = jnp.exp(-tau) * means - lam * jnp.expm1(-tau)
        return jax.nn.logsumexp(log_shares + x * jnp.log(mean) - mean - gammaln(x + 1))

    def score(x, tau):
        n, tau = x.astype(float), jnp.maximum(tau, tau_min)
        near = jnp.stack([log_q(n + 1, tau), log_q(jnp.maximum(n - 1, 0.0), tau)])
        return near - log_q(n, tau)

    return process, score, log_q


def test_bound_is_the_likelihood_where_the_score_is_exact():
    """At four points, 2⁹ estimates of 64 draws: 5 standard errors, which are under 0.05."""
    process, score, log_q = known(3.0, [0.5, 8.0], [0.4, 0.6])
    schedule = dmm.default_schedule(process)

    def bound(key, x0):
        return dmm.elbo(process, score, schedule, key, x0, draws=64)

    points = jnp.array([0, 1, 5, 12], jnp.int32)
    keys = jax.random.split(jax.random.key(5), 2**9)
    values = jax.jit(jax.vmap(jax.vmap(bound, (None, 0)), (0, None)))(keys, points)
    assert_mean(values, [log_q(x.astype(float), 0.0) for x in points], rounding=1e-3)
    assert np.max(np.std(values, 0)) / 2**4.5 < 0.05


def distance(sampler, steps, lam, means, shares, draws=2**14):
    """Kolmogorov–Smirnov distance to the data of draws made with the exact score."""
    process, score, _ = known(lam, means, shares)
    taus = dmm.default_schedule(process).grid(steps)

    def one(key):
        start_key, key = jax.random.split(key)
        start = process.reference.sample(start_key)
        return dmm.simulate(
            key, sampler, lambda tau: process.reverse(lambda x: score(x, tau)), start, taus
        )

    x = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(6), draws)))
    assert np.all(x >= 0)
    values = np.arange(int(max(means) + 10 * max(means) ** 0.5 + 10))
    truth = sum(s * stats.poisson(m).cdf(values) for s, m in zip(shares, means, strict=True))
    return np.max(np.abs(np.searchsorted(np.sort(x), values, side="right") / draws - truth))


def test_bridge_is_near_the_law():
    """2¹⁴ draws, of which chance makes 0.016 once in 2000 keys. Data from 0 to 1000, from a
    reference of mean 1: under 0.02 in 50 steps of two evaluations, over 0.03 in 40 of one."""
    laws = (1.0, [0.2, 30.0, 1000.0], [0.3, 0.4, 0.3])
    sampler = dmm.default_sampler(dmm.ImmigrationDeath(dmm.Counts(1)))
    assert distance(sampler, 50, *laws) < 0.02
    assert distance(dmm.CountBridge(correct=False), 40, *laws) > 0.03


def test_bridge_is_exact_for_poisson_data():
    """In three steps, with one evaluation a step or two."""
    for correct in (False, True):
        assert distance(dmm.CountBridge(correct), 3, 2.0, [50.0], [1.0]) < 0.016


def test_bridge_refuses_other_processes():
    process = dmm.ImmigrationDeath(dmm.Counts(1))
    with pytest.raises(TypeError, match="generative processes of ImmigrationDeath"):
        dmm.CountBridge().step(jax.random.key(0), lambda tau: process, jnp.zeros(1, int), 1.0, 0.5)


# --- End to end ----------------------------------------------------------------------------------


class Pair:
    """A count of mean 2 or 30, and one whose mean is that count and 1."""

    def sample(self, key):
        which, first, second = jax.random.split(key, 3)
        mean = jnp.where(jax.random.bernoulli(which), 30.0, 2.0)
        n = poisson(first, mean)
        return jnp.stack([n, poisson(second, n + 1)]).astype(jnp.int32)

    def log_prob(self, x):
        def log_poisson(n, mean):
            return n * jnp.log(mean) - mean - gammaln(n + 1)

        n, m = x.astype(float)
        first = jnp.logaddexp(log_poisson(n, 2.0), log_poisson(n, 30.0)) - jnp.log(2.0)
        return first + log_poisson(m, n + 1)


def test_training_finds_a_known_law():
    """The bound within 0.3 nats of the truth on 300 points, its standard error under 0.08; samples
    are counts, with quantiles of both and of their difference near the data's: KS distance of
    2000 each under 0.08, of which chance makes 0.065 once in 2000 keys."""
    model = dmm.fit(
        dmm.Simulator(Pair().sample),
        process=dmm.ImmigrationDeath(dmm.Counts(2), 15.0),
        key=jax.random.key(0),
        steps=1000,
        batch_size=256,
        learning_rate=3e-3,
        network=lambda *shapes: dmm.MLP(*shapes, width=32, depth=3),
    )
    test = jax.vmap(Pair().sample)(jax.random.split(jax.random.key(1), 300))
    bound = model.elbo(jax.random.key(2), test, draws=128)
    gap = bound - jax.vmap(Pair().log_prob)(test)
    assert float(gap.std()) / 300**0.5 < 0.08
    assert -0.3 < float(gap.mean()) < 0.2
    x = np.asarray(model.sample(jax.random.key(3), 2000, steps=25))
    assert x.dtype == np.int32
    assert np.all(x >= 0)
    data = np.asarray(jax.vmap(Pair().sample)(jax.random.split(jax.random.key(4), 2000)))
    for a, b in ((x[:, 0], data[:, 0]), (x[:, 1], data[:, 1]), (x @ [-1, 1], data @ [-1, 1])):
        assert stats.ks_2samp(a, b).statistic < 0.08


def test_factors_of_a_mixed_product_are_sampled_in_turn():
    """A count of mean 2 or 300 beside an exponential number of mean 0.1 or 3: KS distances of 2¹²
    draws, of which chance makes 0.032 once in 2000 keys, under 0.035 in 30 steps, and the second's
    means given the first within 8%. Euler's, of one jump a step, hardly reaches counts of 100."""
    process = dmm.default_process(dmm.Product(dmm.Counts(()), dmm.PositiveReals(())))
    means, scales = jnp.array([2.0, 300.0]), jnp.array([0.1, 3.0])

    def log_q(n, y, tau):
        mean = 1 + (means - 1) * jnp.exp(-tau)
        scale = 1 + (scales - 1) * jnp.exp(-process.speeds[1] * tau)
        return jax.nn.logsumexp(
            n * jnp.log(mean) - mean - gammaln(n + 1) - y / scale - jnp.log(scale)
        )

    def score(x, tau):
        n, y, tau = x[0].astype(float), x[1], jnp.maximum(tau, 1e-5)
        near = jnp.stack([log_q(n + 1, y, tau), log_q(jnp.maximum(n - 1, 0.0), y, tau)])
        return near - log_q(n, y, tau), jax.grad(log_q, 1)(n, y, tau)

    sampler = dmm.default_sampler(process)
    taus = dmm.Power(1e-5, process.horizon, 3.0).grid(30)

    def one(key):
        start_key, key = jax.random.split(key)
        start = process.reference.sample(start_key)
        return dmm.simulate(
            key, sampler, lambda tau: process.reverse(lambda x: score(x, tau)), start, taus
        )

    x, y = map(np.asarray, jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), 2**12)))
    values = np.arange(400)
    truth = 0.5 * (stats.poisson(2).cdf(values) + stats.poisson(300).cdf(values))
    found = np.searchsorted(np.sort(x), values, side="right") / len(x)
    assert np.max(np.abs(found - truth)) < 0.035
    assert stats.kstest(y, lambda v: 1 - 0.5 * (np.exp(-10 * v) + np.exp(-v / 3))).statistic < 0.035
    np.testing.assert_allclose([y[x < 50].mean(), y[x > 50].mean()], [0.1, 3.0], rtol=0.08)


def test_mixed_products_are_fitted_and_sampled():
    """Counts beside positive numbers: two steps of training, inside the space at any weights."""
    space = dmm.Product(dmm.Counts(1), dmm.PositiveReals(1))
    random = np.random.default_rng(0)
    data = (random.poisson(4.0, (64, 1)), random.gamma(2.0, 3.0, (64, 1)))
    model = dmm.fit(data, space=space, key=jax.random.key(0), steps=2, batch_size=8)
    x = model.sample(jax.random.key(1), 64, steps=20)
    assert bool(jax.vmap(space.contains)(x).all())


# --- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dmm.Counts(2).check([[1, -2]]), "data: counts are not negative, got -2"),
        (lambda: dmm.Counts(1).check([[0.5]]), "data: counts are whole numbers, got 0.5; round"),
        (lambda: dmm.Counts(1).check([[2.0**31]]), "data: counts go up to 1073741824"),
        (lambda: dmm.Counts(2).check([[1]]), r"expected shape \(n, 2\)"),
        (lambda: dmm.Counts(0), "shape: every side"),
        (lambda: dmm.ImmigrationDeath(dmm.Counts(1), 0.0), "mean: must be positive"),
        (lambda: dmm.ImmigrationDeath(dmm.Counts(2), [1.0]), "mean: expected one number or shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
