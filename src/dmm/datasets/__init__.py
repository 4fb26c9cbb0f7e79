"""Data with a known law, and data in files."""

from .dirichlets import DirichletMixture
from .earth import earth
from .files import DataError
from .images import Images, digits, mnist
from .linear_gaussian import LinearGaussian
from .microbiome import Microbiome, microbiome
from .splits import Parts, split
from .text import Characters, shakespeare, windows
from .toys import GaussianMixture, TwoMoons

__all__ = [
    "Characters",
    "DataError",
    "DirichletMixture",
    "GaussianMixture",
    "Images",
    "LinearGaussian",
    "Microbiome",
    "Parts",
    "TwoMoons",
    "digits",
    "earth",
    "microbiome",
    "mnist",
    "shakespeare",
    "split",
    "windows",
]
