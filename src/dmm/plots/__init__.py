"""Arrays in, figure out."""

from .curves import losses, paths
from .densities import density2d, scatter2d
from .images import image_grid
from .maps import sphere_map
from .marginals import marginals
from .pairs import pairs
from .style import figure
from .ternary import ternary

__all__ = [
    "density2d",
    "figure",
    "image_grid",
    "losses",
    "marginals",
    "pairs",
    "paths",
    "scatter2d",
    "sphere_map",
    "ternary",
]
