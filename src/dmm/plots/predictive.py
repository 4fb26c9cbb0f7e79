"""What was observed among what was simulated."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from .arguments import extent, points, vector
from .style import INK, PALETTE, figure, styled

_MOST = 24
_ACROSS = 4  # panels in a row
_BINS = 40
_SHADES = {0.99: "#dde7f3", 0.9: "#bed2e8", 0.5: "#97b7d9"}  # by the mass that they hold


@styled
def predictive_histograms(
    observed: Any,
    simulated: Any,
    *,
    names: Sequence[str] | None = None,
    p_values: Any = None,
) -> Figure:
    """A histogram of each statistic's simulated values (m, k), k ≤ 24, with the observed (k,).

    Histograms hold all but the outermost thousandth at either end. `p_values` (k,) are written
    above.
    """
    simulated = points(simulated, "simulated")
    k = simulated.shape[1]
    observed = _finite(vector(observed, "observed", k), "observed")
    if k > _MOST:
        raise ValueError(f"simulated has {k} columns, more than the {_MOST} that can be shown")
    names = [f"$s_{{{i + 1}}}$" for i in range(k)] if names is None else list(names)
    if len(names) != k:
        raise ValueError(f"names must be {k} strings, one a column, not {len(names)}")
    p_values = None if p_values is None else vector(p_values, "p_values", k)
    across = min(k, _ACROSS)
    down = -(-k // across)
    result, axes = figure(down, across, size=(max(2.2, 4.0 / across), 1.6))
    for ax in axes.ravel()[k:]:
        ax.remove()
    for i, ax in enumerate(axes.ravel()[:k]):
        values = simulated[:, i]
        ends = extent(np.quantile(values, [0.001, 0.999]), 0.0)
        bins = np.linspace(*ends, int(np.clip(2 * len(values) ** (1 / 3), 10, _BINS)) + 1)
        ax.hist(values, bins, histtype="stepfilled", color=PALETTE[0], alpha=0.25)
        ax.hist(values, bins, histtype="step", color=PALETTE[0], linewidth=1.2)
        ax.axvline(observed[i], color=PALETTE[1], linewidth=1.6)
        ax.set_xlim(extent(np.append(ends, observed[i]), 0.04))
        p = "" if p_values is None else f"   p = {p_values[i]:.2g}"
        ax.set_title(f"{names[i]}{p}", fontsize=9, pad=3)
        ax.grid(False)
        ax.set_yticks([])
        ax.spines["left"].set_visible(False)
        ax.locator_params(axis="x", nbins=4)
        ax.ticklabel_format(axis="x", scilimits=(-3, 4), useMathText=True)
        ax.xaxis.get_offset_text().set_size(7)
    handles: list[Patch | Line2D] = [
        Patch(color=PALETTE[0], alpha=0.4, label="simulated"),
        Line2D([], [], color=PALETTE[1], linewidth=1.6, label="observed"),
    ]
    # Side by side they are wider than a single panel.
    result.legend(handles=handles, loc="outside upper center", ncols=2 if across > 1 else 1)
    return result


@styled
def predictive_fan(
    observed: Any,
    simulated: Any,
    *,
    at: Any = None,
    xlabel: str = "index",
    ylabel: str = "",
) -> Figure:
    """An observed vector (k,) over the quantiles of the simulated ones (m, k), place by place.

    The shades hold half, nine tenths and 99 in a hundred of the simulations; the line is their
    median. `at` (k,) are the places along x, rising: 0, 1, ... by default.
    """
    simulated = points(simulated, "simulated")
    k = simulated.shape[1]
    observed = _finite(vector(observed, "observed", k), "observed")
    if k < 2:
        raise ValueError("simulated must have at least 2 columns: one is for a histogram")
    at = np.arange(k) if at is None else vector(at, "at", k)
    if not (np.diff(at) > 0).all():
        raise ValueError("at must rise throughout: sort it, and the columns with it")
    result, axes = figure(size=(5.4, 3.0))
    ax = axes[0, 0]
    for mass in _SHADES:
        low, high = np.quantile(simulated, [(1 - mass) / 2, (1 + mass) / 2], axis=0)
        ax.fill_between(at, low, high, color=_SHADES[mass], linewidth=0, label=f"{100 * mass:g}%")
    ax.plot(at, np.median(simulated, axis=0), color=PALETTE[0], label="median")
    mark = {"marker": "o", "markersize": 3} if k <= 60 else {}
    ax.plot(at, observed, color=INK, linewidth=1.0, label="observed", **mark)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.margins(x=0.01)
    result.legend(loc="outside right upper")
    return result


def _finite(values: np.ndarray, name: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite: it holds NaN or infinity")
    return values
