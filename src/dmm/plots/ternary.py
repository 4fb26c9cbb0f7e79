"""Three proportions, in a triangle."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation

from .arguments import named, points
from .densities import marks
from .style import GRID, INK, PALETTE, SEQUENTIAL, colour_bar, figure, styled

_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
_SIDE = 120  # points a side on which a density is drawn


@styled
def ternary(
    panels: Mapping[str, Any], *, names: Sequence[str] = ("part 1", "part 2", "part 3")
) -> Figure:
    """A triangle for each panel: points (n, 3), or a log-density as a function of a point (3,).

    A point lies near the corner of the part that it has most of. Densities share their colours.
    """
    densities = {
        name: _evaluate(panel, f"panels[{name!r}]")
        for name, panel in named(panels, "panels").items()
        if callable(panel)
    }
    bars = bool(densities)
    top = max((values.max() for values in densities.values()), default=0.0)
    norm = Normalize(0.0, float(np.exp(top)))
    result, axes = figure(1, len(panels), size=(2.9 + 0.6 * bars / len(panels), 2.9))
    for ax, (name, panel) in zip(axes[0], panels.items(), strict=True):
        _frame(ax, name, names)
        if name in densities:
            mesh = Triangulation(*(_lattice() @ _CORNERS).T)
            ax.tripcolor(
                mesh, np.exp(densities[name]), cmap=SEQUENTIAL, norm=norm, shading="gouraud",
                rasterized=True,
            )  # fmt: skip
        else:
            cloud = points(panel, f"panels[{name!r}]", 3) @ _CORNERS
            size, alpha = marks(len(cloud))
            look = {"s": size, "alpha": alpha, "color": PALETTE[0], "linewidths": 0}
            ax.scatter(*cloud.T, rasterized=True, **look)
    if bars:
        colour_bar(axes[0, -1], norm, SEQUENTIAL, "density")
    return result


def _lattice() -> np.ndarray:
    """Points of the triangle, a little inside its sides, where densities may be infinite."""
    i, j = (a.ravel() for a in np.meshgrid(np.arange(_SIDE + 1), np.arange(_SIDE + 1)))
    kept = i + j <= _SIDE
    lattice = np.stack([i, j, _SIDE - i - j], -1)[kept] / _SIDE
    return (lattice + 1e-3) / (1 + 3e-3)


def _evaluate(log_density: Callable, name: str) -> np.ndarray:
    lattice = _lattice()
    values = np.asarray(jax.jit(jax.vmap(log_density))(jax.numpy.asarray(lattice)), float)
    if values.shape != lattice.shape[:1] or np.isnan(values).any() or np.isposinf(values).any():
        raise ValueError(f"{name} must be a log-density: a finite number, or −∞, at a point (3,)")
    return values


def _frame(ax, title: str, names: Sequence[str]) -> None:
    ax.set(title=title, xlim=(-0.12, 1.12), ylim=(-0.16, 1.0), aspect="equal")
    ax.axis("off")
    for share in (0.25, 0.5, 0.75):
        for k in range(3):
            ends = np.full((2, 3), 0.0)
            ends[:, k] = share
            ends[0, (k + 1) % 3] = ends[1, (k + 2) % 3] = 1 - share
            ax.plot(*(ends @ _CORNERS).T, color=GRID, linewidth=0.6, zorder=0)
    ax.plot(*_CORNERS[[0, 1, 2, 0]].T, color=INK, linewidth=0.8)
    places = (("right", "top"), ("left", "top"), ("center", "bottom"))
    for corner, name, (across, up) in zip(_CORNERS, names, places, strict=True):
        shift = 0.02 if up == "bottom" else -0.03
        ax.text(corner[0], corner[1] + shift, name, ha=across, va=up, fontsize=8)
