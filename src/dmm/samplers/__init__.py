"""Samplers: any number of steps in, points out."""

from .alternating import Alternating
from .base import Sampler, default_sampler, simulate
from .bridge import Bridge
from .clamped import Clamped
from .counts import CountBridge
from .dirichlet import DirichletStep
from .euler import Euler
from .exact import FirstHitting, Uniformisation
from .flow import AdaptiveFlow, ProbabilityFlow
from .heun import Heun
from .leaping import TauLeaping, Trapezoidal
from .predictor_corrector import PredictorCorrector
from .splitting import Splitting

__all__ = [
    "AdaptiveFlow",
    "Alternating",
    "Bridge",
    "Clamped",
    "CountBridge",
    "DirichletStep",
    "Euler",
    "FirstHitting",
    "Heun",
    "PredictorCorrector",
    "ProbabilityFlow",
    "Sampler",
    "Splitting",
    "TauLeaping",
    "Trapezoidal",
    "Uniformisation",
    "default_sampler",
    "simulate",
]
