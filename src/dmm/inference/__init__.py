"""Posteriors from simulators: priors, simulations, and what is asked of a posterior."""

from .composition import sample_composed
from .guess import linear_guess
from .infer import infer
from .posterior import MisspecificationWarning, Posterior, load_posterior
from .priors import Parameters, Prior
from .reference import nuts
from .reweighting import Weighted
from .simulation import SimulationError, run_simulations

__all__ = [
    "MisspecificationWarning",
    "Parameters",
    "Posterior",
    "Prior",
    "SimulationError",
    "Weighted",
    "infer",
    "linear_guess",
    "load_posterior",
    "nuts",
    "run_simulations",
    "sample_composed",
]
