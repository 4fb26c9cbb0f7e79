"""Coordinates of some sample sets, one by one."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .arguments import extent, named, points, vector
from .style import INK, PALETTE, figure, styled

_MOST = 12
_ACROSS = 4  # panels in a row
_BINS = 50
_GRID = 400  # points at which a density is drawn


@styled
def marginals(
    samples: Mapping[str, Any],
    *,
    truth: Any = None,
    densities: Mapping[int, Callable] | None = None,
    names: Sequence[str] | None = None,
    columns: Sequence[int] | None = None,
) -> Figure:
    """A histogram for each coordinate of some arrays (n, d), one over the other.

    The first set is filled and the others are outlined; all share their bins, which hold all but
    the outermost thousandth of each set at either end. `columns` chooses which coordinates to show,
    12 at most; `names` are those of all d. `densities` maps a column to its exact log-density, a
    function of a number, drawn as a dashed line. `truth` (d,) is marked by dotted lines.
    """
    sets = {k: points(v, f"samples[{k!r}]") for k, v in named(samples, "samples").items()}
    d = next(iter(sets.values())).shape[1]
    for name, values in sets.items():
        points(values, f"samples[{name!r}]", d)
    if len(sets) > len(PALETTE):
        raise ValueError(f"samples must hold at most {len(PALETTE)} sets, not {len(sets)}")
    columns = _columns(columns, d)
    truth = None if truth is None else vector(truth, "truth", d)
    names = [f"$x_{{{i + 1}}}$" for i in range(d)] if names is None else list(names)
    if len(names) != d:
        raise ValueError(f"names must be {d} strings, one a column, not {len(names)}")
    densities = {} if densities is None else dict(densities)
    if not set(densities) <= set(columns):
        raise ValueError(
            f"densities must have columns that are shown as keys, of {columns}, not "
            f"{list(densities)}"
        )

    across = min(len(columns), _ACROSS)
    down = -(-len(columns) // across)
    result, axes = figure(down, across, size=(max(2.2, 4.0 / across), 1.5))
    for ax in axes.ravel()[len(columns) :]:
        ax.remove()
    for ax, i in zip(axes.ravel(), columns, strict=False):
        span = _panel(ax, [values[:, i] for values in sets.values()])
        if i in densities:
            _curve(ax, densities[i], span, f"densities[{i}]")
        if truth is not None:
            ax.axvline(truth[i], color=INK, linewidth=0.9, linestyle=":")
            low, high = ax.get_xlim()
            pad = 0.03 * (high - low)
            ax.set_xlim(min(low, truth[i] - pad), max(high, truth[i] + pad))
        ax.set_title(names[i], fontsize=9, pad=3)
    _legend(result, sets, bool(densities), truth is not None)
    return result


def _columns(columns: Sequence[int] | None, d: int) -> list[int]:
    if columns is None:
        if d > _MOST:
            raise ValueError(
                f"samples have {d} columns, more than the {_MOST} that can be shown: choose some "
                "by columns"
            )
        return list(range(d))
    chosen = list(columns)
    legal = all(isinstance(i, int | np.integer) and 0 <= i < d for i in chosen)
    if not legal or not 1 <= len(chosen) <= _MOST:
        raise ValueError(f"columns must be 1 to {_MOST} numbers from 0 to {d - 1}, not {chosen}")
    return chosen


def _panel(ax, sets: list[np.ndarray]) -> tuple[float, float]:
    """The histograms of one coordinate; returns where the bins begin and end."""
    span = extent(np.concatenate([np.quantile(v, [0.001, 0.999]) for v in sets]), 0.0)
    count = int(np.clip(2 * min(map(len, sets)) ** (1 / 3), 10, _BINS))
    bins, top = np.linspace(*span, count + 1), 0.0
    for k, (colour, values) in enumerate(zip(PALETTE, sets, strict=False)):
        # Heights are shares of the whole set, also of what lies outside.
        heights = np.histogram(values, bins)[0] / (len(values) * np.diff(bins))
        if k == 0:
            ax.stairs(heights, bins, fill=True, color=colour, alpha=0.25, linewidth=0)
        ax.stairs(heights, bins, color=colour, linewidth=1.2)
        top = max(top, heights.max())
    pad = 0.03 * (span[1] - span[0])
    ax.set_xlim(span[0] - pad, span[1] + pad)
    ax.set_ylim(0, 1.12 * top if top > 0 else 1.0)  # a density may be infinite at an end
    ax.grid(False)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
    ax.ticklabel_format(axis="x", scilimits=(-3, 4), useMathText=True)
    ax.xaxis.get_offset_text().set_size(7)
    return span


def _curve(ax, log_density: Callable, span: tuple[float, float], name: str) -> None:
    grid = np.linspace(*span, _GRID + 2)[1:-1]
    values = np.asarray(jax.jit(jax.vmap(log_density))(jax.numpy.asarray(grid)), float)
    if values.shape != grid.shape or np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError(f"{name} must be a log-density: a finite number, or −∞, at a number")
    ax.plot(grid, np.exp(values), color=INK, linewidth=0.9, linestyle="--")


def _legend(result: Figure, sets: Mapping[str, Any], exact: bool, true: bool) -> None:
    handles: list[Patch | Line2D] = [
        Line2D([], [], color=colour, linewidth=1.6, label=name)
        for colour, name in zip(PALETTE, sets, strict=False)
    ]
    handles[0] = Patch(color=PALETTE[0], alpha=0.4, label=next(iter(sets)))
    if exact:
        handles.append(Line2D([], [], color=INK, linewidth=0.9, linestyle="--", label="density"))
    if true:
        handles.append(Line2D([], [], color=INK, linewidth=0.9, linestyle=":", label="truth"))
    # In as many lines as hold them, for which the figure is made higher.
    inches = sum(0.45 + 0.07 * len(str(handle.get_label())) for handle in handles)
    lines = math.ceil(inches / result.get_figwidth())
    result.set_figheight(result.get_figheight() + 0.2 * (lines - 1))
    result.legend(
        handles=handles, loc="outside upper center", ncols=math.ceil(len(handles) / lines)
    )
