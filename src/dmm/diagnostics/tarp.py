"""Expected coverage of posteriors, by distances to random points."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from .._checks import at_least
from .._types import Key
from .draws import matrix, ranks_among, truths_and_draws
from .points import flattened, robust
from .uniformity import cuts, ecdf_p_value


@dataclass(frozen=True, eq=False)
class ExpectedCoverage:
    """How often credible regions hold the truth: at every level, if posteriors are right."""

    levels: Float[np.ndarray, " k"]  # from 0 to 1
    coverage: Float[np.ndarray, " k"]
    low: Float[np.ndarray, " k"]  # of a bootstrap over simulations, at each level
    high: Float[np.ndarray, " k"]
    ranks: Int[np.ndarray, " n"]  # draws nearer to the reference than the truth
    p_value: float  # that coverage is the level, everywhere at once


def tarp(
    truths: Any,
    samples: Any,
    *,
    key: Key,
    references: Any = None,
    level: float = 0.95,
    resamples: int = 1_000,
) -> ExpectedCoverage:
    """Tests of accuracy with random points (Lemos et al., 2023): coverage in all dimensions.

    `truths` (n, d) and `samples` (n, m, d) as for `sbc`. Around a reference point, the ball that
    holds a share of the draws is a credible region of that level. `references` (n, d) are one point
    a simulation; they may depend on its observation, not on its truth. By default they are uniform
    over the range of the parameters, as in the paper; but balls around them cannot tell a posterior
    from the prior: `nearest_truths` can. Distances are Euclidean, every coordinate in units of its
    range, which holds all truths and draws but a hundredth. `low` and `high` hold the share `level`
    of `resamples` bootstrapped curves.
    """
    truths, samples = truths_and_draws(truths, samples)
    at_least(1, resamples=resamples)
    if not 0 < level < 1:
        raise ValueError(f"level: must lie between 0 and 1, got {level}")
    n, draws, d = samples.shape
    # Of truths and draws alike: were it of the truths alone, these would not be as the draws are.
    pooled = np.concatenate([truths, samples.reshape(-1, d)])
    origin, end = np.quantile(pooled, [0.005, 0.995], axis=0)
    scale = np.where(end > origin, end - origin, 1.0)
    truths, samples = (truths - origin) / scale, (samples - origin) / scale
    place_key, tie_key, resample_key = jax.random.split(key, 3)
    if references is None:
        references = np.asarray(jax.random.uniform(place_key, (n, d)), np.float64)
    else:
        references = (matrix(references, "references", d) - origin) / scale
        if len(references) != n:
            raise ValueError(f"references: expected {n} points, one a truth, got {len(references)}")
    distances = np.linalg.norm(samples - references[:, None], axis=-1)
    ranks = ranks_among(tie_key, np.linalg.norm(truths - references, axis=-1), distances)

    edges = np.concatenate([[0], cuts(n, draws), [draws + 1]])
    cells = np.histogram(ranks, edges)[0]
    seed = np.asarray(jax.random.key_data(resample_key))
    resampled = np.random.default_rng(seed).multinomial(n, cells / n, size=resamples)
    curves = np.cumsum(resampled, axis=1) / n
    band = np.quantile(curves, [(1 - level) / 2, (1 + level) / 2], axis=0)
    coverage, low, high = (np.append(0.0, c) for c in (np.cumsum(cells) / n, *band))
    return ExpectedCoverage(
        edges / (draws + 1), coverage, low, high, ranks, ecdf_p_value(ranks, draws)
    )


def nearest_truths(truths: Any, observations: Any) -> Float[np.ndarray, "n d"]:
    """References for `tarp`: the truth of that earlier simulation that looked most alike.

    `observations` are stacked arrays or a tree of them; alike are those at the least distance in
    `robust` units. Such a point is near the posterior and yet makes no use of the truth: whatever
    the ranks before it, each is uniform. The first has none before it, and takes the origin.
    """
    truths = matrix(truths, "truths")
    seen = flattened(observations, "observations")
    seen = robust(seen, seen)
    if len(seen) != len(truths):
        raise ValueError(f"observations: expected {len(truths)}, one a truth, got {len(seen)}")
    lengths = np.sum(seen**2, axis=1)  # |x − y|² less |x|², which is the same for all y
    nearest = [np.argmin(lengths[:i] - seen[:i] @ (2 * seen[i])) for i in range(1, len(seen))]
    return np.concatenate([np.zeros((1, truths.shape[1])), truths[nearest]])
