"""Data with a known law, and data in files."""

from .dirichlets import DirichletMixture
from .earth import earth
from .files import DataError
from .images import Images, digits, mnist
from .linear_gaussian import LinearGaussian
from .microbiome import Microbiome, microbiome
from .rna import ANGLES, rna
from .rotations import RotationMixture
from .splits import Parts, split
from .text import Characters, shakespeare, windows
from .toys import GaussianMixture, TwoMoons

__all__ = [
    "ANGLES",
    "Characters",
    "DataError",
    "DirichletMixture",
    "GaussianMixture",
    "Images",
    "LinearGaussian",
    "Microbiome",
    "Parts",
    "RotationMixture",
    "TwoMoons",
    "digits",
    "earth",
    "microbiome",
    "mnist",
    "rna",
    "shakespeare",
    "split",
    "windows",
]
