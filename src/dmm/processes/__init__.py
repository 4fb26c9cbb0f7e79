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
    Stationary,
    Tractable,
    Zero,
    default_process,
)
from .brownian import Brownian
from .chain import Chain
from .diffusion import AbstractDiffusion, Diffusion
from .immigration_death import ImmigrationDeath, Poisson
from .jacobi import Beta, Jacobi
from .jump import Jump
from .langevin import CriticallyDamped
from .laws import Gaussian
from .linear import LinearDiffusion
from .matrix import MatrixChain
from .ordinal import OrdinalChain
from .ornstein_uhlenbeck import OrnsteinUhlenbeck
from .product import ProductProcess, supports
from .rotational import (
    AbstractRotationalBrownian,
    RotationalBrownian,
    SimulatedRotationalBrownian,
    UniformOnSO3,
)
from .spherical import SphericalBrownian, UniformOnSphere
from .square_root import Gamma, SquareRoot
from .toroidal import ToroidalBrownian, UniformOnTorus
from .uniform import UniformChain
from .wright_fisher import (
    AbstractWrightFisher,
    Dirichlet,
    SimulatedWrightFisher,
    WrightFisher,
)

__all__ = [
    "AbsorbingChain",
    "AbstractDiffusion",
    "AbstractRotationalBrownian",
    "AbstractWrightFisher",
    "Beta",
    "Brownian",
    "Chain",
    "CriticallyDamped",
    "Diffusion",
    "Dirichlet",
    "Gamma",
    "Gaussian",
    "HasDensity",
    "ImmigrationDeath",
    "Jacobi",
    "Jump",
    "Law",
    "LinearDiffusion",
    "MatrixChain",
    "Noised",
    "Noising",
    "OrdinalChain",
    "OrnsteinUhlenbeck",
    "Poisson",
    "Process",
    "ProductProcess",
    "Reverse",
    "RotationalBrownian",
    "Simulated",
    "SimulatedRotationalBrownian",
    "SimulatedWrightFisher",
    "SphericalBrownian",
    "SquareRoot",
    "Stationary",
    "ToroidalBrownian",
    "Tractable",
    "UniformChain",
    "UniformOnSO3",
    "UniformOnSphere",
    "UniformOnTorus",
    "WrightFisher",
    "Zero",
    "default_process",
    "supports",
]
