"""Network output to score."""

from .base import Conditioned, Parameterisation, default_parameterisation
from .chains import PredictRates, PriorLogistic, PriorLogits
from .counts import PredictElasticity, PredictIntensities
from .gaussian import Preconditioned, PredictData, PredictNoise
from .generic import Factors, PredictScore, Relative
from .guessed import Guessed
from .harmonics import WithHarmonics
from .lineages import PredictDeparture, PredictLineages
from .waves import WithWaves

__all__ = [
    "Conditioned",
    "Factors",
    "Guessed",
    "Parameterisation",
    "Preconditioned",
    "PredictData",
    "PredictDeparture",
    "PredictElasticity",
    "PredictIntensities",
    "PredictLineages",
    "PredictNoise",
    "PredictRates",
    "PredictScore",
    "PriorLogistic",
    "PriorLogits",
    "Relative",
    "WithHarmonics",
    "WithWaves",
    "default_parameterisation",
]
