"""The published images of symmetric solids."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._checks import at_least
from .files import DataError
from .solids import SOLIDS

ARCHIVE = "https://storage.googleapis.com/gresearch/implicit-pdf/symsol_dataset.zip"
KEYS = dict(zip(SOLIDS, ("tet", "cube", "icosa", "cone", "cyl"), strict=True))


class Symsol(NamedTuple):
    """Images of one solid, grey in [0, 1], and the rotations (n, g, 3, 3) that each may show."""

    images: np.ndarray
    rotations: np.ndarray


def symsol(name: str, *, split: str = "train", size: int = 64, limit: int | None = None) -> Symsol:
    """The first `limit` images of a solid of SYMSOL I (Murphy et al., 2021), made `size` × `size`.

    They are read where `symsol_dataset.zip` was unpacked to `$DMM_DATA/symsol`: from
    `train/images/tet_00000.png` and `train/rotations.npz`, an array (n, g, 3, 3) a solid, and the
    same for `test`. The frames are theirs, not those of `render_solid`.
    """
    if name not in SOLIDS:
        raise ValueError(f"name: expected one of {', '.join(SOLIDS)}, got {name!r}")
    if split not in ("train", "test"):
        raise ValueError(f"split: choose 'train' or 'test', got {split!r}")
    at_least(1, size=size, limit=1 if limit is None else limit)
    root = os.environ.get("DMM_DATA")
    if not root:
        raise DataError(
            f"symsol: is too large to be downloaded for you; unpack {ARCHIVE} to a folder called "
            "symsol and set DMM_DATA to the folder that holds it"
        )
    folder = Path(root) / "symsol" / split
    rotations = _rotations(folder / "rotations.npz", KEYS[name])
    paths = sorted((folder / "images").glob(f"{KEYS[name]}_*.png"))[:limit]
    if not paths:
        raise DataError(
            f"DMM_DATA: {folder / 'images'} has no images {KEYS[name]}_*.png; unpack {ARCHIVE} "
            f"to {folder.parent}"
        )
    numbers = [_number(path, len(rotations)) for path in paths]
    return Symsol(np.stack([_image(path, size) for path in paths]), rotations[numbers])


def _rotations(path: Path, key: str) -> np.ndarray:
    if not path.is_file():
        raise DataError(
            f"DMM_DATA: {path} does not exist; unpack {ARCHIVE} to {path.parent.parent}"
        )
    try:
        with np.load(path) as arrays:
            rotations = np.asarray(arrays[key], np.float32)
        if rotations.ndim != 4 or rotations.shape[2:] != (3, 3):
            raise ValueError(f"{key} has shape {rotations.shape}")
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(
            f"{path}: does not hold rotations (n, g, 3, 3) of {key} ({error}); unpack it again"
        ) from error
    return rotations


def _number(path: Path, count: int) -> int:
    """The row of the rotations that an image belongs to."""
    digits = path.stem.partition("_")[2]
    if not digits.isdigit() or int(digits) >= count:
        raise DataError(
            f"{path}: its name should end in a number below {count}, that of rotations; unpack the "
            "archive again"
        )
    return int(digits)


def _image(path: Path, size: int) -> np.ndarray:
    from matplotlib.image import imread
    from skimage.color import rgb2gray
    from skimage.transform import resize

    try:
        pixels = imread(path)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: is not an image ({error}); unpack the archive again") from error
    grey = pixels if pixels.ndim == 2 else rgb2gray(pixels[..., :3])
    return resize(grey, (size, size), anti_aliasing=True).astype(np.float32)
