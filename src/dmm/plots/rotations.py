"""Rotations: on the sphere of axes, and in the tangent space at one of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.legend_handler import HandlerTuple
from matplotlib.lines import Line2D
from scipy.spatial.transform import Rotation

from ..spaces import SO3
from .arguments import named, vector
from .densities import marks
from .maps import globe, places
from .marginals import marginals
from .style import CYCLIC, INK, ORDERED, colour_bar, colour_wheel, figure, styled

_ACROSS = 3  # panels in a row, of which a picture takes half a one
_STARS = 100  # more truths than this are drawn as a track
_NEAR = np.radians(15)  # how far from a truth its own points lie


@styled
def rotation_map(
    panels: Mapping[str, Any],
    *,
    truths: Any = None,
    body: Any = None,
    images: Mapping[str, Any] | None = None,
) -> Figure:
    """A map of the globe for each panel of rotations: matrices (n, 3, 3) or SciPy's `Rotation`.

    A rotation by the angle α ∈ [0°, 180°] about the axis n is a point at n, with colour for α. Near
    180° the axes n and −n are nearly the same rotation, and the identity, which has no axis, is
    drawn in the middle.

    With `body`, a direction e of R³, the rotation x is a point at xe, with colour for the turn
    about it, on a cyclic scale: the angle at xe from east to another direction of the body, which
    is orthogonal to e. It jumps at the poles alone. Choose e off the axes of symmetry of a body, or
    several of its equal poses share a place.

    `truths`, for every panel or a dict from some panels' names, are stars of the colour of their
    rotation. A hollow star marks the other end of the axis of a truth near 180°, where points lie
    there within 15° of it. More than 100 truths, as of a continuous symmetry, are dark dots on a
    pale track. `images` are arrays (h, w) or (h, w, 3), from 0, black, to the largest value, each
    drawn left of the panel of its name.
    """
    shown = {k: _scipy(v, f"panels[{k!r}]") for k, v in named(panels, "panels").items()}
    marked = _truths(truths, list(shown))
    pictures = _images(images, list(shown))
    frame = None if body is None else _frame(body)
    across = min(len(shown), _ACROSS - bool(pictures))
    down = -(-len(shown) // across)
    width = 4.6 + 1.3 * bool(pictures) + 0.7 / across
    result, axes = figure(down, across, size=(width, 2.6))
    for ax in axes.ravel()[len(shown) :]:
        ax.remove()
    used: set[str] = set()
    for ax, (name, rotations) in zip(axes.ravel(), shown.items(), strict=False):
        globe(ax, name)
        if pictures:
            _picture(ax, pictures.get(name))
        used |= _panel(ax, rotations, marked.get(name), frame)
    colours, norm = _scale(frame)
    if frame is None:
        colour_bar(axes[0, -1], norm, colours, "angle", ticks=[0, 90, 180], form="{x:.0f}°")
    else:
        colour_wheel(axes[0, -1], colours, "turn")
    _legend(result, used)
    return result


@styled
def tangent_histograms(
    samples: Mapping[str, Any],
    *,
    at: Any = None,
    truth: Any = None,
    density: Callable | None = None,
) -> Figure:
    """Histograms of the three coordinates of log(atᵀx), in radians, for sets of rotations x.

    These are rotation vectors in the frame of the body at the rotation `at`, a matrix (3, 3), by
    default the identity: of length π at most. `truth`, a rotation, is marked by dotted lines.
    `density` is the log-density of a coordinate, a function of a number, drawn in each panel.
    """
    sets = {k: _scipy(v, f"samples[{k!r}]") for k, v in named(samples, "samples").items()}
    if density is not None and not callable(density):
        raise ValueError("density must be a function from a number to the log-density there")
    base = Rotation.identity() if at is None else _one(at, "at")
    back = base.inv()
    vectors = {name: (back * x).as_rotvec() for name, x in sets.items()}
    return marginals(
        vectors,
        truth=None if truth is None else (back * _one(truth, "truth")).as_rotvec(),
        densities=None if density is None else dict.fromkeys(range(3), density),
        names=[f"$\\omega_{i}$ (rad)" for i in (1, 2, 3)],
    )


def _scipy(value: Any, name: str) -> Rotation:
    """Stacked rotations, from whatever the space takes for data; an error names the worst row."""
    return SO3.to_scipy(SO3().check(value, name))


def _one(value: Any, name: str) -> Rotation:
    matrix = np.asarray(value.as_matrix() if isinstance(value, Rotation) else value)
    if matrix.shape != (3, 3):
        raise ValueError(f"{name} must be one rotation, a matrix (3, 3), not {matrix.shape}")
    return _scipy(matrix[None], name)[0]


def _truths(truths: Any, names: list[str]) -> dict[str, Rotation]:
    if truths is None:
        return {}
    if not isinstance(truths, Mapping):
        return dict.fromkeys(names, _scipy(truths, "truths"))
    _known(truths, names, "truths")
    return {name: _scipy(value, f"truths[{name!r}]") for name, value in truths.items()}


def _images(images: Mapping[str, Any] | None, names: list[str]) -> dict[str, np.ndarray]:
    if images is None:
        return {}
    _known(named(images, "images"), names, "images")
    arrays = {name: np.asarray(image, float) for name, image in images.items()}
    for name, image in arrays.items():
        if image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or 0 in image.shape:
            raise ValueError(f"images[{name!r}] must be (h, w) or (h, w, 3), not {image.shape}")
        if not np.isfinite(image).all():
            raise ValueError(f"images[{name!r}] must be finite")
    return arrays


def _known(given: Mapping[str, Any], names: list[str], argument: str) -> None:
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"{argument} must have names of panels as keys, {names}, not {unknown}")


def _frame(body: Any) -> np.ndarray:
    """A rotation (3, 3) that takes the first axis to the direction `body`."""
    given = vector(body, "body", 3)
    length = np.linalg.norm(given)
    if not (np.isfinite(length) and length > 0):
        raise ValueError("body must be a direction of R³: three finite numbers, not all 0")
    first = given / length
    second = np.eye(3)[(np.abs(first).argmax() + 1) % 3]
    second = second - (second @ first) * first
    second = second / np.linalg.norm(second)
    return np.stack([first, second, np.cross(first, second)], 1)


def _coordinates(rotations: Rotation, frame: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Where rotations lie on the globe, vectors (n, 3), and their colours, degrees (n,)."""
    if frame is None:
        vectors = rotations.as_rotvec()
        return vectors, np.degrees(np.linalg.norm(vectors, axis=1))
    turned = rotations.as_matrix() @ frame
    vectors = turned[:, :, 0]
    # East and north at xe; at a pole, those of the meridian in the middle of the map.
    longitude = np.arctan2(vectors[:, 1], vectors[:, 0])
    east = np.stack([-np.sin(longitude), np.cos(longitude), np.zeros(len(vectors))], 1)
    north = np.cross(vectors, east)
    second = turned[:, :, 1]
    turn = np.arctan2(np.sum(second * north, 1), np.sum(second * east, 1))
    return vectors, np.degrees(turn)


