"""Directions in three dimensions, as maps of the globe."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from .arguments import named, points
from .densities import marks
from .style import GRID, INK, PALETTE, SEQUENTIAL, colour_bar, figure, styled


@styled
def sphere_map(panels: Mapping[str, Any], *, log: bool = False) -> Figure:
    """A map for each panel: unit vectors (n, 3), or a log-density as a function of one (3,).

    The projection is Mollweide's, which keeps areas: equal areas of two maps hold comparable
    numbers of points. The third coordinate points north, the first to the middle of the map.
    Densities share their colours; with `log`, their logarithms down to 8 nats below the highest.
    """
    longitudes, latitudes = np.linspace(-np.pi, np.pi, 361), np.linspace(-np.pi / 2, np.pi / 2, 181)
    densities = {
        name: _evaluate(panel, longitudes, latitudes, f"panels[{name!r}]")
        for name, panel in named(panels, "panels").items()
        if callable(panel)
    }
    top = max((values.max() for values in densities.values()), default=0.0)
    norm = Normalize(top - 8, top) if log else Normalize(0.0, float(np.exp(top)))
    bars = bool(densities)
    result, axes = figure(1, len(panels), size=(4.6 + 0.6 * bars / len(panels), 2.6))
    for ax, (name, panel) in zip(axes[0], panels.items(), strict=True):
        globe(ax, name)
        if name in densities:
            shown = np.maximum(densities[name], top - 8) if log else np.exp(densities[name])
            x, y = mollweide(*np.meshgrid(longitudes, latitudes))
            look = {"cmap": SEQUENTIAL, "norm": norm, "rasterized": True}
            ax.pcolormesh(x, y, shown, shading="gouraud", **look)
        else:
            cloud = points(panel, f"panels[{name!r}]", 3)
            size, alpha = marks(len(cloud))
            look = {"s": size, "alpha": alpha, "color": PALETTE[0], "linewidths": 0}
            ax.scatter(*places(cloud), rasterized=True, **look)
    if bars:
        colour_bar(axes[0, -1], norm, SEQUENTIAL, "log-density" if log else "density")
    return result


def places(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and y on the map of the directions of vectors (n, 3); zero lies in the middle."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1.0)
    return mollweide(np.arctan2(unit[:, 1], unit[:, 0]), np.arcsin(np.clip(unit[:, 2], -1, 1)))


def globe(ax, title: str) -> None:
    """The empty map: its outline, meridians and parallels."""
    ax.set_title(title, y=1.0)  # given, so that nothing drawn beside the map moves it
    ax.set(aspect="equal", xlim=(-2.95, 2.95), ylim=(-1.5, 1.5))
    ax.axis("off")
    turn, lift = np.linspace(-np.pi, np.pi, 181), np.linspace(-np.pi / 2, np.pi / 2, 91)
    for longitude in np.radians([-120, -60, 0, 60, 120]):
        ax.plot(
            *mollweide(np.full_like(lift, longitude), lift), color=GRID, linewidth=0.6, zorder=0
        )
    for latitude in np.radians([-60, -30, 0, 30, 60]):
        ax.plot(*mollweide(turn, np.full_like(turn, latitude)), color=GRID, linewidth=0.6, zorder=0)
    edge = np.linspace(0, 2 * np.pi, 361)
    ax.plot(2 * np.sqrt(2) * np.cos(edge), np.sqrt(2) * np.sin(edge), color=INK, linewidth=0.8)


def mollweide(longitude: np.ndarray, latitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and y of Mollweide's projection, by Newton's method for 2θ + sin 2θ = π sin(latitude)."""
    goal = np.pi * np.sin(latitude)
    theta = np.array(latitude, float)
    for _ in range(30):
        slope = np.maximum(2 + 2 * np.cos(2 * theta), 1e-9)
        theta = np.clip(
            theta - (2 * theta + np.sin(2 * theta) - goal) / slope, -np.pi / 2, np.pi / 2
        )
    return 2 * np.sqrt(2) / np.pi * longitude * np.cos(theta), np.sqrt(2) * np.sin(theta)


def _evaluate(log_density: Callable, longitudes, latitudes, name: str) -> np.ndarray:
    lon, lat = np.meshgrid(longitudes, latitudes)
    globe = np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)
    flat = jax.numpy.asarray(globe.reshape(-1, 3))
    values = np.asarray(jax.lax.map(log_density, flat, batch_size=4096), float)
    if values.shape != (lon.size,) or not np.isfinite(values.max()):
        raise ValueError(f"{name} must be a log-density: a finite number, or −∞, at a point (3,)")
    return values.reshape(lon.shape)
