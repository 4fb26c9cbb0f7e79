"""Calibration: exact null laws, power against wrong posteriors, and plain refusals.

The truth is θ ~ N(0, I), x = θ + N(0, I/4), whose posterior is N(0.8 x, 0.2 I). Null laws are
tested at level 1e-4: with fixed keys a failure by chance is one in 10,000 a test, once and for all.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dmm.diagnostics import (
    calibrate,
    ecdf_band,
    local_c2st,
    nearest_truths,
    predictive_check,
    sbc,
    tarp,
)
from dmm.diagnostics.points import robust
from dmm.diagnostics.uniformity import below, chi_square_p_value, cuts, ecdf_p_value

SD = 0.2**0.5
WRONG = {
    "too narrow": {"width": 0.7},
    "too wide": {"width": 1.4},
    "too high": {"shift": 0.4},
    "too low": {"shift": -0.4},
}


def key(seed=0):
    return jax.random.key(seed)


class Simulated(NamedTuple):
    truths: np.ndarray
    samples: np.ndarray
    observations: np.ndarray


def simulated(seed=0, n=300, draws=99, d=2, width=1.0, shift=0.0):
    """Draws of a posterior wider by a factor, and shifted by some standard deviations."""
    random = np.random.default_rng(seed)
    truths = random.normal(size=(n, d))
    observations = truths + 0.5 * random.normal(size=(n, d))
    noise = random.normal(size=(n, draws, d))
    return Simulated(
        truths, 0.8 * observations[:, None] + SD * (shift + width * noise), observations
    )


def assert_uniform(p_values, conservative=False):
    """At level 1e-4; conservative ones may lie above uniform ones."""
    alternative = "greater" if conservative else "two-sided"
    assert stats.kstest(p_values, "uniform", alternative=alternative).pvalue > 1e-4


# --- Uniformity ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "draws"), [(4, 3), (6, 4)])
def test_the_ecdf_test_is_exact(n, draws):
    """Over all (draws + 1)ⁿ rank vectors: P(p ≤ p₀) = p₀ at every value p₀ that p may have.

    The band has the least such coverage at or above its level, and is left iff p ≤ 1 − level.
    """
    vectors = list(itertools.combinations_with_replacement(range(draws + 1), n))
    equal = stats.multinomial(n, np.full(draws + 1, 1 / (draws + 1)))
    weights = np.array([equal.pmf(np.bincount(v, minlength=draws + 1)) for v in vectors])
    p = np.array([ecdf_p_value(np.array(v), draws) for v in vectors])
    for value in p:
        assert weights[p <= value + 1e-12].sum() == pytest.approx(value, abs=1e-9)
    level = 0.8
    band, places = ecdf_band(n, draws, level), cuts(n, draws)
    counts = np.array([below(np.array(v), places) for v in vectors]) / n
    held = ((counts >= band.low - 1e-9) & (counts <= band.high + 1e-9)).all(axis=1)
    np.testing.assert_array_equal(held, p > 1 - level)
    assert weights[held].sum() >= level


def test_the_band_holds_as_often_as_it_says():
    """In 4,000 simulations, within five standard errors."""
    n, draws, level = 200, 99, 0.9
    ranks = np.random.default_rng(0).integers(0, draws + 1, (4_000, n))
    band, places = ecdf_band(n, draws, level), cuts(n, draws)
    shares = np.array([below(row, places) for row in ranks]) / n
    held = ((shares >= band.low - 1e-9) & (shares <= band.high + 1e-9)).all(axis=1).mean()
    assert held == pytest.approx(level, abs=5 * (0.9 * 0.1 / 4_000) ** 0.5)


def test_far_tails_keep_their_digits():
    """All of 100 ranks at 0: the likeliest of the tails bounds the p-value, far below rounding."""
    assert 0 < ecdf_p_value(np.zeros(100, int), 99) < 1e-100


@pytest.mark.parametrize("p_value", [ecdf_p_value, chi_square_p_value])
def test_p_values_of_uniform_ranks_are_uniform(p_value):
    ranks = np.random.default_rng(1).integers(0, 100, (300, 200))
    assert_uniform([p_value(row, 99) for row in ranks])


# --- Ranks and coverage --------------------------------------------------------------------------


def test_p_values_are_uniform_for_right_posteriors():
    """Of SBC, of TARP about random points and about the nearest truths; in 100 repetitions."""
    found = []
    for seed in range(100):
        truths, samples, seen = simulated(seed, n=100)
        ranks = sbc(truths, samples)
        near = tarp(
            truths, samples, key=key(seed), references=nearest_truths(truths, seen), resamples=1
        )
        far = tarp(truths, samples, key=key(seed), resamples=1)
        found.append((ranks.ecdf[0], ranks.chi_square[1], near.p_value, far.p_value, ranks.p_value))
    for column in np.array(found).T[:4]:
        assert_uniform(column)
    assert_uniform(np.array(found)[:, 4], conservative=True)


def test_coverage_ranks_are_uniform_for_few_simulations():
    """What is made of all truths, units and references, favours none, and not the draws either."""
    ranks = []
    for seed in range(300):
        truths, samples, seen = simulated(seed, n=20, draws=10, d=6)
        for references in (None, nearest_truths(truths, seen)):
            ranks.append(
                tarp(truths, samples, key=key(seed), references=references, resamples=1).ranks
            )
    near, far = np.concatenate(ranks[1::2]), np.concatenate(ranks[::2])
    for found in (near, far):
        assert stats.chisquare(np.bincount(found, minlength=11)).pvalue > 1e-4


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_posteriors_are_found_and_described(fault):
    truths, samples, seen = simulated(**WRONG[fault])
    ranks = sbc(truths, samples, names=["a", "b"])
    assert ranks.p_value < 1e-4
    assert ranks.departures() == {"a": fault, "b": fault}
    near = tarp(truths, samples, key=key(), references=nearest_truths(truths, seen))
    assert near.p_value < 0.01 or "high" in fault or "low" in fault  # balls hardly see shifts
    if fault == "too narrow":
        assert near.coverage[len(near.levels) * 3 // 4] < near.levels[len(near.levels) * 3 // 4]


def test_right_posteriors_have_no_departures():
    assert sbc(*simulated(3)[:2]).departures() == {}


def test_the_prior_passes_for_a_posterior_only_with_random_references():
    truths, _, seen = simulated()
    samples = np.random.default_rng(9).normal(size=(300, 99, 2))
    assert sbc(truths, samples).p_value > 0.01
    assert tarp(truths, samples, key=key()).p_value > 0.01
    references = nearest_truths(truths, seen)
    assert tarp(truths, samples, key=key(), references=references).p_value < 1e-6

    def misfit(theta, x):
        return np.sum((theta - x) ** 2, axis=-1)

    quantities = {"misfit": (misfit(truths, seen), misfit(samples, seen[:, None]))}
    assert sbc(truths, samples, quantities=quantities).departures() == {"misfit": "too high"}


def test_equal_values_are_ranked_at_random():
    """Bernoulli parameters and draws of their law: in a fixed order few ranks would occur."""
    random = np.random.default_rng(2)
    truths = random.integers(0, 2, (2000, 1))
    samples = random.integers(0, 2, (2000, 10, 1))
    found = sbc(truths, samples, key=key(3))
    assert found.p_value > 1e-3
    again = sbc(truths, samples, key=key(3))
    np.testing.assert_array_equal(found.ranks, again.ranks)


def test_ranks_count_the_draws_below():
    truths, samples, _ = simulated(n=20, draws=10)
    found = sbc(truths, samples)
    np.testing.assert_array_equal(found.ranks, (samples < truths[:, None]).sum(1))
    assert found.names == ("theta[0]", "theta[1]")
    # Coverage at a level is the share of ranks below it.
    near = tarp(truths, samples, key=key())
    shares = [np.mean(near.ranks < level * 11 - 1e-9) for level in near.levels]
    np.testing.assert_allclose(near.coverage, shares)
    assert (near.low <= near.coverage + 1e-9).all()
    assert (near.coverage <= near.high + 1e-9).all()


def test_coverage_does_not_depend_on_units():
    truths, samples, seen = simulated(n=50)
    units = np.array([1e6, 1e-6])
    references = nearest_truths(truths, seen)
    scaled = nearest_truths(truths * units, seen * units)
    np.testing.assert_allclose(scaled, references * units)
    first = tarp(truths, samples, key=key(), references=references)
    second = tarp(truths * units, samples * units, key=key(), references=scaled)
    np.testing.assert_array_equal(first.ranks, second.ranks)


def test_nearest_truths_are_earlier_ones():
    truths, _, seen = simulated(n=30)
    found = nearest_truths(truths, {"a": seen[:, :1], "b": seen[:, 1]})
    units = robust(seen, seen)
    for i in range(1, 30):
        at = np.argmin(((units[:i] - units[i]) ** 2).sum(1))
        np.testing.assert_array_equal(found[i], truths[at])
    np.testing.assert_array_equal(found[0], 0.0)


# --- One observation -----------------------------------------------------------------------------


def locally_wrong(seed, width, n=800):
    """A posterior that is too narrow or wide where x₀ > 0, and right elsewhere."""
    right = simulated(seed, n=n, draws=20)
    wrong = simulated(seed, n=n, draws=20, width=width)
    where = right.observations[:, :1, None] > 0
    return right._replace(samples=np.where(where, wrong.samples, right.samples))


def local(data, place, width=1.0, seed=0, **settings):
    noise = np.random.default_rng(seed + 1000).normal(size=(300, 2))
    drawn = 0.8 * place + SD * width * noise
    return local_c2st(*data, drawn=drawn, observation=place, key=key(seed), **settings)


def test_local_p_values_are_uniform_for_right_posteriors():
    place = np.array([1.2, 0.0])
    settings = {"permutations": 99, "features": 60}
    found = [
        local(simulated(seed, n=100, draws=15), place, seed=seed, **settings) for seed in range(100)
    ]
    assert_uniform([one.p_value for one in found])
    # Each p-value is the truth's place among the permutations.
    ranks = [(1 + np.sum(one.null >= one.statistic)) / 100 for one in found]
    np.testing.assert_allclose(ranks, [one.p_value for one in found])


@pytest.mark.parametrize("width", [0.6, 1.6])
def test_the_local_test_knows_where_a_posterior_is_wrong(width):
    """p < 0.01 where it is, in each of four repetitions; above 0.05 on the other side, in most."""
    here, there = np.array([1.5, 0.0]), np.array([-1.5, 0.0])
    elsewhere = []
    for seed in range(4):
        data = locally_wrong(seed, width)
        found = local(data, here, width, seed)
        assert found.p_value < 0.01
        elsewhere.append(local(data, there, seed=seed).p_value)
    assert np.median(elsewhere) > 0.05


def test_local_probabilities_point_to_the_missing_mass():
    """Too narrow a posterior lacks draws far from its centre: P(truth) is larger there."""
    place = np.zeros(2)
    data = simulated(n=500, draws=20, width=0.6)
    noise = np.random.default_rng(0).normal(size=(300, 2))
    found = local_c2st(*data, drawn=0.6 * SD * noise, observation=place, key=key())
    far = np.linalg.norm(noise, axis=1) > 1.5
    assert found.probabilities[far].mean() > 0.6 > 0.5 > found.probabilities[~far].mean()
    assert ((found.probabilities >= 0) & (found.probabilities <= 1)).all()


def test_local_draws_of_a_discrete_or_constant_parameter_do_no_harm():
    truths, samples, seen = simulated(n=60, draws=12)
    truths, samples = (np.c_[a, np.ones((*a.shape[:-1], 1))] for a in (truths, samples))
    found = local_c2st(
        truths, samples, {"x": seen}, drawn=samples[0], observation={"x": seen[0]}, key=key()
    )
    assert np.isfinite(found.statistic)


# --- Predictive checks ---------------------------------------------------------------------------


def mixed(random, m):
    """Correlated, heavy-tailed numbers, one of them whole."""
    a = random.standard_t(3, (m, 3))
    return np.c_[a, a[:, 0] + 0.1 * random.normal(size=m), random.poisson(2, m)]


def test_predictive_p_values_of_one_more_simulation_are_uniform():
    found = []
    for seed in range(300):
        rows = mixed(np.random.default_rng(seed), 200)
        check = predictive_check(rows[0], rows[1:])
        found.append((check.p_value, check.adjusted.min(), check.tails[0], check.tails[4]))
    for column in np.array(found).T[:3]:
        assert_uniform(column)
    assert_uniform(np.array(found)[:, 3], conservative=True)  # of whole numbers


def test_predictive_p_values_are_exact_for_few_simulations():
    """The observation's place among 21, by its distance and by its farthest number, is uniform."""
    places = []
    for seed in range(600):
        rows = np.random.default_rng(seed).normal(size=(21, 4))
        check = predictive_check(rows[0], rows[1:])
        places.append((round(check.p_value * 21), round(check.adjusted.min() * 21)))
    for column in np.array(places).T:
        assert stats.chisquare(np.bincount(column, minlength=22)[1:]).pvalue > 1e-4


