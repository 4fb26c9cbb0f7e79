"""Data in parts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._checks import at_least


class Parts(NamedTuple):
    """Rows to train on, to choose by, and to report on."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split(data: np.ndarray, seed: int, *, shares: Sequence[float] = (0.8, 0.1, 0.1)) -> Parts:
    """Rows shuffled by `numpy.random.default_rng(seed)`, in three parts of these shares."""
    data = np.asarray(data)
    at_least(0, seed=seed)
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(
            f"shares: expected three numbers, none negative, that sum to 1, got {tuple(shares)}"
        )
    if data.ndim == 0:
        raise ValueError("data: expected rows, got one number; stack the points into an array")
    first, second = (round(len(data) * float(share)) for share in np.cumsum(shares)[:2])
    shuffled = data[np.random.default_rng(seed).permutation(len(data))]
    parts = Parts(shuffled[:first], shuffled[first:second], shuffled[second:])
    for name, part, share in zip(parts._fields, parts, shares, strict=True):
        if share > 0 and len(part) == 0:
            raise ValueError(
                f"data: {len(data)} rows leave none for {name}, whose share is {share}; bring more "
                "or change shares"
            )
    return parts
