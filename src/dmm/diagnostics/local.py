"""The classifier two-sample test of a posterior at one observation."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import pdist

from .._checks import at_least
from .._types import Key
from .draws import matrix, truths_and_draws
from .points import flattened, robust

_DRAWS = 10  # of a simulation, that the classifier learns from; their units are of all
_LEAST = 10  # draws at the observation
_RIDGE = 1e-2  # in units of the mean eigenvalue
_PAIRS = 1_000  # points that set a bandwidth
_CHUNK_ENTRIES = 2**23  # features held at once


@dataclass(frozen=True, eq=False)
class LocalC2ST:
    """How well a classifier tells a posterior from the truth at one observation."""

    statistic: float  # mean square of probability − ½ over the draws
    null: Float[np.ndarray, " permutations"]  # the same, were draws and truths alike
    p_value: float
    probabilities: Float[np.ndarray, " k"]  # of each draw: above ½ where there should be more


def local_c2st(
    truths: Any,
    samples: Any,
    observations: Any,
    *,
    drawn: Any,
    observation: Any,
    key: Key,
    permutations: int = 200,
    features: int = 300,
) -> LocalC2ST:
    """Local classifier two-sample test (Linhart et al., 2023): is a posterior right at one x?

    `truths` (n, d) from the prior, `samples` (n, m, d) draws of the posterior given what was
    simulated from each, and these `observations`: a stacked array, or a tree of them; a few
    summaries of a long x are easier to learn from. A classifier P(truth | θ, x) learns from all of
    them to tell truths from draws, and is asked about those `drawn` (k, d) at one `observation`, of
    the form of a row of `observations`: the statistic is the mean of (P − ½)² over them, 0 for a
    right posterior. Its law under the null comes from classifiers for which one of the m + 1, at
    random, has the truth's place. The p-value is exact if posteriors are right everywhere; how
    little it minds departures at other x depends on how sharp the classifier is.

    Ours is linear in random `features` cos(⟨u, z⟩ + ⟨v, x⟩ + b), half of them with v = 0, and
    fitted by least squares with a ridge: all permutations cost one factorisation. Its inputs are z,
    θ in units of the mean and the standard deviation of the draws at its own x, and x in `robust`
    units; frequencies are those of Gaussian kernels whose bandwidths are half, once and twice the
    median distance.
    """
    truths, samples = truths_and_draws(truths, samples)
    at_least(20, permutations=permutations, features=features)
    n, d = truths.shape
    drawn = matrix(drawn, "drawn", d)
    if len(drawn) < _LEAST:
        raise ValueError(f"drawn: {len(drawn)} draws are too few; make at least {_LEAST}")
    seen = flattened(observations, "observations")
    if len(seen) != n:
        raise ValueError(f"observations: expected {n}, one a truth, got {len(seen)}")
    place = flattened(jax.tree.map(lambda leaf: np.asarray(leaf)[None], observation), "observation")
    if place.shape[1] != seen.shape[1]:
        raise ValueError(
            f"observation: has {place.shape[1]} numbers, but those of observations have "
            f"{seen.shape[1]}; pass a single one"
        )

    # The truth and the draws of a simulation side by side, and no step below tells them apart.
    both = _own_units(np.concatenate([truths[:, None], samples], axis=1))[:, : _DRAWS + 1]
    place, seen = robust(place, seen), robust(seen, seen)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    waves = _Waves(random, both.reshape(-1, d), seen, features)
    chosen = random.integers(0, both.shape[1], (permutations + 1, n))
    chosen[0] = 0
    weights, mean = _fit(waves, both, seen, chosen)
    values = (waves(_own_units(drawn), place) - mean) @ weights
    probabilities = _probability(values, both.shape[1] - 1)
    statistic, *null = np.mean((probabilities - 0.5) ** 2, axis=0)
    above = np.count_nonzero(np.array(null) >= statistic)
    return LocalC2ST(
        float(statistic), np.array(null), (1 + above) / (1 + permutations), probabilities[:, 0]
    )


class _Waves:
    """Random Fourier features of (z, x) (Rahimi & Recht, 2007)."""

    def __init__(self, random: np.random.Generator, z: np.ndarray, x: np.ndarray, count: int):
        widths = random.choice([0.5, 1.0, 2.0], count)
        self.u = random.normal(size=(z.shape[1], count)) / (widths * _bandwidth(random, z))
        self.v = random.normal(size=(x.shape[1], count)) / (widths * _bandwidth(random, x))
        self.v[:, ::2] = 0.0
        self.shift = random.uniform(0, 2 * np.pi, count)

    def __call__(self, z: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Of points (..., d) and as many observations (..., p), or one."""
        return np.cos(z @ self.u + x @ self.v + self.shift)


def _fit(
    waves: _Waves, both: np.ndarray, seen: np.ndarray, chosen: np.ndarray
) -> tuple[Float[np.ndarray, "f h"], Float[np.ndarray, " f"]]:
    """Ridge regression on labels 1 for the chosen and −1/m for the m others, a column a choice.

    Labels sum to 0 in each simulation, so that a constant drops out.
    """
    n, size, _ = both.shape
    count = len(waves.shift)
    gram, total, picked = np.zeros((count, count)), np.zeros(count), np.zeros((len(chosen), count))
    rows = max(1, _CHUNK_ENTRIES // (size * count))
    for i in range(0, n, rows):
        values = waves(both[i : i + rows], seen[i : i + rows, None])
        flat = values.reshape(-1, count)
        gram += flat.T @ flat
        total += flat.sum(axis=0)
        places = np.arange(len(values)) * size
        for h, row in enumerate(chosen[:, i : i + rows]):
            picked[h] += flat[places + row].sum(axis=0)
    mean = total / (n * size)
    gram = gram / (n * size) - np.outer(mean, mean)
    target = (picked * (1 + 1 / (size - 1)) - total / (size - 1)) / (n * size)
    ridge = _RIDGE * np.trace(gram) / count
    return np.linalg.solve(gram + ridge * np.eye(count), target.T), mean


def _probability(values: np.ndarray, m: int) -> np.ndarray:
    """p/(p + q) from the regression's limit (p − q)/(p + mq): p of truths, q of draws."""
    values = np.clip(values, -1 / m, 1.0)
    return (1 + m * values) / (2 + (m - 1) * values)


def _own_units(points: Float[np.ndarray, "*n m d"]) -> Float[np.ndarray, "*n m d"]:
    scale = points.std(axis=-2, keepdims=True)
    return (points - points.mean(axis=-2, keepdims=True)) / np.where(scale > 0, scale, 1.0)


def _bandwidth(random: np.random.Generator, points: np.ndarray) -> float:
    chosen = points[random.permutation(len(points))[:_PAIRS]]
    return float(np.median(pdist(chosen))) or 1.0
