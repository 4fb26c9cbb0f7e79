"""Files of images as squares of 8-bit RGB."""

from __future__ import annotations

import functools
import io
import operator
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np

if TYPE_CHECKING:
    from PIL.Image import Image

Pixels = TypeVar("Pixels", np.ndarray, jax.Array)

SIXTEEN_BITS = frozenset(("I;16", "I;16L", "I;16B", "I;16N", "I"))


def square(
    data: bytes, size: int, *, place: float = 0.5, flip: bool = False, enlarge: bool = False
) -> np.ndarray:
    """The image in a file, (size, size, 3) bytes; a `ValueError` or other exception if it is none.

    Its shorter side is made `size` by averages and Lanczos's filter, of its longer one what begins
    at the share `place` in [0, 1) of all choices is kept: 1/2 is the middle. It is turned as the
    camera says, and mirrored with `flip`.
    """
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(data)) as image:
        if min(image.size) < size and not enlarge:
            width, height = image.size
            raise ValueError(f"{width}×{height} pixels, fewer than size={size}; see `enlarge`")
        # Large JPEGs are decoded at 1/2, 1/4 or 1/8, as long as that is twice what is needed.
        image.draft(None, _shorter_side(image.size, 2 * size))
        rgb = to_rgb(ImageOps.exif_transpose(image))
    if min(rgb.size) != size:
        wanted = _shorter_side(rgb.size, size)
        rgb = rgb.resize(wanted, Image.Resampling.LANCZOS, reducing_gap=3.0)
    left, top = (int(place * (side - size + 1)) for side in rgb.size)
    pixels = np.asarray(rgb)[top : top + size, left : left + size]
    return pixels[:, ::-1] if flip else pixels


def to_rgb(image: Image) -> Image:
    """Any image in 8-bit RGB: 16 bits are divided by 257, what is transparent lies on white."""
    from PIL import Image

    if image.mode in SIXTEEN_BITS:  # Pillow's own conversion clips at 255
        levels = np.asarray(image).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65535:
            raise ValueError(f"levels from {levels.min()} to {levels.max()}, not of 16 bits")
        return Image.fromarray(((levels + 128) // 257).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("real numbers, whose white is not known")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def downsample(images: Pixels, factor: int) -> Pixels:
    """Images (..., height, width, channels) as means of `factor` × `factor` pixels, real numbers.

    NumPy or JAX arrays. Sums of bytes are exact in single precision, their means rounded once.
    """
    *lead, height, width, channels = images.shape
    if factor < 1 or height % factor or width % factor:
        raise ValueError(
            f"factor: {factor} does not divide {height}×{width} pixels; choose one that does"
        )
    parts = (*lead, height // factor, factor, width // factor, factor, channels)
    dtype = images.dtype if np.issubdtype(images.dtype, np.floating) else np.float32
    rows = images.reshape(parts).sum(-4, dtype=dtype)
    # Not by another `sum`: NumPy takes five times as long over short axes.
    columns = (rows[..., column, :] for column in range(factor))
    total: Any = functools.reduce(operator.add, columns)
    return total / factor**2


def _shorter_side(sides: tuple[int, int], size: int) -> tuple[int, int]:
    """Sides in the same proportion, the shorter of them `size`."""
    short = min(sides)
    width, height = (max(size, round(side * size / short)) for side in sides)
    return width, height
