"""Arrays in, figure out."""

from .curves import losses, paths
from .densities import density2d, scatter2d
from .images import image_grid
from .maps import sphere_map
from .marginals import marginals
from .pairs import pairs
from .rotations import rotation_map, tangent_histograms
from .style import figure
from .ternary import ternary
from .torus import torus_pairs

__all__ = [
    "density2d",
    "figure",
    "image_grid",
    "losses",
    "marginals",
    "pairs",
    "paths",
    "rotation_map",
    "scatter2d",
    "sphere_map",
    "tangent_histograms",
    "ternary",
    "torus_pairs",
]
