"""Fitting: data in, model out."""

from .data import Example, Simulator, Stream
from .fitting import fit
from .loop import NonFiniteError

__all__ = ["Example", "NonFiniteError", "Simulator", "Stream", "fit"]
