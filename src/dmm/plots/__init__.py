"""Arrays in, figure out."""

from .curves import losses, paths
from .densities import density2d, scatter2d
from .pairs import pairs
from .style import figure

__all__ = ["density2d", "figure", "losses", "pairs", "paths", "scatter2d"]
