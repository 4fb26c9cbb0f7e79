"""Figures hold what they were given: axes, limits, data; and refuse what they cannot draw."""

import io

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from dmm.plots import (
    density2d,
    figure,
    image_grid,
    losses,
    marginals,
    pairs,
    paths,
    scatter2d,
    sphere_map,
    ternary,
)
from dmm.plots.maps import mollweide


def normal(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def bell(x):
    """Wider along x than along y, so that a swap of the two shows."""
    return -0.5 * (x[0] ** 2 + 4 * x[1] ** 2)


SQUARE = ((-3.0, 3.0), (-2.0, 2.0))
GRID = (np.linspace(-3, 3, 31), np.linspace(-2, 2, 21), np.zeros((21, 31)))
NOISE = normal((4, 28, 28)) ** 2
FALLING = np.append(np.geomspace(5.0, 1e-3, 20), 0.0)

THIRDS = np.full((40, 3), 1 / 3)

EVERY = {
    "scatter2d": lambda: scatter2d({"a": normal((50, 2)), "b": normal((5000, 2))}),
    "scatter2d, one point": lambda: scatter2d({"a": np.zeros((1, 2))}),
    "density2d": lambda: density2d({"a": bell, "b": bell}, limits=SQUARE),
    "density2d, log": lambda: density2d({"a": bell}, limits=SQUARE, log=True),
    "density2d, grid": lambda: density2d({"a": GRID, "b": bell}),
    "losses": lambda: losses(np.arange(9), {"a": normal(9), "b": normal(9)}),
    "losses, log": lambda: losses(np.arange(1, 9), {"a": normal(8)}, log_x=True),
    "pairs": lambda: pairs({"a": normal((2000, 3)), "b": normal((50, 3))}, truth=np.zeros(3)),
    "pairs, one column": lambda: pairs({"a": normal((2000, 1))}, names=["x"]),
    "pairs, constant column": lambda: pairs({"a": np.c_[normal(2000), np.ones(2000)]}),
    "marginals": lambda: marginals({"a": normal((2000, 5)), "b": normal((50, 5))}, names="vwxyz"),
    "marginals, one column": lambda: marginals({"a": np.ones((9, 1))}, densities={0: jnp.cos}),
    "images": lambda: image_grid({"a": NOISE[:3], "b": np.ones((3, 28, 28))}),
    "images in colour": lambda: image_grid({"a": np.stack([NOISE[:, :20]] * 3, -1)}, top=1.0),
    "images, without names": lambda: image_grid([NOISE, NOISE]),
    "images, with gaps": lambda: image_grid({"a": np.where(NOISE > 2, np.nan, NOISE)}),
    "ternary": lambda: ternary({"a": THIRDS, "b": lambda x: jnp.sum(jnp.log(x))}),
    "sphere": lambda: sphere_map({"a": normal((99, 3)), "b": lambda x: 3 * x[0]}),
    "sphere, log": lambda: sphere_map({"a": lambda x: 9 * x[2]}, log=True),
    "paths, line": lambda: paths(FALLING, normal((21, 4, 1))),
    "paths, plane": lambda: paths(FALLING, normal((21, 4, 2))),
    "paths, rising": lambda: paths(FALLING[::-1], normal((21, 4, 2))),
    "paths, two times": lambda: paths([2.0, 1.0], normal((2, 4, 2))),
}


@pytest.mark.parametrize("name", EVERY)
def test_figures_save(name):
    drawn, file = EVERY[name](), io.BytesIO()
    assert isinstance(drawn, Figure)
    drawn.savefig(file, format="png")
    image = file.getvalue()
    assert image.startswith(b"\x89PNG")
    assert len(image) > 5_000


def test_figure_has_its_axes_and_leaves_the_settings():
    before = dict(matplotlib.rcParams)
    drawn, axes = figure(2, 3, size=(2.0, 1.0))
    assert axes.shape == (2, 3)
    np.testing.assert_allclose(drawn.get_size_inches(), (6.0, 2.0))
    assert dict(matplotlib.rcParams) == before


def test_scatter2d_panels_share_limits_that_hold_every_point():
    clouds = {"a": normal((100, 2)), "b": 3 * normal((100, 2), 1) + 5}
    axes = scatter2d(clouds).axes
    assert [ax.get_title() for ax in axes] == ["a", "b"]
    assert axes[0].get_xlim() == axes[1].get_xlim()
    for ax, cloud in zip(axes, clouds.values(), strict=True):
        np.testing.assert_array_equal(ax.collections[0].get_offsets(), cloud)
        assert ax.get_aspect() == 1.0
        for (low, high), column in zip((ax.get_xlim(), ax.get_ylim()), cloud.T, strict=True):
            assert low < column.min()
            assert column.max() < high
    given = scatter2d(clouds, limits=SQUARE).axes[1]
    assert (given.get_xlim(), given.get_ylim()) == SQUARE


@pytest.mark.parametrize("log", [False, True])
def test_density2d_shares_one_scale(log):
    narrow = (*GRID[:2], np.full((21, 31), np.log(7.0)))
    low, high = density2d({"a": bell, "b": narrow}, log=log).axes[:2]
    first, second = low.collections[0], high.collections[0]
    assert first.get_clim() == second.get_clim()
    assert first.get_clim()[1] == pytest.approx(np.log(7.0) if log else 7.0)
    values = first.get_array().reshape(201, 201)
    assert values[100, 100] == pytest.approx(0.0 if log else 1.0)
    # x runs along columns: at (3, 0) the exponent is −9/2.
    assert values[100, -1] == pytest.approx(-4.5 if log else np.exp(-4.5), rel=1e-5)


def test_density2d_shows_zero_density_in_a_log_map():
    empty = (*GRID[:2], np.where(np.abs(GRID[0])[None] > 1, -np.inf, np.zeros((21, 31))))
    shown = density2d({"a": empty}, log=True).axes[0].collections[0].get_array()
    assert np.isfinite(shown).all()


def test_losses_join_what_was_measured():
    ax = losses([1, 2, 3, 4], {"a": [4, 3, 2, 1], "b": [4, np.nan, np.nan, 2]}, log_x=True).axes[0]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), [[1, 4], [4, 2]])


