"""Torsion angles of RNA."""

import numpy as np

from .files import DataError, find

ANGLES = ("α", "β", "γ", "δ", "ε", "ζ", "χ")


def rna() -> np.ndarray:
    """The 7 torsion angles of 9478 nucleotides in radians, (n, 7), in the order of `ANGLES`.

    Six of the backbone and that of the base, compiled by Huang et al. (2022) from the crystals of
    Murray et al. (2003).
    """
    path = find("torus/rna.tsv")
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            angles = [float(entry) for entry in line.split("\t")[2:]]
            if len(angles) != len(ANGLES) or not all(abs(a) <= 360 for a in angles):
                raise ValueError("too few, too many or out of range")
        except ValueError:
            raise DataError(
                f"{path}: line {number} must be a name, a base and {len(ANGLES)} angles in "
                f"degrees, not {line[:40]!r}; fetch the file again"
            ) from None
        rows.append(angles)
    if not rows:
        raise DataError(f"{path}: holds no angles; fetch the file again")
    return np.radians(rows)
