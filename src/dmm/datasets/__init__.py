"""Data with a known law."""

from .linear_gaussian import LinearGaussian
from .toys import GaussianMixture, TwoMoons

__all__ = ["GaussianMixture", "LinearGaussian", "TwoMoons"]
