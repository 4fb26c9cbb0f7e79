"""Poses on a map, beside the picture they are read from."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from scipy.spatial.transform import Rotation

from ..plots.style import INK, figure, styled


@styled
def pose_map(
    panels: Mapping[str, np.ndarray],
    *,
    truths: Mapping[str, np.ndarray],
    images: Mapping[str, np.ndarray],
) -> Figure:
    """A panel for each set of rotations (n, 3, 3): where the body's axis points, a map of the
    globe, with colour for the turn about it; true poses as stars."""
    result, axes = figure(1, len(panels), size=(4.4, 3.2))
    for ax, (name, samples) in zip(axes[0], panels.items(), strict=True):
        place = ax.get_subplotspec()
        ax.remove()
        ax = result.add_subplot(place, projection="mollweide")
        ax.set(xticklabels=[], yticklabels=[])
        ax.set_title(name)
        for rotations, look in (
            (samples, {"s": 4, "alpha": 0.5, "linewidths": 0}),
            (truths[name], {"s": 60, "marker": "*", "edgecolors": INK, "linewidths": 0.6}),
        ):
            east, north, turn = _coordinates(rotations)
            ax.scatter(east, north, c=turn, cmap="twilight", vmin=-180, vmax=180, **look)
        inset = ax.inset_axes((-0.02, 0.68, 0.32, 0.36))
        inset.imshow(images[name], cmap="gray", vmin=0)
        inset.axis("off")
    return result


def _coordinates(rotations: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Longitude and latitude of xe₃, in radians, and the turn about it, in degrees."""
    axis = rotations[:, :, 2]
    east, polar = np.arctan2(axis[:, 1], axis[:, 0]), np.arccos(np.clip(axis[:, 2], -1, 1))
    upright = Rotation.from_euler("ZY", np.stack([east, polar], 1))
    turn = (upright.inv() * Rotation.from_matrix(rotations)).as_euler("xyz", degrees=True)
    return east, np.pi / 2 - polar, turn[:, 2]
