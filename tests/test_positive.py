"""Positive numbers: noising, bound, sampler and training of the square-root diffusion."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dmm
from table import assert_mean

# --- Noising -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "x0", "tau"), [(1.0, 0.5, 0.7), (0.3, 0.02, 0.05), (2.5, 4.0, 1e-3), (1.0, 1e-9, 2.0)]
)
def test_noise_is_noncentral_chi_squared(alpha, x0, tau):
    """2x/(1 − e^{−τ}) has 2α degrees of freedom and noncentrality 2x_0/(e^τ − 1): 2¹⁵ draws,
    Kolmogorov–Smirnov, p above 10⁻⁴."""
    process = dmm.SquareRoot(dmm.PositiveReals(1), alpha)
    keys = jax.random.split(jax.random.key(0), 2**15)
    x = jax.jit(jax.vmap(lambda key: process.draw(key, jnp.array([x0]), tau)))(keys)
    law = stats.ncx2(2 * alpha, 2 * x0 / np.expm1(tau), scale=-np.expm1(-tau) / 2)
    assert stats.kstest(np.asarray(x, np.float64).ravel(), law.cdf).pvalue > 1e-4


@pytest.mark.parametrize("alpha", [0.4, 1.0])
def test_nothing_leaves_the_positive_numbers(alpha):
    """In single precision, from τ = 10⁻⁶ to 10 and data from 10⁻³⁰ to 10⁸: inside and finite, and
    so are targets, losses, scores and the flow with its divergence."""
    process, head = dmm.SquareRoot(dmm.PositiveReals(39), alpha), dmm.PredictElasticity()
    x0 = jnp.asarray(10.0 ** np.arange(-30, 9), jnp.float32)

    def one(key, tau):
        x, target = process.noise(key, x0, tau)

        def score(y):
            return head.score(process, jnp.ones_like(y), y, tau)

        def along(y):
            return process.flow(y, score(y))

        slopes = jax.jvp(along, (x,), (jnp.ones_like(x),))[1]
        loss = process.excess(x, target, score(x), process.at_rest(x))
        inputs = head.inputs(process, x, tau)
        return process.space.contains(x), loss, target, slopes, inputs

    taus = jnp.geomspace(1e-6, 10.0, 64)
    keys = jax.random.split(jax.random.key(1), 64)
    inside, *numbers = jax.jit(jax.vmap(one))(keys, taus)
    assert np.all(inside)
    for number in numbers:
        assert np.all(np.isfinite(number))


@pytest.mark.parametrize("x0", [0.3, 2000.0])
def test_target_has_its_size_at_small_times_in_single_precision(x0):
    """τ E Φ(u, ∇log π) → 1 as τ → 0, over 2¹⁵ draws: 5 standard errors, under 5%."""
    process = dmm.SquareRoot(dmm.PositiveReals(1))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def one(key, tau):
        x, target = process.noise(key, jnp.array([x0]), tau)
        return tau * process.phi(x, target, process.at_rest(x))

    for tau in (1e-8, 1e-6, 1e-5):
        values = one(jax.random.split(jax.random.key(2), 2**15), tau)
        assert_mean(values, 1.0, rounding=tau * (1 + x0))
        assert 5 * np.std(values) / 2**7.5 < 0.05


# --- A law that stays known: of Gamma(α) laws, scales s become 1 + (s − 1)e^{−τ} -----------------

SCALES, WEIGHTS = jnp.array([0.01, 0.3, 5.0]), jnp.array([0.3, 0.4, 0.3])


def log_law(alpha, x, tau):
    """log q_τ of the mixture, at a vector of independent entries."""
    scale = 1 + (SCALES[None] - 1) * jnp.exp(-tau)
    logs = (alpha - 1) * jnp.log(x)[:, None] - x[:, None] / scale - alpha * jnp.log(scale)
    each = jax.nn.logsumexp(logs + jnp.log(WEIGHTS)[None], 1)
    return jnp.sum(each - jax.scipy.special.gammaln(alpha))


def known(alpha):
    process = dmm.SquareRoot(dmm.PositiveReals(1), alpha)
    return process, jax.grad(lambda x, tau: log_law(alpha, x, tau))


def test_bound_is_the_likelihood_where_the_score_is_exact():
    """At two points, 2⁹ estimates of 64 draws: 5 standard errors, which are under 0.04."""
    alpha = 0.7
    process, score = known(alpha)
    schedule = dmm.default_schedule(process)

    def bound(key, x0):
        return dmm.elbo(process, score, schedule, key, x0, draws=64)

    points = jnp.array([[0.1], [4.0]])
    keys = jax.random.split(jax.random.key(3), 2**9)
    values = jax.jit(jax.vmap(jax.vmap(bound, (None, 0)), (0, None)))(keys, points)
    truth = [log_law(alpha, x, 0.0) for x in points]
    assert_mean(values, truth, rounding=1e-3)
    assert np.max(np.std(values, 0)) / 2**4.5 < 0.04


def test_targets_have_the_known_score_as_their_mean():
    """E⟨target − score, av⟩ = 0 for three fields v, over data and noise: 2¹⁶ draws, 5 standard
    errors. The score's own part is more than 10."""
    process, score = known(2.0)

    def one(key, tau):
        which_key, data_key, noise_key = jax.random.split(key, 3)
        scale = SCALES[jax.random.categorical(which_key, jnp.log(WEIGHTS))]
        x0 = scale * jnp.sum(jax.random.exponential(data_key, (2, 1)), 0)  # Gamma(2)
        x, target = process.noise(noise_key, x0, tau)
        fields = jnp.stack([jnp.exp(-x), jnp.exp(-3 * x), x * jnp.exp(-x)])
        known = score(x, tau)

        def pair(v):
            return jnp.sum((target - known) * process.flux(x, v)), jnp.sum(known * v * 2 * x)

        return jax.vmap(pair)(fields)

    keys = jax.random.split(jax.random.key(4), 2**16)
    for tau in (0.02, 0.5):
        values, parts = jax.jit(jax.vmap(one, (0, None)))(keys, tau)
        assert_mean(values, np.zeros(3))
        assert np.all(np.abs(np.mean(parts, 0)) > 10 * np.std(values, 0) / 2**8)


