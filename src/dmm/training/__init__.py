"""Fitting: data in, model out."""

from .data import Example, Simulator, Stream
from .fitting import fit
from .hosts import HostsError, distribute
from .loop import NonFiniteError
from .matching import match

__all__ = [
    "Example",
    "HostsError",
    "NonFiniteError",
    "Simulator",
    "Stream",
    "distribute",
    "fit",
    "match",
]
