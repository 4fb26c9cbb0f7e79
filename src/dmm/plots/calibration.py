"""Are posteriors calibrated? Ranks of truths among draws, coverage, and truths against draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from ..diagnostics.uniformity import bin_edges, ecdf_band
from .arguments import extent, named, points, vector
from .densities import marks
from .style import INK, PALETTE, figure, styled

_MOST = 12
_ACROSS = 4  # panels in a row
_DOTS = 16  # draws a truth up to which all are shown
_BAND = "#dfe4ea"


@styled
def rank_histograms(
    ranks: Any,
    draws: int,
    *,
    names: Sequence[str] | None = None,
    bins: int | None = None,
    level: float = 0.95,
) -> Figure:
    """A histogram of ranks from 0 to `draws` for each column of `ranks` (n, k), k ≤ 12.

    Heights are in units of what uniform ranks have on average. A uniform histogram has each bar
    within the band with probability `level`, bar by bar: one of twenty may leave it at 0.95. A
    valley in the middle says that draws are too narrow, a hill that they are too wide, a slope that
    they are shifted.
    """
    ranks, names = _ranks(ranks, draws, names)
    _probability(level)
    n = len(ranks)
    edges = bin_edges(n, draws, bins)
    if not (np.diff(edges) > 0).all() or len(edges) < 3:
        raise ValueError(f"bins must be from 2 to {draws + 1}, one a rank, not {bins}")
    share = np.diff(edges) / (draws + 1)
    tails = np.array([[(1 - level) / 2], [(1 + level) / 2]])
    band = stats.binom.ppf(tails, n, share) / (n * share)
    heights = [np.histogram(column, edges)[0] / (n * share) for column in ranks.T]
    top = 1.08 * max(np.max(heights), band.max())
    result, panels = _grid(names)
    for ax, height in zip(panels, heights, strict=True):
        ax.stairs(band[1], edges, baseline=band[0], fill=True, color=_BAND)
        ax.axhline(1.0, color=INK, linewidth=0.8, linestyle="--")
        ax.stairs(height, edges, fill=True, color=PALETTE[0], alpha=0.25, linewidth=0)
        ax.stairs(height, edges, color=PALETTE[0], linewidth=1.2)
        ax.set(xlim=(0, draws + 1), ylim=(0, top))
        ax.set_xticks([0, draws // 2, draws])
        ax.grid(False)
    _outer(panels, "rank of the truth among the draws", "relative to uniform")
    return result


@styled
def rank_ecdf(
    ranks: Any, draws: int, *, names: Sequence[str] | None = None, level: float = 0.95
) -> Figure:
    """How far the distribution function of each column of ranks (n, k) is from the uniform one.

    The band holds the whole of a line with probability `level` if its ranks are uniform (Säilynoja,
    Bürkner & Vehtari, 2022). A line that rises, then falls says that draws are too high, and the
    reverse too low; up, down and up that they are too narrow.
    """
    ranks, names = _ranks(ranks, draws, names)
    _probability(level)
    n = len(ranks)
    band = ecdf_band(n, draws, level)
    places = np.concatenate([[0.0], band.places, [1.0]])
    limits = (np.concatenate([[0.0], side - band.places, [0.0]]) for side in (band.low, band.high))
    result, axes = figure(size=(4.6, 3.0))
    ax = axes[0, 0]
    ax.fill_between(places, *limits, color=_BAND, linewidth=0, label=_percent(level))
    ax.axhline(0.0, color=INK, linewidth=0.8, linestyle="--")
    marked = np.arange(draws + 2) / (draws + 1)
    for i, (name, column) in enumerate(zip(names, ranks.T, strict=True)):
        below = np.searchsorted(np.sort(column), np.arange(draws + 2)) / n
        look = {"color": PALETTE[i % len(PALETTE)], "linestyle": "-" if i < len(PALETTE) else ":"}
        ax.plot(marked, below - marked, label=name, **look)
    ax.set(xlabel="rank, as a share of the draws", ylabel="ECDF less uniform", xlim=(0, 1))
    result.legend(loc="outside right upper")
    return result


@styled
def expected_coverage(
    levels: Any,
    curves: Mapping[str, Any],
    *,
    bands: Mapping[str, tuple[Any, Any]] | None = None,
) -> Figure:
    """Coverage at every credibility level: `levels` (n,), a curve (n,) for each posterior.

    A calibrated one lies on the diagonal; below it regions are too small or in the wrong place,
    above it too large. `bands` are (low, high) of some of the curves.
    """
    levels = vector(levels, "levels")
    bands = {} if bands is None else dict(bands)
    if not set(bands) <= set(named(curves, "curves")):
        raise ValueError(f"bands must be of curves, {list(curves)}, not of {list(bands)}")
    if len(curves) > len(PALETTE):
        raise ValueError(f"curves must be at most {len(PALETTE)}, not {len(curves)}")
    result, axes = figure(size=(3.6, 3.5))
    ax = axes[0, 0]
    ax.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle="--")
    for colour, (name, curve) in zip(PALETTE, curves.items(), strict=False):
        curve = vector(curve, f"curves[{name!r}]", len(levels))
        ax.plot(levels, curve, color=colour, label=name)
        if name in bands:
            low, high = (vector(side, f"bands[{name!r}]", len(levels)) for side in bands[name])
            ax.fill_between(levels, low, high, color=colour, alpha=0.18, linewidth=0)
    ticks = np.linspace(0, 1, 5)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=ticks, yticks=ticks)
    ax.set(xlabel="credibility level", ylabel="expected coverage")
    ax.legend(loc="upper left")
    return result


@styled
def truths_against_draws(
    truths: Any, samples: Any, *, names: Sequence[str] | None = None, level: float = 0.9
) -> Figure:
    """A panel a parameter: truths (n, d) along x, draws (n, m, d) of each one's posterior along y.

    Up to 16 draws a truth are shown as points, more as the median and the central interval of
    probability `level`. What an observation tells of a parameter draws them to the diagonal.
    """
    truths = points(truths, "truths")
    samples = np.asarray(samples, dtype=float)
    n, d = truths.shape
    if samples.ndim != 3 or samples.shape[::2] != (n, d) or samples.shape[1] == 0:
        raise ValueError(f"samples must be an array ({n}, draws, {d}), not {samples.shape}")
    if not np.isfinite(samples).all():
        raise ValueError("samples must be finite: drop the draws with NaN or infinity")
    _probability(level)
    names = _names(names, d)
    dots = samples.shape[1] <= _DOTS
    shares = [(1 - level) / 2, 0.5, (1 + level) / 2]
    across = min(d, _ACROSS)
    result, axes = figure(-(-d // across), across, size=(2.4, 2.4))
    panels = _used(axes, d)
    for i, ax in enumerate(panels):
        true, drawn = truths[:, i], samples[:, :, i]
        low, middle, high = np.quantile(drawn, shares, axis=1)
        shown = drawn if dots else np.stack([low, high])
        span = extent(np.concatenate([true, np.quantile(shown, [0.001, 0.999])]))
        look = {"color": PALETTE[0], "linewidths": 0, "rasterized": True}
        if dots:
            size, alpha = marks(drawn.size)
            at = np.repeat(true, drawn.shape[1])
            ax.scatter(at, drawn.ravel(), s=size, alpha=alpha, **look)
        else:
            size, alpha = marks(n)
            ax.vlines(true, low, high, alpha=alpha / 3, **(look | {"linewidths": 0.7}))
            ax.scatter(true, middle, s=min(size, 6.0), alpha=0.8, **look)
        ax.plot(span, span, color=INK, linewidth=0.8, linestyle="--")
        ax.set(xlim=span, ylim=span, aspect="equal", title=names[i])
        ax.locator_params(nbins=4)
        ax.ticklabel_format(scilimits=(-2, 4), useMathText=True)
        for axis in (ax.xaxis, ax.yaxis):
            axis.get_offset_text().set_size(7)
    kind = "draws" if dots else f"median and {100 * level:g}% interval"
    _outer(panels, "truth", kind)
    return result


def _ranks(ranks: Any, draws: int, names: Sequence[str] | None) -> tuple[np.ndarray, Sequence[str]]:
    """Checked ranks (n, k) and a name for each column; (n,) is one column."""
    array = np.asarray(ranks)
    array = points(array[:, None] if array.ndim == 1 else array, "ranks")
    if (array != np.round(array)).any() or array.min() < 0 or array.max() > draws:
        raise ValueError(
            f"ranks must be whole numbers from 0 to draws = {draws}, not from {array.min():g} to "
            f"{array.max():g}"
        )
    return array, _names(names, array.shape[1])


def _names(names: Sequence[str] | None, count: int) -> Sequence[str]:
    if count > _MOST:
        raise ValueError(f"at most {_MOST} columns can be shown, not {count}: choose some")
    names = [f"$x_{{{i + 1}}}$" for i in range(count)] if names is None else list(names)
    if len(names) != count:
        raise ValueError(f"names must be {count} strings, one a column, not {len(names)}")
    return names


def _probability(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, not {level}")


def _percent(level: float) -> str:
    return f"{100 * level:g}% band"


def _grid(names: Sequence[str]):
    across = min(len(names), _ACROSS)
    result, axes = figure(-(-len(names) // across), across, size=(max(2.0, 4.0 / across), 1.7))
    panels = _used(axes, len(names))
    for ax, name in zip(panels, names, strict=True):
        ax.set_title(name, fontsize=9, pad=3)
    return result, panels


def _used(axes: np.ndarray, count: int) -> list:
    for ax in axes.ravel()[count:]:
        ax.remove()
    return list(axes.ravel()[:count])


def _outer(panels: Sequence, x: str, y: str) -> None:
    """Labels of the axes, once for all panels."""
    panels[0].figure.supxlabel(x, fontsize=9)
    panels[0].figure.supylabel(y, fontsize=9)
    for i, ax in enumerate(panels):
        if i % _ACROSS and ax.get_ylim() == panels[0].get_ylim():
            ax.tick_params(labelleft=False)
