"""How far samples are from a reference: distances between two sets of points."""

from .c2st import c2st
from .mmd import mmd
from .wasserstein import wasserstein1

__all__ = ["c2st", "mmd", "wasserstein1"]
