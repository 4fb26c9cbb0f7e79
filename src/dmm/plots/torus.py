"""Every pair of some angles."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .pairs import checked, triangle
from .style import styled

_TICKS = {-180: "−180°", 0: "0°", 180: "180°"}


@styled
def torus_pairs(
    samples: Mapping[str, Any], *, truth: Any = None, names: Sequence[str] | None = None
) -> Figure:
    """`pairs` for angles in radians, arrays (n, d), d ≤ 12: axes from −180° to 180°, then again.

    Opposite edges of a panel are one line, and regions of highest density go on across it. Angles
    may be given from −2π to 2π, and mean the same modulo 2π.
    """
    sets, names, truth = checked(samples, truth, names)
    spans = [(-180.0, 180.0)] * len(names)
    wrapped = {name: _degrees(angles, f"samples[{name!r}]") for name, angles in sets.items()}
    marked = None if truth is None else _degrees(truth, "truth")
    result = triangle(wrapped, marked, names, spans, periodic=True)
    for ax in result.axes:
        _seams(ax)
    return result


def _degrees(radians: np.ndarray, name: str) -> np.ndarray:
    """Degrees from −180, included, to 180."""
    most = np.abs(radians).max()
    # A rounding beyond 2π, as of float32, is no sign of degrees.
    if not most < 2 * np.pi + 1e-3:
        raise ValueError(
            f"{name} must be angles in radians, from −2π to 2π, but the largest is {most:.4g}: "
            "pass degrees through numpy.radians"
        )
    return (np.degrees(radians) + 180) % 360 - 180


def _seams(ax) -> None:
    """Ticks at 0° and at the two ends, whose labels stay within the panel."""
    axes = [ax.xaxis] if not ax.get_yticks().size else [ax.xaxis, ax.yaxis]
    for axis in axes:
        axis.set_ticks(list(_TICKS), list(_TICKS.values()))
    for label, side in zip(ax.get_xticklabels(), ("left", "center", "right"), strict=True):
        label.set_horizontalalignment(side)
    if len(axes) == 2:
        for label, side in zip(ax.get_yticklabels(), ("bottom", "center", "top"), strict=True):
            label.set_verticalalignment(side)
