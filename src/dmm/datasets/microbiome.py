"""Counts of bacteria."""

import csv
from typing import NamedTuple

import numpy as np

from .files import DataError, find


class Microbiome(NamedTuple):
    """Counts (n, d) of d groups of bacteria in n samples, and the groups' names."""

    counts: np.ndarray
    names: list[str]


def microbiome() -> Microbiome:
    """Gut bacteria: 1151 samples of 1006 adults, 130 groups, a fifth of the counts 0.

    The HITChip Atlas of Lahti et al. (2014), data set atlas1006 of the R package microbiome.
    `dmm.closure` makes proportions of the counts.
    """
    path = find("simplex/atlas1006_counts.csv")
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        reader = csv.reader(file)
        names = next(reader, [])[1:]
        rows = []
        for row in reader:
            if not row:
                continue
            try:
                counts = [float(entry) for entry in row[1:]]
                if len(counts) != len(names) or not all(0 <= count < np.inf for count in counts):
                    raise ValueError("too few, too many, negative or not finite")
            except ValueError:
                raise DataError(
                    f"{path}: line {reader.line_num} must be a sample's name and {len(names)} "
                    "counts, one a column of the first line; make the file again"
                ) from None
            rows.append(counts)
    if not rows or not names:
        raise DataError(f"{path}: holds no counts; make the file again")
    return Microbiome(np.array(rows), names)