def test_predictive_departures_are_named_worst_first():
    rows = {"level": np.random.default_rng(0).normal(size=(400, 3)), "peak": np.arange(400.0)}
    check = predictive_check({"level": np.array([0.0, 9.0, 0.0]), "peak": np.array(-3000.0)}, rows)
    assert check.names == ("level[0]", "level[1]", "level[2]", "peak")
    assert list(check.departures()) == ["peak", "level[1]"]
    assert check.departures()["level[1]"].startswith("above 100% of simulations (+")
    assert check.departures()["peak"].startswith("below 100% of simulations (-")
    assert check.p_value == pytest.approx(1 / 401)
    np.testing.assert_allclose(check.tails[[1, 3]], 2 / 401)


def test_predictive_checks_see_combinations():
    """Each number is ordinary; that they differ is not, since they never do."""
    first = np.random.default_rng(0).normal(size=(500, 1))
    rows = np.c_[first, first + 0.05 * np.random.default_rng(1).normal(size=(500, 1))]
    check = predictive_check(np.array([1.0, -1.0]), rows, names=["a", "b"])
    assert check.departures() == {}
    assert check.p_value == pytest.approx(1 / 501)


# --- A posterior ---------------------------------------------------------------------------------


class Exact:
    """The posterior itself, in the form of a model: points are tuples."""

    def __init__(self, width=1.0):
        self.width, self.calls = width, 0

    def sample(self, key, n, *, given, steps=1):
        self.calls += steps
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        noise = random.normal(size=(len(given), n, 2))
        theta = 0.8 * given[:, None] + SD * self.width * noise
        return theta[..., 0], theta[..., 1:]


