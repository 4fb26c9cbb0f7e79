"""Training curves and the paths of a sampler."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure

from .arguments import extent, named, vector
from .style import PALETTE, SEQUENTIAL, colour_bar, figure, styled

# Paths darken towards the data, and are never white.
_DARKENING = ListedColormap(SEQUENTIAL(np.linspace(1.0, 0.3, 256)))


@styled
def losses(steps: Any, curves: Mapping[str, Any], *, log_x: bool = False) -> Figure:
    """Curves over training steps: `steps` (n,), each curve (n,).

    NaN stands for a step that was not measured: the line joins the values that were.
    """
    steps = vector(steps, "steps")
    if log_x and not (steps > 0).all():
        raise ValueError("steps must be positive on a log axis: count from 1, or drop log_x")
    result, axes = figure(size=(4.6, 2.9))
    ax = axes[0, 0]
    for name, values in named(curves, "curves").items():
        values = vector(values, f"curves[{name!r}]", len(steps))
        known = ~np.isnan(values)
        ax.plot(steps[known], values[known], label=name)
    ax.set(xlabel="step", ylabel="loss", xscale="log" if log_x else "linear")
    ax.margins(x=0.02)
    ax.legend()
    return result


@styled
def paths(taus: Any, points: Any) -> Figure:
    """A sampler's trajectories: `taus` (k,) in the order walked, `points` (k, n, d), d 1 or 2.

    In one dimension the points against τ, on a log axis that runs in the order walked; below the
    smallest positive τ it is linear, so that it reaches 0. In two dimensions the paths in the
    plane, coloured by τ on a log scale, with a dot where each ends.
    """
    taus, points = vector(taus, "taus"), np.asarray(points, dtype=float)
    steps = np.diff(taus)
    monotone = (steps > 0).all() or (steps < 0).all()
    if not (monotone and taus.min() >= 0 and np.count_nonzero(taus) >= 2):
        raise ValueError("taus must rise or fall throughout, none below 0 and two of them above")
    if points.ndim != 3 or points.shape[::2] not in {(len(taus), 1), (len(taus), 2)}:
        raise ValueError(
            f"points must be an array ({len(taus)}, n, d), d 1 or 2, not {points.shape}"
        )
    if not np.isfinite(points).all():
        raise ValueError("points must be finite: drop the paths with NaN or infinity")
    return _line(taus, points[..., 0]) if points.shape[-1] == 1 else _plane(taus, points)


def _line(taus: np.ndarray, points: np.ndarray) -> Figure:
    result, axes = figure(size=(4.6, 2.9))
    ax, least = axes[0, 0], taus[taus > 0].min()
    ax.plot(taus, points, color=PALETTE[0], linewidth=0.7, alpha=_alpha(points.shape[1]))
    ends = np.full(points.shape[1], taus[-1])
    ax.scatter(ends, points[-1], s=9, color=PALETTE[1], linewidths=0, zorder=3, clip_on=False)
    if (taus == 0).any():
        ax.set_xscale("symlog", linthresh=least, linscale=0.3)
    else:
        ax.set_xscale("log")
    ax.set(xlabel="τ", ylabel="x", xlim=(taus[0], taus[-1]))
    return result


def _plane(taus: np.ndarray, points: np.ndarray) -> Figure:
    result, axes = figure(size=(4.0, 3.4))
    ax = axes[0, 0]
    # (segment, path, its two ends, coordinate); a segment takes its larger τ, which is positive.
    segments = np.stack([points[:-1], points[1:]], axis=2)
    larger = np.maximum(taus[:-1], taus[1:])
    norm = LogNorm(taus[taus > 0].min(), taus.max())
    drawn = LineCollection(
        list(segments.reshape(-1, 2, 2)),
        array=np.repeat(larger, points.shape[1]),
        norm=norm,
        cmap=_DARKENING,
        linewidths=0.6,
        alpha=_alpha(points.shape[1]),
        rasterized=True,
    )
    ax.add_collection(drawn)
    ax.scatter(*points[-1].T, s=9, color=PALETTE[1], linewidths=0, zorder=3)
    ax.set(xlim=extent(points[..., 0]), ylim=extent(points[..., 1]), aspect="equal")
    colour_bar(ax, norm, _DARKENING, "τ")
    return result


def _alpha(paths: int) -> float:
    return float(np.clip(4 / np.sqrt(paths), 0.15, 0.9))
