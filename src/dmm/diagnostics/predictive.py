"""Predictive checks: could what was observed have been simulated?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from .._checks import finite, numbers

_LEAST = 20


@dataclass(frozen=True, eq=False)
class PredictiveCheck:
    """Where the statistics of an observation lie among those of simulations."""

    names: tuple[str, ...]
    observed: Float[np.ndarray, " k"]
    simulated: Float[np.ndarray, "m k"]
    tails: Float[np.ndarray, " k"]  # two-sided p-values, one by one
    adjusted: Float[np.ndarray, " k"]  # the same, for all of them at once
    p_value: float  # of Mahalanobis's distance

    def departures(self, level: float = 0.05) -> dict[str, str]:
        """The statistics that disagree, by `adjusted`, the worst first."""
        scores = np.abs(self.scores)
        worst = sorted(map(int, np.flatnonzero(self.adjusted <= level)), key=lambda i: -scores[i])
        return {self.names[i]: self._describe(i) for i in worst}

    @property
    def scores(self) -> Float[np.ndarray, " k"]:
        """Observed less mean of the simulated, in standard deviations of these."""
        scale = self.simulated.std(axis=0)
        return (self.observed - self.simulated.mean(axis=0)) / np.where(scale > 0, scale, 1.0)

    def _describe(self, i: int) -> str:
        side, others = "above", np.mean(self.simulated[:, i] < self.observed[i])
        if self.scores[i] < 0:
            side, others = "below", np.mean(self.simulated[:, i] > self.observed[i])
        return f"{side} {100 * others:.4g}% of simulations ({self.scores[i]:+.3g} sd)"


def predictive_check(
    observation: Any, simulations: Any, *, names: Sequence[str] | None = None
) -> PredictiveCheck:
    """Predictive check of an observation (...) against simulations (m, ...), number by number.

    Simulated from posterior draws, this asks whether the fitted model could have made the
    observation; from prior draws, whether the simulator could. Pass statistics of both to look at
    these instead: arrays, or a tree of them such as a dict by name.

    Every p-value ranks the observation among the m + 1, and so is at least 1/(m + 1). `tails` are
    twice the smaller tail of each number. `adjusted` compares its distance from the mean, in
    standard deviations, with the largest such of each simulation (Westfall & Young, 1993): one of
    all falls below a level by chance as often as the level says. `p_value` compares Mahalanobis's
    distance, with the covariance of Ledoit & Wolf (2004): it sees combinations that no single
    number shows. All are exact for simulations as the observation is; for a posterior that has seen
    the observation they are conservative (Meng, 1994).
    """
    from sklearn.covariance import LedoitWolf

    observed, simulated, own_names = _matched(observation, simulations)
    m, k = simulated.shape
    if names is not None:
        if isinstance(names, str) or len(names) != k:
            raise ValueError(f"names: expected {k} strings, one a number, got {names!r}")
        own_names = tuple(names)

    # Nothing below tells the first row, the observation, from the others.
    pooled = np.concatenate([observed[None], simulated])
    scale = pooled.std(axis=0)
    scores = (pooled - pooled.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    low, high = np.sum(pooled <= observed, axis=0), np.sum(pooled >= observed, axis=0)
    # The observation is among both; a rounding must not part what is equal.
    largest = np.abs(scores).max(axis=1) * (1 + 1e-12)
    distances = LedoitWolf(assume_centered=True).fit(scores).mahalanobis(scores)
    return PredictiveCheck(
        own_names,
        observed,
        simulated,
        np.minimum(1.0, 2 * np.minimum(low, high) / (m + 1)),
        np.mean(largest[:, None] >= np.abs(scores[0]), axis=0),
        float(np.mean(distances * (1 + 1e-12) >= distances[0])),
    )


def _matched(observation: Any, simulations: Any) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Both as numbers, (k,) and (m, k), and a name for each."""
    leaves, form = jax.tree.flatten(observation)
    paths, other = jax.tree_util.tree_flatten_with_path(simulations)
    if form != other or not leaves:
        raise ValueError(f"simulations: have the form {other}, but observation {form}")
    observed, simulated, names = [], [], []
    for leaf, (path, stack) in zip(leaves, paths, strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        where = f"[{name}]" if name else ""
        one = np.asarray(numbers(leaf, f"observation{where}"), np.float64)
        many = np.asarray(numbers(stack, f"simulations{where}"), np.float64)
        if many.ndim != one.ndim + 1 or many.shape[1:] != one.shape:
            raise ValueError(
                f"simulations{where}: expected ({', '.join(map(str, ('m', *one.shape)))}), stacked "
                f"ones of the observation's shape, got {many.shape}"
            )
        finite(one[None], f"observation{where}")
        finite(many, f"simulations{where}")
        observed.append(one.reshape(-1))
        simulated.append(many.reshape(len(many), -1))
        label = name or "x"
        names += [
            label if not place else f"{label}[{','.join(map(str, place))}]"
            for place in np.ndindex(one.shape)
        ]
    counts = {len(stack) for stack in simulated}
    if len(counts) > 1:
        raise ValueError(f"simulations: have different numbers of rows, {sorted(counts)}")
    if (m := counts.pop()) < _LEAST:
        raise ValueError(f"simulations: {m} are too few to rank among; make at least {_LEAST}")
    if not names:
        raise ValueError("observation: holds no numbers")
    return np.concatenate(observed), np.concatenate(simulated, axis=1), tuple(names)
