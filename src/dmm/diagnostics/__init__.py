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
    "c2st",
    "calibrate",
    "coverage",
    "ecdf_band",
    "largest_array",
    "local_c2st",
    "mmd",
    "nearest_pose",
    "nearest_truths",
    "predictive_check",
    "psnr",
    "sbc",
    "ssim",
    "tarp",
    "wasserstein1",
]
