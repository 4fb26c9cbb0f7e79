"""Network output to score."""

from .base import Parameterisation, default_parameterisation
from .gaussian import Preconditioned, PredictData, PredictNoise
from .generic import Factors, PredictScore, Relative

__all__ = [
    "Factors",
    "Parameterisation",
    "Preconditioned",
    "PredictData",
    "PredictNoise",
    "PredictScore",
    "Relative",
    "default_parameterisation",
]
