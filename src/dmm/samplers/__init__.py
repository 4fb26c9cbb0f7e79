"""Samplers: any number of steps in, points out."""

from .base import Sampler, default_sampler, simulate
from .euler import Euler
from .flow import AdaptiveFlow, ProbabilityFlow
from .heun import Heun
from .predictor_corrector import PredictorCorrector

__all__ = [
    "AdaptiveFlow",
    "Euler",
    "Heun",
    "PredictorCorrector",
    "ProbabilityFlow",
    "Sampler",
    "default_sampler",
    "simulate",
]
