"""Data with a known law, and data in files."""

from .files import DataError
from .images import Images, digits, mnist
from .linear_gaussian import LinearGaussian
from .text import Characters, shakespeare, windows
from .toys import GaussianMixture, TwoMoons

__all__ = [
    "Characters",
    "DataError",
    "GaussianMixture",
    "Images",
    "LinearGaussian",
    "TwoMoons",
    "digits",
    "mnist",
    "shakespeare",
    "windows",
]