def test_pairs_draw_the_lower_triangle_and_a_legend():
    sets = {"a": normal((2000, 4)), "b": normal((100, 4))}
    drawn = pairs(sets, truth=[0, 0, 0, 9], names=list("wxyz"))
    assert len(drawn.axes) == 10
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["a", "b", "truth"]
    low, high = drawn.axes[-1].get_xlim()
    assert low < np.quantile(sets["a"][:, 3], 0.001)
    assert high > 9
    assert [ax.get_xlabel() for ax in drawn.axes[-4:]] == list("wxyz")


def test_marginals_share_bins_and_hold_densities():
    sets = {"a": normal((2000, 30)), "b": 2 * normal((500, 30), 1)}
    exact = {4: lambda x: -0.5 * x**2 - 0.5 * jnp.log(2 * jnp.pi)}
    names = [f"part {i}" for i in range(30)]
    drawn = marginals(sets, columns=[7, 4], names=names, densities=exact)
    assert [ax.get_title() for ax in drawn.axes] == ["part 7", "part 4"]
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["a", "b", "density"]
    first, second = (patch.get_data() for patch in drawn.axes[1].patches[1:])
    np.testing.assert_array_equal(first.edges, second.edges)
    for heights, values in ((first.values, sets["a"]), (second.values, sets["b"])):
        share = np.sum(heights * np.diff(first.edges))
        inside = (values[:, 4] >= first.edges[0]) & (values[:, 4] <= first.edges[-1])
        assert share == pytest.approx(inside.mean())
        assert share > 0.99
    x, y = drawn.axes[1].lines[0].get_data()
    np.testing.assert_allclose(y, np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi), rtol=1e-4)
    assert not drawn.axes[0].lines


def test_marginals_mark_the_truth_within_their_limits():
    ax = marginals({"a": normal((2000, 3))}, columns=[2], truth=[0.0, 0.0, 9.0]).axes[0]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [9.0, 9.0])
    assert ax.get_xlim()[1] > 9.0


def test_paths_run_in_the_order_walked():
    points = normal((21, 4, 1))
    ax = paths(FALLING, points).axes[0]
    assert ax.get_xlim() == (5.0, 0.0)
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), points[:, 2, 0])
    assert paths(FALLING[:-1], points[:-1]).axes[0].get_xscale() == "log"


