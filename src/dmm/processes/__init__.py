"""Markov processes: generator, noising, score, reverse."""

from .absorbing import AbsorbingChain
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
from .chain import Chain
from .diffusion import AbstractDiffusion, Diffusion
from .jump import Jump
from .langevin import CriticallyDamped
from .laws import Gaussian
from .linear import LinearDiffusion
from .matrix import MatrixChain
from .ordinal import OrdinalChain
from .ornstein_uhlenbeck import OrnsteinUhlenbeck
from .product import ProductProcess, supports
from .uniform import UniformChain

__all__ = [
    "AbsorbingChain",
    "AbstractDiffusion",
    "Brownian",
    "Chain",
    "CriticallyDamped",
    "Diffusion",
    "Gaussian",
    "HasDensity",
    "Jump",
    "Law",
    "LinearDiffusion",
    "MatrixChain",
    "Noised",
    "Noising",
    "OrdinalChain",
    "OrnsteinUhlenbeck",
    "Process",
    "ProductProcess",
    "Reverse",
    "Simulated",
    "Tractable",
    "UniformChain",
    "Zero",
    "default_process",
    "supports",
]
