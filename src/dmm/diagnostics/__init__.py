"""How far samples are from a reference, and whether posteriors are calibrated."""

from .c2st import c2st
from .calibration import Calibration, calibrate
from .images import psnr, ssim
from .local import LocalC2ST, local_c2st
from .memory import largest_array
from .mmd import mmd
from .poses import Coverage, coverage, nearest_pose
from .predictive import PredictiveCheck, predictive_check
from .ranks import Ranks, sbc
from .superresolution import bicubic, consistency, diversity, downsampled, sharpness
from .tarp import ExpectedCoverage, nearest_truths, tarp
from .uniformity import Band, ecdf_band
from .wasserstein import wasserstein1

__all__ = [
    "Band",
    "Calibration",
    "Coverage",
    "ExpectedCoverage",
    "LocalC2ST",
    "PredictiveCheck",
    "Ranks",
    "bicubic",
    "c2st",
    "calibrate",
    "consistency",
    "coverage",
    "diversity",
    "downsampled",
    "ecdf_band",
    "largest_array",
    "local_c2st",
    "mmd",
    "nearest_pose",
    "nearest_truths",
    "predictive_check",
    "psnr",
    "sbc",
    "sharpness",
    "ssim",
    "tarp",
    "wasserstein1",
]
