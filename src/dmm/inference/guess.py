"""A guess of the posterior by linear regression, which a model then corrects."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Given, Key, Point
from ..parameterisations import Guessed

HELD_OUT = 0.1  # of the pairs, to choose the ridge by
RIDGES = (*10.0 ** np.arange(-6, 1), np.inf)  # over the mean square of the regressors
LEAST, MOST = 50, 1_000  # pairs to regress, and regressors
NARROWEST = 1e-4


def linear_guess(key: Key, points: Point, observed: Given) -> Guessed:
    """The linear guess that explains stacked pairs of points and encoded observations best.

    `points` are in the process's units. Ridge regression, in double precision, the ridge chosen by
    held-out pairs, whose errors no width is less than: with an infinite one, of fewer than 50 pairs
    or more than 1000 regressors, the guess is the prior's own normal law. The basis is that in
    which the errors are uncorrelated.
    """
    count = len(jax.tree.leaves(points)[0])
    if count == 0:
        raise ValueError("points: are empty; pass pairs to regress")
    y, x = _matrix(points), _matrix(observed)
    order = np.asarray(jax.random.permutation(key, len(y)))
    enough = count >= LEAST
    held, kept = np.split(order, [round(HELD_OUT * count)]) if enough else (order, order)
    mean_x, mean_y = x[kept].mean(0), y[kept].mean(0)
    x, y = x - mean_x, y - mean_y
    slope, freedom = np.zeros((x.shape[1], y.shape[1])), 0.0
    if enough and x.shape[1] <= MOST:
        slope, freedom = _ridge(x[kept], y[kept], x[held], y[held])
    left = y[kept] - x[kept] @ slope
    variances, basis = np.linalg.eigh(left.T @ left / max(1.0, len(left) - freedom))
    basis = basis * np.sign(basis[np.abs(basis).argmax(0), np.arange(len(basis))])
    errors = np.mean(((y[held] - x[held] @ slope) @ basis) ** 2, 0)
    width = np.sqrt(np.maximum(np.maximum(variances, errors), NARROWEST**2))
    width = width if count > 1 else np.ones_like(width)
    parts: Any = slope @ basis, (mean_y - mean_x @ slope) @ basis, width, basis
    return Guessed(*(jnp.asarray(part, float) for part in parts))


def _matrix(stacked: Any) -> np.ndarray:
    """A row a point, in double precision."""
    leaves = jax.tree.leaves(stacked)
    return np.concatenate([np.asarray(a, np.float64).reshape(len(a), -1) for a in leaves], 1)


def _ridge(
    x: np.ndarray, y: np.ndarray, other_x: np.ndarray, other_y: np.ndarray
) -> tuple[np.ndarray, float]:
    """The slope of a regression of y on x that predicts the other y from the other x best, and its
    degrees of freedom."""
    squares, vectors = np.linalg.eigh(x.T @ x / len(x))
    moments = vectors.T @ (x.T @ y) / len(x)
    unit = max(squares.mean(), 1e-12)  # where nothing varies too
    found = []
    for ridge in RIDGES:
        shares = 1 / (np.maximum(squares, 0.0) + ridge * unit)
        slope = vectors @ (moments * shares[:, None])
        error = np.mean((other_y - other_x @ slope) ** 2)
        found.append((error, slope, float(np.sum(squares * shares))))
    return min(found, key=lambda each: each[0])[1:]
