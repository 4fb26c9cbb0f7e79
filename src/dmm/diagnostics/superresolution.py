"""Whether enlarged images agree with the small ones, and look like photographs.

Images are stacked, (n, height, width) or (n, height, width, channels), with values in levels.
"""

import jax.image
import numpy as np


def downsampled(images: np.ndarray, factor: int) -> np.ndarray:
    """The mean over squares of `factor` × `factor` pixels."""
    images = _images(images)
    n, height, width, *channels = images.shape
    if factor < 1 or height % factor or width % factor:
        raise ValueError(
            f"factor: {factor} does not divide images of {height} × {width}; crop them, or take "
            "another"
        )
    blocks = images.reshape(n, height // factor, factor, width // factor, factor, *channels)
    return blocks.mean((2, 4))


def consistency(images: np.ndarray, small: np.ndarray) -> np.ndarray:
    """The root mean square, in levels, of each image's downsampling less the small image."""
    images, small = _images(images), _images(small)
    factor = images.shape[1] // small.shape[1]
    if factor < 1 or images.shape[1:3] != (factor * small.shape[1], factor * small.shape[2]):
        raise ValueError(
            f"small: images of {images.shape[1:3]} are no whole multiple of {small.shape[1:3]}"
        )
    seen = downsampled(images, factor)
    if seen.shape != small.shape:
        raise ValueError(
            f"small: expected a small image for each one, {seen.shape}, got {small.shape}"
        )
    return np.sqrt(_mean((seen - small) ** 2))


def diversity(draws: np.ndarray) -> np.ndarray:
    """How far apart the draws of one input are: the root mean variance of a pixel, in levels.

    `draws` is (n, draws, height, width) or (n, draws, height, width, channels). The root mean
    square between two draws is √2 times as large.
    """
    draws = np.asarray(draws, np.float64)
    if draws.ndim not in (4, 5) or draws.shape[1] < 2:
        raise ValueError(
            "draws: expected (n, draws, height, width) or (n, draws, height, width, channels), and "
            f"at least two draws, got {draws.shape}"
        )
    return np.sqrt(_mean(draws.var(1, ddof=1)))


def sharpness(images: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Each image's mean length of the gradient over the truth's: below 1 if blurred.

    Above 1 it is noise or ringing that the truth does not have.
    """
    images, truth = _images(images), _images(truth)
    if images.shape != truth.shape:
        raise ValueError(f"truth: expected the shape of images, {images.shape}, got {truth.shape}")
    return _slope(images) / np.maximum(_slope(truth), np.finfo(float).tiny)


def bicubic(small: np.ndarray, factor: int, *, top: float) -> np.ndarray:
    """Images enlarged by cubic interpolation, kept within 0 and `top`: what to do better than."""
    small = _images(small)
    if factor < 1:
        raise ValueError(f"factor: must be at least 1, got {factor}")
    n, height, width, *channels = small.shape
    shape = (n, height * factor, width * factor, *channels)
    large = jax.image.resize(small.astype(np.float32), shape, "cubic")
    return np.clip(np.asarray(large, np.float64), 0, top)


def _slope(images: np.ndarray) -> np.ndarray:
    down = np.diff(images, axis=1)[:, :, :-1]
    across = np.diff(images, axis=2)[:, :-1]
    return _mean(np.hypot(down, across))


def _mean(images: np.ndarray) -> np.ndarray:
    return images.mean(tuple(range(1, images.ndim)))


def _images(images: np.ndarray) -> np.ndarray:
    images = np.asarray(images, np.float64)
    if images.ndim not in (3, 4):
        raise ValueError(
            "images: expected (n, height, width) or (n, height, width, channels), got "
            f"{images.shape}"
        )
    return images
