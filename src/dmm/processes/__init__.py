"""Markov processes: generator, noising, score, reverse."""

from .base import (
    HasDensity,
    Law,
    Noised,
    Noising,
    Process,
    Reverse,
    Simulated,
    Tractable,
    Zero,
    default_process,
)
from .brownian import Brownian
from .diffusion import AbstractDiffusion, Diffusion
from .jump import Jump
from .langevin import CriticallyDamped
from .laws import Gaussian
from .linear import LinearDiffusion
from .ornstein_uhlenbeck import OrnsteinUhlenbeck
from .product import ProductProcess, supports

__all__ = [
    "AbstractDiffusion",
    "Brownian",
    "CriticallyDamped",
    "Diffusion",
    "Gaussian",
    "HasDensity",
    "Jump",
    "Law",
    "LinearDiffusion",
    "Noised",
    "Noising",
    "OrnsteinUhlenbeck",
    "Process",
    "ProductProcess",
    "Reverse",
    "Simulated",
    "Tractable",
    "Zero",
    "default_process",
    "supports",
]
