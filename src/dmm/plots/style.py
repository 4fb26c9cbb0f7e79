"""One look for every figure. Never pyplot: no display is needed and no figure outlives its use."""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler

INK = "#2b2f36"
GRID = "#e7e9ec"
PALETTE = ("#2f6db3", "#e07b39", "#3c9d78", "#9a5ba5", "#c8a02c", "#6b7480")

# From nothing, which is white, to much.
SEQUENTIAL = LinearSegmentedColormap.from_list(
    "dmm", ["#ffffff", "#d5e4f2", "#8fb8dc", "#4a8bc4", "#2462a3", "#123a6e"]
)

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
def colour_bar(ax: Axes, norm: Normalize, colours: Colormap, label: str) -> None:
    """A bar right of the axes, as high as they are, with its label on top."""
    inset = ax.inset_axes((1.05, 0.0, 0.05, 1.0))
    bar = ax.figure.colorbar(ScalarMappable(norm, colours), cax=inset)
    bar.outline.set_visible(False)
    inset.grid(False)
    inset.set_title(label, fontsize=8, loc="left")
