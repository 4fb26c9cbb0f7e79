"""Two sets of points, whatever their space, as two checked matrices."""

import jax
import numpy as np
from jaxtyping import Float, PyTree


def matrices(
    samples: PyTree, reference: PyTree
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "m d"]]:
    """Both sets as float64 matrices, one row a point, or a `ValueError` that names the fault.

    Float64 on the host, so that what is subtracted later (means, neighbours) is not rounded first.
    """
    x, y = flattened(samples, "samples"), flattened(reference, "reference")
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"samples have {x.shape[1]} coordinates a point and reference {y.shape[1]}: "
            "compare points of one space"
        )
    return x, y


def flattened(points: PyTree, name: str) -> Float[np.ndarray, "n d"]:
    """Leaves (n, ...) flattened a point and set side by side: (n, d), in float64."""
    leaves = [np.asarray(leaf, dtype=np.float64) for leaf in jax.tree.leaves(points)]
    if not leaves or any(leaf.ndim == 0 for leaf in leaves):
        raise ValueError(f"{name} must be arrays with the points along the first axis")
    if len({len(leaf) for leaf in leaves}) > 1:
        sizes = [len(leaf) for leaf in leaves]
        raise ValueError(f"{name} must have as many points in every leaf, not {sizes}")
    if any(leaf.size == 0 for leaf in leaves):
        raise ValueError(f"{name} must not be empty: {[leaf.shape for leaf in leaves]}")
    matrix = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    bad = np.count_nonzero(~np.isfinite(matrix).all(axis=1))
    if bad:
        raise ValueError(
            f"{name} must be finite: {bad} of {len(matrix)} points hold NaN or infinity; "
            "mend the sampler, or drop them and say so"
        )
    return matrix


def robust(
    values: Float[np.ndarray, "n d"], reference: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, "n d"]:
    """arcsinh of the distance to the reference's median in units of its spread, a coordinate each.

    The spread is the interquartile range over that of N(0, 1): far values neither set the units nor
    dwarf the others.
    """
    low, middle, high = np.quantile(reference, [0.25, 0.5, 0.75], axis=0)
    scale = (high - low) / 1.349
    scale = np.where(scale > 0, scale, reference.std(axis=0))
    return np.arcsinh((values - middle) / np.where(scale > 0, scale, 1.0))