def _scale(frame: np.ndarray | None) -> tuple[Colormap, Normalize]:
    return (ORDERED, Normalize(0, 180)) if frame is None else (CYCLIC, Normalize(-180, 180))


def _panel(
    ax: Axes, rotations: Rotation, truth: Rotation | None, frame: np.ndarray | None
) -> set[str]:
    """The points, below them a track or on them stars; returns which marks were used."""
    colours, norm = _scale(frame)
    vectors, degrees = _coordinates(rotations, frame)
    size, alpha = marks(len(vectors))
    scale: dict[str, Any] = {"cmap": colours, "norm": norm}
    look = {"s": 1.5 * size, "alpha": alpha, "linewidths": 0, "rasterized": True} | scale
    ax.scatter(*places(vectors), c=degrees, label="rotations", **look)
    if truth is None:
        return set()
    vectors, degrees = _coordinates(truth, frame)
    x, y = places(vectors)
    scale |= {"c": degrees, "label": "truths"}
    if len(vectors) > _STARS:
        # Discs with paler ones over them: together, a track with one outline.
        plain = {"linewidths": 0, "rasterized": True}
        ax.scatter(x, y, s=34, color="#8a919c", zorder=0.8, **plain)
        ax.scatter(x, y, s=24, color="white", zorder=0.85, **plain)
        ax.scatter(x, y, s=24, alpha=0.3, zorder=0.9, **plain, **scale)
        ax.scatter(x, y, s=0.7, color=INK, zorder=4, **plain)
        return {"track"}
    star = {"marker": "*", "s": _size(vectors), "edgecolors": INK, "linewidths": 0.7}
    ax.scatter(x, y, zorder=4, **star, **scale)
    return {"stars", "ends"} if frame is None and _ends(ax, truth, rotations) else {"stars"}


def _ends(ax: Axes, truth: Rotation, rotations: Rotation) -> bool:
    """Hollow stars at the other ends of axes, where a truth's own points are drawn; if any."""
    vectors, drawn = truth.as_rotvec(), rotations.as_rotvec()
    q, p = truth.as_quat(), rotations.as_quat()
    close = np.abs(q @ p.T) > np.cos(_NEAR / 2)  # |q·p| is the cosine of half the distance
    wide = np.linalg.norm(vectors, axis=1, keepdims=True) > np.pi / 2  # axes mean little near 0°
    split = (wide & close & (vectors @ drawn.T < 0)).any(1)
    if split.any():
        star = {"s": _size(vectors), "edgecolors": INK, "facecolors": "white", "linewidths": 0.7}
        ax.scatter(*places(-vectors[split]), marker="*", zorder=3.5, label="other ends", **star)
    return bool(split.any())


def _size(stars: np.ndarray) -> float:
    return 110.0 if len(stars) <= 20 else 70.0


def _legend(result: Figure, used: set[str]) -> None:
    """One entry for the truths, with the marks that were drawn, and one for the other ends."""
    look = {"linestyle": "", "marker": "*", "markersize": 9, "markeredgecolor": INK}
    star = Line2D([], [], color="#b4b9c1", markeredgewidth=0.7, **look)
    hollow = Line2D([], [], color="white", markeredgewidth=0.7, **look)
    dots = Line2D([], [], color=INK, linestyle=":", linewidth=1.2)
    truth = tuple(mark for mark, name in ((star, "stars"), (dots, "track")) if name in used)
    entries = {"truth": truth} if truth else {}
    if "ends" in used:
        entries["other end of its axis"] = (hollow,)
    if entries:
        handles: list[Any] = list(entries.values())
        result.legend(
            handles,
            list(entries),
            handler_map={tuple: HandlerTuple(ndivide=None)},
            loc="outside lower center",
            ncols=2,
        )


def _picture(ax: Axes, image: np.ndarray | None) -> None:
    """Left of the globe; without one the place is left free, so that globes are of one size."""
    left, right = -4.7, 2.95
    ax.set_xlim(left, right)
    ax.set_title(ax.get_title(), x=-left / (right - left), y=1.0)
    if image is None:
        return
    inset = ax.inset_axes((left + 0.05, -0.75, 1.5, 1.5), transform=ax.transData)
    top = image.max()
    inset.imshow(image / top if top > 0 else image, cmap="gray", vmin=0, vmax=1)
    inset.set(xticks=[], yticks=[])
    inset.grid(False)
    for side in inset.spines.values():
        side.set_visible(False)
