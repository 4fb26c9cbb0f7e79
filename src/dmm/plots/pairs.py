"""Every pair of coordinates of some sample sets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.ndimage import gaussian_filter

from .arguments import extent, named, points, vector
from .densities import marks
from .style import INK, PALETTE, figure, styled

_MOST = 12
_BINS = 40
_CROWD = 500
_MASSES = (0.9, 0.5)


@styled
def pairs(
    samples: Mapping[str, Any], *, truth: Any = None, names: Sequence[str] | None = None
) -> Figure:
    """Histograms on the diagonal and pairs of coordinates below it, for arrays (n, d), d ≤ 12.

    A pair is drawn as its points and, from 500 of them on, as the regions of highest density that
    hold half and nine tenths of them. `truth` (d,) is marked by lines. Limits hold all but the
    outermost thousandth of each set at either end.
    """
    sets, names, truth = checked(samples, truth, names)
    spans = [_span(list(sets.values()), truth, i) for i in range(len(names))]
    return triangle(sets, truth, names, spans)


def checked(
    samples: Mapping[str, Any], truth: Any, names: Sequence[str] | None
) -> tuple[dict[str, np.ndarray], list[str], np.ndarray | None]:
    """Sets with the same number of columns, a name for each of these, and the truth."""
    sets = {k: points(v, f"samples[{k!r}]") for k, v in named(samples, "samples").items()}
    d = next(iter(sets.values())).shape[1]
    for name, values in sets.items():
        points(values, f"samples[{name!r}]", d)
    if d > _MOST:
        raise ValueError(f"samples must have at most {_MOST} columns, not {d}: choose some")
    if len(sets) > len(PALETTE):
        raise ValueError(f"samples must hold at most {len(PALETTE)} sets, not {len(sets)}")
    truth = None if truth is None else vector(truth, "truth", d)
    names = [f"$x_{{{i + 1}}}$" for i in range(d)] if names is None else list(names)
    if len(names) != d:
        raise ValueError(f"names must be {d} strings, one a column, not {len(names)}")
    return sets, names, truth


def triangle(
    sets: Mapping[str, np.ndarray],
    truth: np.ndarray | None,
    names: Sequence[str],
    spans: Sequence[tuple[float, float]],
    *,
    periodic: bool = False,
) -> Figure:
    """The panels on and below the diagonal; `periodic` if each span's ends are one point."""
    d = len(names)
    side = max(1.0, min(2.2, 12.0 / d))
    result, axes = figure(d, d, size=(side, side))
    for i in range(d):
        for j in range(d):
            ax = axes[i, j]
            if j > i:
                ax.remove()
                continue
            _panel(ax, sets, truth, (j, i), spans, periodic)
            _ticks(ax, row=i, column=j, last=d - 1, names=names)
    _legend(result, sets, truth, d)
    return result


def _span(sets: list[np.ndarray], truth: np.ndarray | None, i: int) -> tuple[float, float]:
    ends = [np.quantile(values[:, i], [0.001, 0.999]) for values in sets]
    return extent(np.concatenate(ends if truth is None else [*ends, truth[i : i + 1]]))


def _panel(ax, sets, truth, columns: tuple[int, int], spans, periodic: bool) -> None:
    """Column j along x; along y column i, or on the diagonal the histogram's height."""
    j, i = columns
    for colour, values in zip(PALETTE, sets.values(), strict=False):
        if i == j:
            count = int(np.clip(2 * len(values) ** (1 / 3), 10, _BINS))
            bins = np.linspace(spans[i][0], spans[i][1], count + 1)
            look = {"color": colour, "bins": bins, "density": True}
            ax.hist(values[:, i], histtype="stepfilled", alpha=0.15, **look)
            ax.hist(values[:, i], histtype="step", linewidth=1.2, **look)
        else:
            _pair(ax, values[:, j], values[:, i], colour, (spans[j], spans[i]), periodic)
    if truth is not None:
        ax.axvline(truth[j], color=INK, linewidth=0.8, linestyle="--")
        if i != j:
            ax.axhline(truth[i], color=INK, linewidth=0.8, linestyle="--")
    ax.set_xlim(spans[j])
    if i != j:
        ax.set_ylim(spans[i])


def _pair(ax, x: np.ndarray, y: np.ndarray, colour: str, spans, periodic: bool) -> None:
    crowd, (size, alpha) = len(x) >= _CROWD, marks(len(x))
    ax.scatter(
        x, y, s=size, alpha=alpha / (4 if crowd else 1), color=colour, linewidths=0, rasterized=True
    )
    if not crowd:
        return
    counts, xs, ys = np.histogram2d(x, y, bins=_BINS, range=spans)
    # Scott's rate in the number of points, in bins: 1.5 for 5,000 points.
    mode = "wrap" if periodic else "reflect"
    smooth = gaussian_filter(counts, 6 * len(x) ** (-1 / 6), mode=mode)
    ranked = np.sort(smooth, axis=None)[::-1]
    held = np.cumsum(ranked) / ranked.sum()
    levels = [ranked[np.searchsorted(held, mass)] for mass in _MASSES]
    # Equal levels, as for a single atom, leave no region to draw.
    if levels[0] < levels[1] < ranked[0]:
        middles = [(edges[1:] + edges[:-1]) / 2 for edges in (xs, ys)]
        if periodic:  # one cell more at either end, so that lines reach the seam
            smooth = np.pad(smooth, 1, mode="wrap")
            middles = [np.r_[2 * m[0] - m[1], m, 2 * m[-1] - m[-2]] for m in middles]
        ax.contour(*middles, smooth.T, levels=levels, colors=colour, linewidths=1.1)


def _ticks(ax, *, row: int, column: int, last: int, names: Sequence[str]) -> None:
    """Labels on the outer edges alone; a histogram's height needs no scale."""
    ax.grid(False)
    ax.locator_params(axis="x", nbins=3)
    if row == last:
        ax.set_xlabel(names[column])
    else:
        ax.tick_params(labelbottom=False)
    if row == column:
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        return
    ax.locator_params(axis="y", nbins=3)
    if column == 0:
        ax.set_ylabel(names[row])
    else:
        ax.tick_params(labelleft=False)


def _legend(result: Figure, sets, truth, d: int) -> None:
    handles = [
        Line2D([], [], color=colour, linewidth=4, label=name)
        for colour, name in zip(PALETTE, sets, strict=False)
    ]
    if truth is not None:
        handles.append(Line2D([], [], color=INK, linewidth=0.8, linestyle="--", label="truth"))
    # The corner above the diagonal is empty, unless there is but one panel.
    result.legend(handles=handles, loc="upper right" if d > 1 else "outside right upper")
