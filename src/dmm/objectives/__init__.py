"""What is minimised: plain functions of (process, score_fn, key, x0, tau), for one point."""

from .cross_entropy import WithCrossEntropy
from .discrete_time import DiscreteTime, autoencoder
from .pooled import Pooled
from .score_matching import Explicit, Implicit, denoising, implicit

__all__ = [
    "DiscreteTime",
    "Explicit",
    "Implicit",
    "Pooled",
    "WithCrossEntropy",
    "autoencoder",
    "denoising",
    "implicit",
]
