"""Small images with integer grey levels."""

from typing import NamedTuple

import numpy as np

from .files import find, read_idx


class Images(NamedTuple):
    """Images (n, height, width) of whole numbers from 0 to levels − 1, with labels (n,)."""

    train: np.ndarray
    test: np.ndarray
    train_labels: np.ndarray
    test_labels: np.ndarray
    levels: int


def digits(*, test: int = 297, seed: int = 0) -> Images:
    """scikit-learn's handwritten digits: 1797 images, 8×8, 17 levels; `test` of them held out."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(seed).permutation(len(found.images))
    images, labels = found.images.astype(np.int32)[order], found.target.astype(np.int32)[order]
    return Images(images[test:], images[:test], labels[test:], labels[:test], levels=17)


def mnist() -> Images:
    """MNIST: 60,000 and 10,000 images, 28×28, 256 levels (see `files` for where it is found)."""
    parts = [
        read_idx(find(f"mnist/{name}.gz"))
        for name in (
            "train-images-idx3-ubyte",
            "t10k-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-labels-idx1-ubyte",
        )
    ]
    return Images(*(part.astype(np.int32) for part in parts), levels=256)
