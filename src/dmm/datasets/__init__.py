"""Data with a known law, and data in files."""

from .dirichlets import DirichletMixture
from .earth import earth
from .files import DataError
from .images import Images, digits, mnist
from .linear_gaussian import LinearGaussian
from .microbiome import Microbiome, microbiome
from .solids import SOLIDS, Pose, draw_pose, render_solid, symmetries
from .splits import Parts, split
from .symsol import Symsol, symsol
from .text import Characters, shakespeare, windows
from .toys import GaussianMixture, TwoMoons

__all__ = [
    "SOLIDS",
    "Characters",
    "DataError",
    "DirichletMixture",
    "GaussianMixture",
    "Images",
    "LinearGaussian",
    "Microbiome",
    "Parts",
    "Pose",
    "Symsol",
    "TwoMoons",
    "digits",
    "draw_pose",
    "earth",
    "microbiome",
    "mnist",
    "render_solid",
    "shakespeare",
    "split",
    "symmetries",
    "symsol",
    "windows",
]
