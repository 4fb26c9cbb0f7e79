"""Time changes, the draw of training times, and grids to sample on."""

from .base import Schedule, default_schedule
from .cosine import Cosine
from .exponential import Exponential
from .geometric import Geometric
from .grids import PowerGrid, ScheduleGrid
from .linear import ConstantRate, Linear
from .power import Power
from .weightings import likelihood_weighting, variance_weighting

__all__ = [
    "ConstantRate",
    "Cosine",
    "Exponential",
    "Geometric",
    "Linear",
    "Power",
    "PowerGrid",
    "Schedule",
    "ScheduleGrid",
    "default_schedule",
    "likelihood_weighting",
    "variance_weighting",
]
