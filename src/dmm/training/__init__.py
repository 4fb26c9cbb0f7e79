"""Fitting: data in, model out."""

from .data import Example, Simulator, Stream
from .fitting import fit
from .loop import NonFiniteError
from .matching import match

__all__ = ["Example", "NonFiniteError", "Simulator", "Stream", "fit", "match"]