class Named(Exact):
    """The same with the parameters of a posterior: a dict, flattened by names."""

    names = ("a", "b[0]")
    parameters = property(lambda self: self)

    def sample(self, key, n, *, given, steps=1):
        a, b = super().sample(key, n, given=given, steps=steps)
        return {"b": b, "a": a}

    @staticmethod
    def flat(theta):
        return np.concatenate([np.asarray(theta["a"])[..., None], theta["b"]], axis=-1)


class Blind:
    """The prior, which passes every test of ranks."""

    def sample(self, key, n, *, given):
        return np.random.default_rng(9).normal(size=(len(given), n, 2))


def test_calibrate_draws_and_judges():
    truths, _, seen = simulated(n=200)
    seen = jnp.asarray(seen)
    plain, named = Exact(), Named()
    first = calibrate(plain, (truths[:, 0], truths[:, 1:]), seen, key=key(), steps=3)
    second = calibrate(named, {"a": truths[:, 0], "b": truths[:, 1:]}, seen, key=key())
    assert plain.calls == 3
    assert first.names == ("theta[0]", "theta[1]")
    assert second.names == second.ranks.names == ("a", "b[0]")
    assert first.samples.shape == (200, 100, 2)
    np.testing.assert_array_equal(first.truths, truths)
    np.testing.assert_array_equal(first.samples, second.samples)
    np.testing.assert_array_equal(first.ranks.ranks, second.ranks.ranks)
    assert first.p_value > 1e-3
    assert calibrate(Blind(), truths, seen, key=key()).coverage.p_value < 1e-4
    wrong = calibrate(Exact(0.6), (truths[:, 0], truths[:, 1:]), seen, key=key(), draws=50)
    assert wrong.p_value < 1e-6
    assert set(wrong.ranks.departures().values()) == {"too narrow"}


