"""One look for every figure. Never pyplot: no display is needed and no figure outlives its use."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

INK = "#2b2f36"
GRID = "#e7e9ec"
PALETTE = ("#2f6db3", "#e07b39", "#3c9d78", "#9a5ba5", "#c8a02c", "#6b7480")

# From nothing, which is white, to much.
SEQUENTIAL = LinearSegmentedColormap.from_list(
    "dmm", ["#ffffff", "#d5e4f2", "#8fb8dc", "#4a8bc4", "#2462a3", "#123a6e"]
)

# For points, which stand on white: from dark to light, and never white.
ORDERED = ListedColormap(colormaps["plasma"](np.linspace(0.0, 0.9, 256)), name="dmm ordered")

# Once around the hues of OKLCH at chroma 0.13, warm ones a little lighter: ends where it begins.
_HUES = (
    "#487fca", "#7a70c6", "#a268b6", "#c3689b", "#db737a", "#e28556",
    "#d49b39", "#b1ac3f", "#7ab561", "#28b288", "#00a5a9", "#0092c0",
)  # fmt: skip
CYCLIC = LinearSegmentedColormap.from_list("dmm cyclic", [*_HUES, _HUES[0]], N=360)

# Matplotlib reads these when text and ticks are made: functions that plot run inside them.
styled = matplotlib.rc_context(
    {
        "axes.axisbelow": True,
        "axes.edgecolor": "#b4b9c1",
        "axes.grid": True,
        "axes.labelcolor": INK,
        "axes.labelsize": 9,
        "axes.linewidth": 0.8,
        "axes.prop_cycle": cycler(color=PALETTE),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 10,
        "axes.titlepad": 8,
        "figure.dpi": 150,
        "font.size": 9,
        "grid.color": GRID,
        "grid.linewidth": 0.6,
        "legend.fontsize": 9,
        "legend.frameon": False,
        "lines.linewidth": 1.2,
        "lines.solid_capstyle": "round",
        "text.color": INK,
        "xtick.color": "#b4b9c1",
        "xtick.labelcolor": INK,
        "xtick.labelsize": 8,
        "xtick.major.size": 3,
        "xtick.minor.size": 0,
        "ytick.color": "#b4b9c1",
        "ytick.labelcolor": INK,
        "ytick.labelsize": 8,
        "ytick.major.size": 3,
        "ytick.minor.size": 0,
    }
)


@styled
def figure(
    rows: int = 1, columns: int = 1, *, size: tuple[float, float] = (3.2, 3.0)
) -> tuple[Figure, np.ndarray]:
    """A styled figure and its axes (rows, columns); `size` is one panel's, in inches."""
    if rows < 1 or columns < 1:
        raise ValueError(f"rows and columns must be at least 1, not {rows} and {columns}")
    result = Figure(figsize=(columns * size[0], rows * size[1]), layout="constrained")
    FigureCanvasAgg(result)
    return result, result.subplots(rows, columns, squeeze=False)


@styled
def colour_bar(
    ax: Axes, norm: Normalize, colours: Colormap, label: str, *, ticks: Any = None, form: Any = None
) -> None:
    """A bar right of the axes, as high as they are, with its label on top."""
    inset = ax.inset_axes((1.05, 0.0, 0.05, 1.0))
    mapped = ScalarMappable(norm, colours)
    bar = ax.figure.colorbar(mapped, cax=inset, ticks=ticks, format=form)
    bar.outline.set_visible(False)
    inset.grid(False)
    inset.set_title(label, fontsize=8, loc="left")


@styled
def colour_wheel(ax: Axes, colours: Colormap, label: str) -> None:
    """A wheel of angles right of the axes, 0° on its right and rising anticlockwise."""
    inset = ax.inset_axes((1.03, 0.2, 0.25, 0.6))
    angles, radii = np.meshgrid(np.linspace(-np.pi, np.pi, 181), [0.62, 1.0])
    x, y = radii * np.cos(angles), radii * np.sin(angles)
    look = {"cmap": colours, "norm": Normalize(-np.pi, np.pi), "rasterized": True}
    inset.pcolormesh(x, y, angles, shading="gouraud", **look)
    for angle, name in ((0, "0°"), (90, "90°"), (180, "180°"), (-90, "−90°")):
        across, up = np.cos(np.radians(angle)), np.sin(np.radians(angle))
        shift = 1.3 + 0.35 * abs(across)
        inset.text(shift * across, shift * up, name, ha="center", va="center", fontsize=7)
    inset.text(0.0, 0.0, label, ha="center", va="center", fontsize=8)
    inset.set(xlim=(-2.1, 2.1), ylim=(-1.6, 1.6), aspect="equal")
    inset.axis("off")
