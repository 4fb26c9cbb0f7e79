"""A guess of the posterior by linear regression, which a model then corrects."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._types import Given, Key, Point
from ..networks.flat import flatten
from ..parameterisations import Guessed

HELD_OUT = 0.1  # of the pairs, to choose the ridge by
RIDGES = (*10.0 ** np.arange(-6, 1), np.inf)  # over the mean square of the regressors
MOST = 1_000  # regressors
NARROWEST = 1e-4


def linear_guess(key: Key, points: Point, observed: Given) -> Guessed:
    """The linear guess that explains stacked pairs of points and encoded observations best.

    `points` are in the process's units. Ridge regression, in double precision, the ridge chosen by
    held-out pairs: with an infinite one, or more than 1000 regressors, the guess is the prior's own
    normal law. The basis is that in which the errors are uncorrelated.
    """
    y, x = (np.asarray(jax.vmap(flatten)(stack), np.float64) for stack in (points, observed))
    order = np.asarray(jax.random.permutation(key, len(y)))
    held, kept = np.split(order, [max(1, round(HELD_OUT * len(y)))]) if len(y) > 1 else [order] * 2
    mean_x, mean_y = x[kept].mean(0), y[kept].mean(0)
    x, y = x - mean_x, y - mean_y
    slope, freedom = np.zeros((x.shape[1], y.shape[1])), 0.0
    if x.shape[1] <= MOST:
        slope, freedom = _ridge(x[kept], y[kept], x[held], y[held])
    left = y[kept] - x[kept] @ slope
    variances, basis = np.linalg.eigh(left.T @ left / max(1.0, len(left) - freedom))
    width = np.sqrt(np.maximum(variances, NARROWEST**2))
    parts: Any = slope @ basis, (mean_y - mean_x @ slope) @ basis, width, basis
    return Guessed(*(jnp.asarray(part, float) for part in parts))


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