def test_a_zero_output_is_a_power_law_early_and_the_reference_late():
    """x ∂log q = α − 1 where noise has not yet reached, the Gamma law's α − 1 − x at the end."""
    process, head = dmm.SquareRoot(dmm.PositiveReals(3), 1.5), dmm.PredictElasticity()
    x = jnp.array([0.1, 1.0, 20.0])
    output = jnp.zeros(3)
    early, late = (x * head.score(process, output, x, tau) for tau in (1e-7, process.horizon))
    assert np.allclose(early, 0.5, atol=1e-5)
    assert np.allclose(late, 0.5 - x, rtol=2e-3)


def test_splitting_is_near_the_law_in_few_steps():
    """Kolmogorov–Smirnov distance of 2¹⁴ draws in 25 steps, of which chance makes 0.016 once in
    2000 keys: under 0.025, where laws span from 0.01 to 5. Heun with reflection is 0.12 off."""
    process, score = known(1.0)
    schedule = dmm.default_schedule(process)
    assert isinstance(dmm.default_sampler(process), dmm.Splitting)

    def at(tau):
        return process.reverse(lambda x: score(x, jnp.maximum(tau, schedule.tau_min)))

    def one(key):
        start_key, key = jax.random.split(key)
        start = process.reference.sample(start_key)
        return dmm.simulate(key, dmm.Splitting(), at, start, schedule.grid(25))[0]

    x = np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), 2**14)), np.float64)
    assert np.all(x > 0)

    def cdf(y):
        return sum(float(w) * -np.expm1(-y / s) for w, s in zip(WEIGHTS, SCALES, strict=True))

    assert stats.kstest(x, cdf).statistic < 0.025


# --- End to end ----------------------------------------------------------------------------------


class Pair:
    """A log-normal number about 5, and a Gamma(2) multiple of it."""

    def sample(self, key):
        first_key, second_key = jax.random.split(key)
        x = 5 * jnp.exp(jax.random.normal(first_key))
        return jnp.stack([x, x * jax.random.gamma(second_key, 2.0)])

    def log_prob(self, x):
        first, share = jnp.log(x[0] / 5), x[1] / x[0]
        normal = -0.5 * first**2 - 0.5 * jnp.log(2 * jnp.pi)
        return normal + jnp.log(share) - share - 2 * jnp.log(x[0])


@pytest.fixture(scope="module")
def fitted():
    return dmm.fit(
        dmm.Simulator(Pair().sample),
        space=dmm.PositiveReals(2),
        key=jax.random.key(0),
        steps=1000,
        batch_size=256,
        learning_rate=3e-3,
        network=lambda *shapes: dmm.MLP(*shapes, width=48, depth=3),
    )


@pytest.mark.xdist_group("positive")
def test_training_finds_a_known_law(fitted):
    """Log-likelihood by flow within 0.08 nats of the truth on 300 points, the bound within 0.2;
    both have standard errors under 0.03. An untrained model is 2 and more below. Logarithms of
    samples have the data's means within 0.1."""
    test = jax.vmap(Pair().sample)(jax.random.split(jax.random.key(1), 300))
    log_truth = jax.vmap(Pair().log_prob)(test)
    gap = fitted.log_likelihood(test, steps=30) - log_truth
    assert abs(float(gap.mean())) < 0.08
    bound = fitted.elbo(jax.random.key(2), test, draws=128) - log_truth
    assert -0.2 < float(bound.mean()) < 0.1
    x = fitted.sample(jax.random.key(3), 2000, steps=25)
    assert bool(jax.vmap(dmm.PositiveReals(2).contains)(x).all())
    data = jax.vmap(Pair().sample)(jax.random.split(jax.random.key(4), 2000))
    np.testing.assert_allclose(jnp.log(x).mean(0), jnp.log(data).mean(0), atol=0.1)


@pytest.mark.xdist_group("positive")
def test_units_are_the_mean(fitted):
    """Up to the preview that they are taken from; and a vector's are a coordinate's own."""
    mean = 5 * np.exp(0.5) * np.array([1.0, 2.0])
    np.testing.assert_allclose(fitted.units.scale, mean, rtol=0.3)
    units = dmm.default_units(dmm.PositiveReals(2), jnp.array([[1.0, 20.0], [3.0, 60.0]]))
    np.testing.assert_allclose(units.forward(jnp.array([2.0, 20.0])), [1.0, 0.5])
    np.testing.assert_allclose(units.log_volume(), -np.log(2 * 40), rtol=1e-6)


# --- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dmm.PositiveReals(2).check([[1.0, -2.0]]), "data: expected positive numbers, got"),
        (lambda: dmm.PositiveReals(2).check([[1.0, 0.0]]), "data: 1 points hold 0 .* leave them"),
        (lambda: dmm.PositiveReals(1).check([[1e-50]]), "data: 1 points hold 0 or less than can"),
        (lambda: dmm.PositiveReals(2).check([[1.0]]), r"expected shape \(n, 2\)"),
        (lambda: dmm.PositiveReals(0), "shape: every side"),
        (lambda: dmm.SquareRoot(dmm.PositiveReals(1), 0.0), "alpha: must be positive"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
