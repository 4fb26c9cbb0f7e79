"""Points and densities in the plane, side by side."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from .arguments import Limits, extent, frame, named, points, vector
from .style import PALETTE, SEQUENTIAL, colour_bar, figure, styled

_GRID = 201  # points a side on which a function is drawn
_DEPTH = 12.0  # nats below the highest value that a log-density map shows


@styled
def scatter2d(panels: Mapping[str, Any], *, limits: Limits | None = None) -> Figure:
    """A panel for each array (n, 2), all with the same limits: by default, around every point."""
    clouds = {k: points(v, f"panels[{k!r}]", 2) for k, v in named(panels, "panels").items()}
    pooled = np.concatenate(list(clouds.values()))
    limits = frame(limits) or (extent(pooled[:, 0]), extent(pooled[:, 1]))
    result, axes = figure(1, len(clouds), size=_size(limits))
    for ax, (name, cloud) in zip(axes[0], clouds.items(), strict=True):
        size, alpha = marks(len(cloud))
        ax.scatter(*cloud.T, s=size, alpha=alpha, color=PALETTE[0], linewidths=0, rasterized=True)
        _square(ax, name, limits)
    return result


@styled
def density2d(
    panels: Mapping[str, Callable | tuple[Any, Any, Any]],
    *,
    limits: Limits | None = None,
    log: bool = False,
) -> Figure:
    """A filled map for each log-density, all with the same limits and colours.

    A panel is a function from a point (2,) to the log-density there (JAX can trace it), or a grid
    (xs, ys, values) with the log-density `values[i, j]` at (xs[j], ys[i]). The density is drawn,
    or with `log` its logarithm down to 12 nats below the highest. Functions are drawn over
    `limits`, by default the extent of the grids.
    """
    limits, grids = frame(limits), {}
    for name, panel in named(panels, "panels").items():
        if not callable(panel):
            grids[name] = _grid(panel, f"panels[{name!r}]")
    if limits is None:
        if not grids:
            raise ValueError("limits must be given: ((x low, x high), (y low, y high))")
        xs, ys = (np.concatenate([grid[i] for grid in grids.values()]) for i in (0, 1))
        limits = extent(xs, margin=0.0), extent(ys, margin=0.0)
    for name, panel in panels.items():
        if callable(panel):
            grids[name] = _evaluate(panel, limits)

    top = np.max([np.max(values) for _, _, values in grids.values()])
    if not np.isfinite(top):
        raise ValueError("panels must hold log-densities: no NaN or +∞, and not −∞ everywhere")
    norm = Normalize(top - _DEPTH, top) if log else Normalize(0.0, np.exp(top))
    result, axes = figure(1, len(grids), size=_size(limits, bars=1 / len(grids)))
    for ax, name in zip(axes[0], panels, strict=True):
        xs, ys, values = grids[name]
        shown = np.maximum(values, top - _DEPTH) if log else np.exp(values)
        look = {"cmap": SEQUENTIAL, "norm": norm, "rasterized": True}
        ax.pcolormesh(xs, ys, shown, shading="gouraud", **look)
        _square(ax, name, limits)
        ax.grid(False)
    colour_bar(axes[0, -1], norm, SEQUENTIAL, "log-density" if log else "density")
    return result


def marks(n: int) -> tuple[float, float]:
    """Size and opacity of n points: small and faint when there are many."""
    return float(np.clip(3_000 / n, 1.5, 12.0)), float(np.clip(40 / np.sqrt(n), 0.15, 0.8))


def _grid(panel: Any, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A checked (xs, ys, values)."""
    if not isinstance(panel, tuple | list) or len(panel) != 3:
        raise ValueError(f"{name} must be a function of a point (2,), or (xs, ys, values)")
    xs, ys = vector(panel[0], f"xs of {name}"), vector(panel[1], f"ys of {name}")
    values = np.asarray(panel[2], dtype=float)
    if values.shape != (len(ys), len(xs)):
        raise ValueError(f"values of {name} must be {(len(ys), len(xs))}, not {values.shape}")
    return xs, ys, values


def _evaluate(log_density: Callable, limits: Limits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A function's values on a grid over the limits."""
    xs, ys = (np.linspace(*side, _GRID) for side in limits)
    plane = jax.numpy.asarray(np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2))
    values = np.asarray(jax.jit(jax.vmap(log_density))(plane), dtype=float)
    if values.shape != (_GRID**2,):
        raise ValueError(
            f"panels must hold functions from a point (2,) to a scalar, not to {values.shape[1:]}"
        )
    return xs, ys, values.reshape(_GRID, _GRID)


def _size(limits: Limits, bars: float = 0.0) -> tuple[float, float]:
    """Panel size in inches for equal units on both axes, with room for ticks, title and bar."""
    (left, right), (low, high) = limits
    height = float(np.clip(2.5 * (high - low) / (right - left), 1.2, 5.0))
    return 2.9 + 0.7 * bars, height + 0.5


def _square(ax, title: str, limits: Limits) -> None:
    ax.set(title=title, xlim=limits[0], ylim=limits[1], aspect="equal")
    ax.locator_params(nbins=5)
