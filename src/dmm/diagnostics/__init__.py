"""How far samples are from a reference: sets of points from one another, images one by one."""

from .c2st import c2st
from .images import psnr, ssim
from .mmd import mmd
from .wasserstein import wasserstein1

__all__ = ["c2st", "mmd", "psnr", "ssim", "wasserstein1"]
