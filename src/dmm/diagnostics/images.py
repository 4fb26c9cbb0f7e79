"""How alike two images are."""

import numpy as np


def psnr(images: np.ndarray, truth: np.ndarray, *, top: float) -> np.ndarray:
    """Peak signal-to-noise ratio of each image, 10 log₁₀(top²/mean square error), in decibels.

    `images` and `truth` are (n, height, width) or (n, height, width, channels), with values from 0
    to `top`. An image without error has the ratio of an error of half a level of 256.
    """
    images, truth = _pair(images, truth)
    error = np.mean((images - truth) ** 2, axis=tuple(range(1, images.ndim)))
    return 10 * np.log10(top**2 / np.maximum(error, (top / 510) ** 2))


def ssim(images: np.ndarray, truth: np.ndarray, *, top: float) -> np.ndarray:
    """Structural similarity of each image, by scikit-image, with its 7×7 window."""
    from skimage.metrics import structural_similarity

    images, truth = _pair(images, truth)
    channels = -1 if images.ndim == 4 else None
    window = min(7, *(side - 1 + side % 2 for side in images.shape[1:3]))
    return np.array(
        [
            structural_similarity(a, b, data_range=top, channel_axis=channels, win_size=window)
            for a, b in zip(images, truth, strict=True)
        ]
    )


def _pair(images, truth) -> tuple[np.ndarray, np.ndarray]:
    images, truth = np.asarray(images, np.float64), np.asarray(truth, np.float64)
    if images.shape != truth.shape or images.ndim not in (3, 4):
        raise ValueError(
            f"images, truth: expected arrays (n, height, width) of one shape, got {images.shape} "
            f"and {truth.shape}"
        )
    return images, truth