# --- Refusals ------------------------------------------------------------------------------------

OK = simulated(n=30, draws=12)
NAN = np.where(np.arange(30)[:, None] == 4, np.nan, OK.truths)


def local_with(**changes):
    arguments = {
        **OK._asdict(),
        "drawn": OK.samples[0],
        "observation": OK.observations[0],
        "key": key(),
    }
    return local_c2st(**(arguments | changes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sbc(OK.truths[:, 0], OK.samples), r"truths: expected an array \(n, parameters\)"),
        (lambda: sbc(OK.truths, OK.samples[:20]), r"samples: expected an array \(30, draws, 2\)"),
        (lambda: sbc(NAN, OK.samples), "truths: 1 of 30 points hold NaN"),
        (lambda: sbc(OK.truths, OK.samples * np.nan), "samples: 30 of 30 points hold NaN"),
        (lambda: sbc(OK.truths[:9], OK.samples[:9]), "truths: 9 simulations are too few"),
        (lambda: sbc(OK.truths, OK.samples[:, :5]), "samples: 5 draws a simulation are too few"),
        (lambda: sbc(OK.truths, OK.samples, names=["a"]), "names: expected 2 strings"),
        (
            lambda: sbc(OK.truths, OK.samples, quantities={"f": (OK.truths, OK.samples)}),
            r"quantities\['f'\]: expected arrays \(30,\) and \(30, 12\)",
        ),
        (lambda: tarp(OK.truths, OK.samples, key=key(), level=1.0), "level: must lie between"),
        (lambda: tarp(OK.truths, OK.samples, key=key(), resamples=0), "resamples: must be at"),
        (
            lambda: tarp(OK.truths, OK.samples, key=key(), references=OK.truths[:5]),
            "references: expected 30 points",
        ),
        (lambda: nearest_truths(OK.truths, OK.observations[:5]), "observations: expected 30"),
        (lambda: local_with(observations=OK.observations[:5]), "observations: expected 30"),
        (lambda: local_with(observation=np.zeros(3)), "observation: has 3 numbers"),
        (lambda: local_with(observation=np.full(2, np.nan)), "observation must be finite"),
        (lambda: local_with(drawn=OK.samples[0, :5]), "drawn: 5 draws are too few"),
        (lambda: local_with(drawn=np.zeros((20, 3))), r"drawn: expected an array \(n, 2\)"),
        (lambda: local_with(permutations=3), "permutations: must be at least 20"),
        (
            lambda: predictive_check(np.zeros(3), np.zeros((50, 2))),
            r"simulations: expected \(m, 3\)",
        ),
        (lambda: predictive_check(np.zeros(2), np.zeros((5, 2))), "simulations: 5 are too few"),
        (
            lambda: predictive_check({"a": np.nan}, {"a": np.zeros(50)}),
            r"observation\[a\]: .*NaN",
        ),
        (
            lambda: predictive_check({"a": 0.0}, {"b": np.zeros(50)}),
            "simulations: have the form",
        ),
        (
            lambda: predictive_check(np.zeros(2), np.zeros((50, 2)), names=["a"]),
            "names: expected 2 strings",
        ),
        (
            lambda: calibrate(Exact(), OK.truths, OK.observations[:5], key=key()),
            "observations: expected 30",
        ),
        (
            lambda: calibrate(Exact(), OK.truths, OK.observations, key=key(), draws=3),
            "samples: 3 draws",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
