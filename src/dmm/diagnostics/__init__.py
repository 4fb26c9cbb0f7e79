"""How far samples are from a reference: sets of points from one another, images one by one."""

from .c2st import c2st
from .images import psnr, ssim
from .mmd import mmd
from .poses import Coverage, coverage, nearest_pose
from .wasserstein import wasserstein1

__all__ = [
    "Coverage",
    "c2st",
    "coverage",
    "mmd",
    "nearest_pose",
    "psnr",
    "ssim",
    "wasserstein1",
]
