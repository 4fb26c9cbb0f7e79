"""Inpainting the centre of images: what `digits` and `mnist` share."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm.datasets import Images
from dmm.diagnostics import psnr, ssim
from dmm.plots import image_grid

from ..runs import Run


def visible(images: np.ndarray) -> np.ndarray:
    """True where an image is seen: all but the centre, half the height and half the width."""
    height, width = images.shape[1:3]
    seen = np.ones((height, width), bool)
    seen[height // 4 : height - height // 4, width // 4 : width - width // 4] = False
    return seen


def observe(images: np.ndarray, levels: int) -> np.ndarray:
    """What is given: grey levels in [−1, 1], and 0 where the image is hidden."""
    grey = 2 * images.astype(np.float32) / (levels - 1) - 1
    return np.where(visible(images), grey, 0.0)


def inpaint(
    model: dmm.Model, key: jax.Array, test: np.ndarray, levels: int, *, draws: int, **settings: Any
) -> np.ndarray:
    """Draws of every image from what is seen of it, (n, draws, height, width), in grey levels."""
    found = model.sample(key, draws, given=jnp.asarray(observe(test, levels)), **settings)
    return np.asarray(found)


def scores(drawn: np.ndarray, test: np.ndarray, levels: int) -> dict[str, float]:
    """PSNR and SSIM over whole images, means over the images: of a draw, and of the draws' mean.

    A perfect sampler has a finite PSNR, about 3 dB below that of the posterior's mean.
    """
    found = likeness(drawn[:, 0], test, levels, "a sample")
    if drawn.shape[1] > 1:
        found |= likeness(drawn.mean(1), test, levels, f"the mean of {drawn.shape[1]}")
    return found


def likeness(images: np.ndarray, test: np.ndarray, levels: int, what: str) -> dict[str, float]:
    """PSNR and SSIM of images (n, height, width), means over them."""
    return {
        f"PSNR of {what} (dB)": float(psnr(images, test, top=levels - 1).mean()),
        f"SSIM of {what}": float(ssim(images, test, top=levels - 1).mean()),
    }


def mean_fill(images: Images) -> np.ndarray:
    """The baseline: the hidden part as the mean of the training images, (n, 1, height, width)."""
    mean = images.train.mean(0, keepdims=True)
    return np.where(visible(images.test), images.test, mean)[:, None]


def show(run: Run, name: str, drawn: np.ndarray, test: np.ndarray, levels: int, rows: int = 8):
    """Truth, what is seen, some draws and their mean, a row an image."""
    seen = np.where(visible(test), test.astype(float), np.nan)[:rows]
    columns = {"truth": test[:rows], "seen": seen}
    columns |= {f"draw {i + 1}": drawn[:rows, i] for i in range(min(4, drawn.shape[1]))}
    columns["mean"] = drawn[:rows].mean(1)
    run.figure(name, image_grid(columns, top=levels - 1))
