"""Network output to score."""

from .base import Parameterisation, default_parameterisation
from .chains import PredictRates, PriorLogistic, PriorLogits
from .gaussian import Preconditioned, PredictData, PredictNoise
from .generic import Factors, PredictScore, Relative

__all__ = [
    "Factors",
    "Parameterisation",
    "Preconditioned",
    "PredictData",
    "PredictNoise",
    "PredictRates",
    "PredictScore",
    "PriorLogistic",
    "PriorLogits",
    "Relative",
    "default_parameterisation",
]
