"""Plots of ranks, coverage and predictive checks hold what they were given."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from dmm.diagnostics import ecdf_band
from dmm.plots import (
    expected_coverage,
    predictive_fan,
    predictive_histograms,
    rank_ecdf,
    rank_histograms,
    truths_against_draws,
)

RANDOM = np.random.default_rng(0)
RANKS = RANDOM.integers(0, 100, (400, 5))
TRUTHS = RANDOM.normal(size=(200, 5))
DRAWS = 0.5 * TRUTHS[:, None] + RANDOM.normal(size=(200, 50, 5))
LEVELS = np.linspace(0, 1, 11)
SIMULATED = RANDOM.normal(size=(500, 6))

EVERY = {
    "rank_histograms": lambda: rank_histograms(RANKS, 99),
    "rank_histograms, one column": lambda: rank_histograms(RANKS[:, 0], 99, names=["x"], bins=7),
    "rank_ecdf": lambda: rank_ecdf(np.tile(RANKS, 2), 99, level=0.9),
    "expected_coverage": lambda: expected_coverage(
        LEVELS, {"a": LEVELS, "b": LEVELS**2}, bands={"a": (0.9 * LEVELS, 1.1 * LEVELS)}
    ),
    "truths_against_draws, intervals": lambda: truths_against_draws(TRUTHS, 1e5 * DRAWS),
    "truths_against_draws, dots": lambda: truths_against_draws(TRUTHS[:, :1], DRAWS[:, :8, :1]),
    "predictive_histograms": lambda: predictive_histograms(np.arange(6.0), SIMULATED),
    "predictive_histograms, constant": lambda: predictive_histograms([2.0], np.ones((30, 1))),
    "predictive_fan": lambda: predictive_fan(np.arange(6.0), SIMULATED),
}


@pytest.mark.parametrize("name", EVERY)
def test_figures_save(name):
    drawn, file = EVERY[name](), io.BytesIO()
    assert isinstance(drawn, Figure)
    drawn.savefig(file, format="png")
    assert len(file.getvalue()) > 5_000


def test_rank_histograms_are_relative_to_uniform():
    drawn = rank_histograms(RANKS, 99, names=list("vwxyz"), bins=10)
    assert [ax.get_title() for ax in drawn.axes] == list("vwxyz")
    for ax, ranks in zip(drawn.axes, RANKS.T, strict=True):
        band, bars, _ = (patch.get_data() for patch in ax.patches)
        np.testing.assert_allclose(bars.values, np.histogram(ranks, 10, (0, 100))[0] / 40)
        assert (band.baseline < 1).all()
        assert (band.values > 1).all()


def test_rank_histograms_weigh_bins_by_their_width():
    """Ranks 0 to 10, each once: flat, though 11 ranks do not divide into 4 bins."""
    ax = rank_histograms(np.arange(11), 10, bins=4).axes[0]
    np.testing.assert_allclose(ax.patches[1].get_data().values, 1.0)


def test_rank_ecdf_is_the_distribution_function_less_uniform():
    ax = rank_ecdf(RANKS[:, :2], 99, names=["a", "b"]).axes[0]
    zero, first, second = ax.lines
    x, y = first.get_data()
    assert x[30] == pytest.approx(0.3)
    assert y[30] == pytest.approx(np.mean(RANKS[:, 0] < 30) - 0.3)
    assert (y[0], y[-1]) == (0.0, 0.0)
    assert list(zero.get_ydata()) == [0, 0]
    assert second.get_label() == "b"
    band = ecdf_band(400, 99)
    corners = ax.collections[0].get_paths()[0].vertices
    assert corners[:, 1].max() == pytest.approx((band.high - band.places).max())
    assert corners[:, 1].min() == pytest.approx((band.low - band.places).min())


def test_expected_coverage_has_a_diagonal_and_each_curve():
    ax = EVERY["expected_coverage"]().axes[0]
    diagonal, first, second = ax.lines
    np.testing.assert_array_equal(*diagonal.get_data())
    np.testing.assert_array_equal(second.get_ydata(), LEVELS**2)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert first.get_color() != second.get_color()
    assert len(ax.collections) == 1


def test_truths_lie_along_x_and_draws_along_y():
    few = truths_against_draws(TRUTHS, DRAWS[:, :8], names=list("vwxyz")).axes[1]
    places = few.collections[0].get_offsets()
    np.testing.assert_array_equal(places[:, 0], np.repeat(TRUTHS[:, 1], 8))
    np.testing.assert_array_equal(places[:, 1], DRAWS[:, :8, 1].ravel())
    assert few.get_xlim() == few.get_ylim()
    lines, medians = truths_against_draws(TRUTHS, DRAWS, level=0.5).axes[1].collections
    np.testing.assert_allclose(medians.get_offsets()[:, 1], np.median(DRAWS[:, :, 1], axis=1))
    ends = np.array(lines.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.quantile(DRAWS[:, :, 1], [0.25, 0.75], axis=1).T)


def test_predictive_histograms_mark_the_observed_within_their_limits():
    drawn = predictive_histograms([9.0, 0.0], SIMULATED[:, :2], names=["a", "b"], p_values=[0, 0.5])
    first, second = drawn.axes
    np.testing.assert_array_equal(first.lines[0].get_xdata(), [9.0, 9.0])
    assert first.get_xlim()[1] > 9.0
    assert second.get_title() == "b   p = 0.5"


def test_the_fan_holds_the_quantiles():
    at = np.array([0.0, 1.0, 3.0, 4.0, 5.0, 9.0])
    ax = predictive_fan(np.arange(6.0), SIMULATED, at=at, xlabel="time (s)").axes[0]
    assert ax.get_xlabel() == "time (s)"
    ends = [path.get_paths()[0].get_extents() for path in ax.collections]
    for shade, mass in zip(ends, (0.99, 0.9, 0.5), strict=True):
        low, high = np.quantile(SIMULATED, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
        assert (shade.y0, shade.y1) == (pytest.approx(low.min()), pytest.approx(high.max()))
        assert (shade.x0, shade.x1) == (0.0, 9.0)
    np.testing.assert_array_equal(ax.lines[1].get_data(), [at, np.arange(6.0)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_histograms(RANKS, 50), "ranks must be whole numbers from 0 to draws = 50"),
        (lambda: rank_histograms(RANKS + 0.5, 100), "ranks must be whole numbers"),
        (lambda: rank_histograms(RANKS, 99, names=["a"]), "names must be 5"),
        (lambda: rank_histograms(RANKS, 99, bins=101), "bins must be from 2 to 100"),
        (lambda: rank_histograms(RANKS, 99, level=95), "level must lie between"),
        (lambda: rank_histograms(np.tile(RANKS, 3), 99), "at most 12"),
        (lambda: rank_ecdf(RANKS[None], 99), r"ranks must be an array \(n, d\)"),
        (lambda: expected_coverage(LEVELS, {}), "curves must be a dict"),
        (lambda: expected_coverage(LEVELS, {"a": LEVELS[1:]}), r"curves\['a'\].*\(11,\)"),
        (
            lambda: expected_coverage(LEVELS, {"a": LEVELS}, bands={"b": (LEVELS, LEVELS)}),
            r"bands must be of curves, \['a'\], not of \['b'\]",
        ),
        (lambda: truths_against_draws(TRUTHS, DRAWS[:9]), r"samples.*\(200, draws, 5\)"),
        (lambda: truths_against_draws(TRUTHS, DRAWS * np.nan), "samples must be finite"),
        (lambda: predictive_histograms(np.zeros(5), SIMULATED), r"observed.*\(6,\)"),
        (lambda: predictive_histograms(np.full(6, np.nan), SIMULATED), "observed must be finite"),
        (lambda: predictive_histograms(np.zeros(30), np.zeros((9, 30))), "more than the 24"),
        (lambda: predictive_histograms(np.zeros(6), SIMULATED, names=["a"]), "names must be 6"),
        (lambda: predictive_fan(np.zeros(1), SIMULATED[:, :1]), "at least 2 columns"),
        (lambda: predictive_fan(np.zeros(6), SIMULATED, at=np.zeros(6)), "at must rise"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