def test_paths_colour_each_segment_by_its_tau():
    points = normal((21, 4, 2))
    ax = paths(FALLING, points).axes[0]
    lines = ax.collections[0]
    np.testing.assert_array_equal(lines.get_array().reshape(20, 4)[:, 1], FALLING[:-1])
    segments = np.asarray(lines.get_segments()).reshape(20, 4, 2, 2)
    np.testing.assert_array_equal(segments[5, 3], points[[5, 6], 3])
    low, high = ax.get_xlim()
    assert low < points[..., 0].min()
    assert points[..., 0].max() < high


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figure(0, 1), "rows and columns"),
        (lambda: scatter2d({}), "panels must be a dict"),
        (lambda: scatter2d({"a": normal((5, 3))}), r"panels\['a'\].*\(n, 2\)"),
        (lambda: scatter2d({"a": np.full((5, 2), np.nan)}), r"panels\['a'\] must be finite"),
        (
            lambda: scatter2d({"a": normal((5, 2))}, limits=((1.0, 0.0), (0.0, 1.0))),
            "limits must be",
        ),
        (lambda: density2d({"a": bell}), "limits must be given"),
        (lambda: density2d({"a": (1, 2)}), "function of a point"),
        (lambda: density2d({"a": (*GRID[:2], GRID[2].T)}), r"values of panels\['a'\]"),
        (lambda: density2d({"a": lambda x: bell(x) * jnp.nan}, limits=SQUARE), "no NaN"),
        (lambda: density2d({"a": lambda x: x}, limits=SQUARE), "to a scalar"),
        (lambda: losses(np.arange(5), {"a": normal(4)}), r"curves\['a'\].*\(5,\)"),
        (lambda: losses(np.arange(5), {"a": normal(5)}, log_x=True), "steps must be positive"),
        (lambda: pairs({"a": normal(5)}), r"samples\['a'\].*\(n, d\)"),
        (lambda: pairs({"a": normal((5, 3)), "b": normal((5, 2))}), r"samples\['b'\].*\(n, 3\)"),
        (lambda: pairs({"a": normal((5, 13))}), "at most 12 columns"),
        (lambda: pairs({"a": normal((5, 3))}, truth=[1.0]), r"truth.*\(3,\)"),
        (lambda: pairs({"a": normal((5, 3))}, names=["x"]), "names must be 3"),
        (lambda: marginals({"a": normal(5)}), r"samples\['a'\].*\(n, d\)"),
        (lambda: marginals({"a": normal((5, 3)), "b": normal((5, 2))}), r"samples\['b'\].*\(n, 3"),
        (lambda: marginals({"a": normal((5, 3))}, truth=[1.0]), r"truth.*\(3,\)"),
        (lambda: marginals({"a": normal((5, 13))}), "more than the 12.*choose some by columns"),
        (lambda: marginals({"a": normal((5, 3))}, columns=[3]), "columns must be 1 to 12.*to 2"),
        (lambda: marginals({"a": normal((5, 3))}, columns=[]), "columns must be 1 to 12"),
        (lambda: marginals({"a": normal((5, 3))}, columns=[1.5]), "columns must be 1 to 12"),
        (lambda: marginals({"a": normal((5, 3))}, names=["x"]), "names must be 3"),
        (
            lambda: marginals({"a": normal((5, 3))}, densities={3: bell}),
            "densities must have columns",
        ),
        (lambda: marginals({"a": normal((5, 1))}, densities={0: jnp.log}), r"densities\[0\] must"),
        (lambda: marginals(dict.fromkeys("abcdefg", normal((5, 1)))), "at most 6 sets"),
        (lambda: ternary({"a": normal((5, 2))}), r"panels\['a'\].*\(n, 3\)"),
        (lambda: ternary({"a": lambda x: x}), r"panels\['a'\] must be a log-density"),
        (lambda: sphere_map({"a": normal((5, 2))}), r"panels\['a'\].*\(n, 3\)"),
        (lambda: sphere_map({"a": lambda x: jnp.nan * x[0]}), r"panels\['a'\] must be a log-"),
        (lambda: paths(FALLING, normal((21, 4))), r"points must be an array \(21, n, d\)"),
        (lambda: paths(FALLING, normal((21, 4, 3))), "d 1 or 2"),
        (lambda: paths([1.0, 2.0, 1.5], normal((3, 4, 1))), "taus must rise or fall"),
        (lambda: paths([1.0, 0.0], normal((2, 4, 1))), "taus must rise or fall"),
        (lambda: paths(FALLING, np.full((21, 4, 1), np.nan)), "points must be finite"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("x64", [False, True])
def test_plots_take_jax_arrays(x64):
    with jax.enable_x64(x64), jax.numpy_rank_promotion("raise"):
        cloud = jax.random.normal(jax.random.key(0), (20, 2))
        assert len(scatter2d({"a": cloud}).axes) == 1
        assert len(density2d({"a": bell}, limits=SQUARE).axes) == 1


def test_mollweide_keeps_areas():
    """The Jacobian of the projection is cos(latitude), everywhere but at the poles."""
    longitude, latitude = (a.ravel() for a in np.meshgrid([-2.0, 0.1, 3.0], [-1.2, -0.3, 0.8, 1.4]))
    h = 1e-5

    def slope(dx, dy):
        ahead = mollweide(longitude + dx, latitude + dy)
        behind = mollweide(longitude - dx, latitude - dy)
        return [(a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)]

    (xx, yx), (xy, yy) = slope(h, 0.0), slope(0.0, h)
    np.testing.assert_allclose(xx * yy - xy * yx, np.cos(latitude), rtol=1e-4)
