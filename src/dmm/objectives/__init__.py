"""What is minimised: plain functions of (process, score_fn, key, x0, tau), for one point."""

from .discrete_time import DiscreteTime, autoencoder
from .score_matching import Explicit, Implicit, denoising, implicit

__all__ = [
    "DiscreteTime",
    "Explicit",
    "Implicit",
    "autoencoder",
    "denoising",
    "implicit",
]
