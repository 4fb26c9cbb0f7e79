"""Every pair of some angles."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .pairs import checked, triangle
from .style import styled

_TICKS = (-180, 0, 180)
_WIDE = 8  # panels a side up to which there is room for all labels


@styled
def torus_pairs(
    samples: Mapping[str, Any], *, truth: Any = None, names: Sequence[str] | None = None
) -> Figure:
    """`pairs` for angles: arrays (n, d), d ≤ 12, in radians, drawn in degrees from −180° to 180°.

    The limits are fixed. Opposite edges of a panel are one line, and regions of highest density go
    on across it. Angles may run from −2π to 2π, and are taken modulo 2π.
    """
    sets, names, truth = checked(samples, truth, names)
    spans = [(-180.0, 180.0)] * len(names)
    wrapped = {name: _degrees(angles, f"samples[{name!r}]") for name, angles in sets.items()}
    marked = None if truth is None else _degrees(truth, "truth")
    result = triangle(wrapped, marked, names, spans, periodic=True)
    labels = ("−180°", "0°" if len(names) <= _WIDE else "", "180°")
    for ax in result.axes:
        _seams(ax, labels)
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


def _seams(ax, labels: Sequence[str]) -> None:
    """Ticks at 0° and at the two ends, whose labels stay within the panel."""
    sides = [(ax.xaxis, "horizontalalignment", ("left", "center", "right"))]
    if ax.get_yticks().size:  # not on the diagonal
        sides.append((ax.yaxis, "verticalalignment", ("bottom", "center", "top")))
    for axis, name, alignments in sides:
        axis.set_ticks(_TICKS, labels)
        for tick, alignment in zip(axis.get_major_ticks(), alignments, strict=True):
            tick.label1.set(**{name: alignment})
