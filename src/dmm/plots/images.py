"""Grids of images."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .arguments import named
from .style import figure, styled


@styled
def image_grid(
    columns: Mapping[str, Any] | Sequence[Any], *, top: float | None = None, side: float = 0.62
) -> Figure:
    """Images side by side, a row an example: each column is (n, height, width[, 3]).

    Columns come with names, in a dict, or without. Values run from 0, black, to `top`, white: the
    largest of all, unless given. NaN is shown as a gap, in a tint. An image is `side` inches wide.
    """
    given = columns if isinstance(columns, Mapping) else dict(enumerate(columns))
    arrays = {name: np.asarray(a, float) for name, a in named(given, "columns").items()}
    shapes = {a.shape for a in arrays.values()}
    shape = next(iter(shapes))
    if len(shapes) > 1 or len(shape) < 3 or shape[3:] not in ((), (3,)) or 0 in shape:
        raise ValueError(
            "columns must be arrays (n, height, width) or (n, height, width, 3), all of one shape, "
            f"not {sorted(shapes)}"
        )
    top = (max(np.nanmax(a) for a in arrays.values()) or 1.0) if top is None else top
    rows = len(next(iter(arrays.values())))
    result, axes = figure(rows, len(arrays), size=(side, side))
    result.set_layout_engine("constrained", w_pad=0.01, h_pad=0.01, wspace=0.0, hspace=0.0)
    for j, (name, images) in enumerate(arrays.items()):
        for i, image in enumerate(images):
            ax = axes[i, j]
            gap = np.isnan(image) if image.ndim == 2 else np.isnan(image).any(-1)
            grey = np.clip(np.nan_to_num(image) / top, 0, 1)
            colours = np.repeat(grey[..., None], 3, -1) if image.ndim == 2 else grey
            colours = np.where(gap[..., None], [0.56, 0.72, 0.86], colours)
            ax.imshow(colours, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
            for side in ax.spines.values():
                side.set_visible(False)
            if i == 0 and isinstance(name, str):
                ax.set_title(name, fontsize=7, pad=3)
    return result
