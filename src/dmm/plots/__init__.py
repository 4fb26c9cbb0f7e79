"""Arrays in, figure out."""

from .calibration import (
    expected_coverage,
    rank_ecdf,
    rank_histograms,
    truths_against_draws,
)
from .curves import losses, paths
from .densities import density2d, scatter2d
from .images import image_grid
from .maps import sphere_map
from .marginals import marginals
from .pairs import pairs
from .predictive import predictive_fan, predictive_histograms
from .rotations import rotation_map, tangent_histograms
from .style import figure
from .ternary import ternary
from .torus import torus_pairs

__all__ = [
    "density2d",
    "expected_coverage",
    "figure",
    "image_grid",
    "losses",
    "marginals",
    "pairs",
    "paths",
    "predictive_fan",
    "predictive_histograms",
    "rank_ecdf",
    "rank_histograms",
    "rotation_map",
    "scatter2d",
    "sphere_map",
    "tangent_histograms",
    "ternary",
    "torus_pairs",
    "truths_against_draws",
]
