"""Data with a known law, and data in files."""

from .dirichlets import DirichletMixture
from .earth import earth
from .files import DataError
from .folders import ImageFolder, imagenet256, tiny_imagenet
from .gandk import GAndK
from .images import Images, digits, mnist
from .linear_gaussian import LinearGaussian
from .microbiome import Microbiome, microbiome
from .pictures import downsample
from .rna import ANGLES, rna
from .rotations import RotationMixture
from .solids import SOLIDS, Pose, draw_pose, render_solid, symmetries
from .splits import Parts, split
from .symsol import Symsol, symsol
from .text import Characters, shakespeare, windows
from .toys import GaussianMixture, TwoMoons

__all__ = [
    "ANGLES",
    "SOLIDS",
    "Characters",
    "DataError",
    "DirichletMixture",
    "GAndK",
    "GaussianMixture",
    "ImageFolder",
    "Images",
    "LinearGaussian",
    "Microbiome",
    "Parts",
    "Pose",
    "RotationMixture",
    "Symsol",
    "TwoMoons",
    "digits",
    "downsample",
    "draw_pose",
    "earth",
    "imagenet256",
    "microbiome",
    "mnist",
    "render_solid",
    "rna",
    "shakespeare",
    "split",
    "symmetries",
    "symsol",
    "tiny_imagenet",
    "windows",
]
