"""Simulation-based calibration: the ranks of true parameters among draws of their posteriors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from .._checks import finite, numbers
from .._types import Key
from .draws import labels, ranks_among, truths_and_draws
from .uniformity import chi_square_p_value, departure, ecdf_p_value


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of what was true among the draws, and tests that they are uniform from 0 to `draws`."""

    ranks: Int[np.ndarray, "n k"]
    draws: int
    names: tuple[str, ...]
    chi_square: Float[np.ndarray, " k"]  # p-values over bins
    ecdf: Float[np.ndarray, " k"]  # p-values of the simultaneous band

    @property
    def p_value(self) -> float:
        """Of all tests together, by Bonferroni: the smallest times their number."""
        return min(1.0, 2 * len(self.names) * float(min(self.ecdf.min(), self.chi_square.min())))

    def departures(self, level: float = 0.05) -> dict[str, str]:
        """What fails, by the same count of tests, and how the draws lie to the truth."""
        worst = 2 * len(self.names) * np.minimum(self.ecdf, self.chi_square)
        return {
            name: departure(self.ranks[:, i], self.draws)
            for i, name in enumerate(self.names)
            if worst[i] <= level
        }


def sbc(
    truths: Any,
    samples: Any,
    *,
    names: Sequence[str] | None = None,
    quantities: Mapping[str, tuple[Any, Any]] | None = None,
    key: Key | None = None,
) -> Ranks:
    """Simulation-based calibration (Talts et al., 2018): is each marginal as wide as it should be?

    `truths` (n, d) are parameters from the prior, `samples` (n, m, d) draws of the posterior given
    what was simulated from each. If the posterior is right, the number of draws below the truth is
    uniform on 0, ..., m in every coordinate; equal values, as of discrete parameters, are put in
    random order by `key`.

    `quantities` are further numbers to rank, (n,) of the truths and (n, m) of the draws by name.
    They may depend on the observation, as log-densities do (Modrák et al., 2023): then they catch
    what no coordinate shows, such as a posterior that is the prior.
    """
    truths, samples = truths_and_draws(truths, samples)
    names = labels(names, truths.shape[1])
    for name, (true, drawn) in (quantities or {}).items():
        columns = _quantity(name, true, drawn, samples.shape[:2])
        truths, samples = (
            np.concatenate([a, b[..., None]], axis=-1)
            for a, b in zip((truths, samples), columns, strict=True)
        )
        names = (*names, name)
    ranks = ranks_among(jax.random.key(0) if key is None else key, truths, samples)
    draws = samples.shape[1]
    return Ranks(
        ranks,
        draws,
        names,
        np.array([chi_square_p_value(column, draws) for column in ranks.T]),
        np.array([ecdf_p_value(column, draws) for column in ranks.T]),
    )


def _quantity(name: str, true: Any, drawn: Any, shape) -> tuple[np.ndarray, np.ndarray]:
    label = f"quantities[{name!r}]"
    true, drawn = (np.asarray(numbers(a, label), np.float64) for a in (true, drawn))
    if true.shape != shape[:1] or drawn.shape != shape:
        raise ValueError(
            f"{label}: expected arrays {shape[:1]} and {shape}, of the truths and of the draws, "
            f"got {true.shape} and {drawn.shape}"
        )
    finite(true, label)
    finite(drawn, label)
    return true, drawn
