"""Are ranks uniform? Tests of whole numbers from 0 to `draws` that are to be equally likely."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

_MOST_CUTS = 100
_BOUND = 1e-6  # below it, p-values are Bonferroni's bound: differences from 1 have no digits left
_CLEAR = 2.0  # standard errors from which a mean or a spread is said to be off


class Band(NamedTuple):
    """Where an empirical distribution function stays throughout, with some probability."""

    places: Float[np.ndarray, " k"]  # in (0, 1)
    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]


def cuts(n: int, draws: int) -> Int[np.ndarray, " k"]:
    """Ranks, evenly spread, below which n ranks are counted: no more than tell them apart."""
    count = min(n, draws, _MOST_CUTS)
    return np.unique(np.round(np.linspace(0, draws + 1, count + 2)[1:-1]).astype(int))


def below(ranks: Int[np.ndarray, " n"], places: Int[np.ndarray, " k"]) -> Int[np.ndarray, " k"]:
    """How many ranks are less than each place."""
    return np.searchsorted(np.sort(ranks), places)


def ecdf_band(n: int, draws: int, level: float = 0.95) -> Band:
    """The band that holds the empirical distribution function of n uniform ranks with `level`.

    Everywhere at once: at each place it is the interval of one binomial tail probability, and that
    is the largest with which all of them together have `level` (Säilynoja, Bürkner & Vehtari, 2022,
    section 2), computed exactly.
    """
    places = cuts(n, draws) / (draws + 1)
    # Between Bonferroni's and that of a single place.
    least, most = (1 - level) / (2 * len(places)), (1 - level) / 2
    for _ in range(30):
        tail = (least * most) ** 0.5
        inside = _stays(*_interval(n, places, tail), n, places) >= level
        least, most = (tail, most) if inside else (least, tail)
    low, high = _interval(n, places, least)
    return Band(places, low / n, high / n)


def ecdf_p_value(ranks: Int[np.ndarray, " n"], draws: int) -> float:
    """Of the test that rejects when the empirical distribution function leaves `ecdf_band`.

    The probability that uniform ranks have at some place a binomial tail as small as the smallest
    found here.
    """
    n = len(ranks)
    points = cuts(n, draws)
    places, counts = points / (draws + 1), below(ranks, points)
    tails = np.minimum(stats.binom.cdf(counts, n, places), stats.binom.sf(counts - 1, n, places))
    tail, bound = float(tails.min()), 2 * len(places) * float(tails.min())
    if bound < _BOUND:
        return bound
    # The interval is to leave out what is as unlikely as the tail found, to rounding.
    return 1 - _stays(*_interval(n, places, tail * (1 + 1e-9)), n, places)


def chi_square_p_value(ranks: Int[np.ndarray, " n"], draws: int) -> float:
    """Of Pearson's test over up to 20 bins, as even as whole numbers allow, 5 ranks in each."""
    edges = bin_edges(len(ranks), draws)
    observed = np.diff(below(ranks, edges))
    expected = len(ranks) * np.diff(edges) / (draws + 1)
    return float(stats.chisquare(observed, expected).pvalue)


def bin_edges(n: int, draws: int, bins: int | None = None) -> Int[np.ndarray, " b"]:
    """Edges of bins of ranks, from 0 to draws + 1; a rank belongs to the bin that begins at it."""
    bins = max(2, min(20, n // 5, draws + 1)) if bins is None else bins
    return np.round(np.linspace(0, draws + 1, bins + 1)).astype(int)


def departure(ranks: Int[np.ndarray, " n"], draws: int) -> str:
    """What ranks that are not uniform say of the draws, judged by their mean and their spread."""
    n = len(ranks)
    u = (ranks + 0.5) / (draws + 1) - 0.5
    mean = u.mean() * (12 * n) ** 0.5
    spread = (np.mean(u**2) - (1 - (draws + 1) ** -2.0) / 12) * (180 * n) ** 0.5
    if max(abs(mean), abs(spread)) < _CLEAR:
        return "of another shape"
    if abs(mean) > abs(spread):
        return "too low" if mean > 0 else "too high"
    return "too narrow" if spread > 0 else "too wide"


def _interval(n: int, places: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Counts whose lower and upper tail probabilities are both at least `tail`, at each place."""
    return stats.binom.ppf(tail, n, places), n - stats.binom.ppf(tail, n, 1 - places)


def _stays(low: np.ndarray, high: np.ndarray, n: int, places: np.ndarray) -> float:
    """Probability that the counts below the places lie in [low, high] at all of them.

    The counts between places are multinomial: independent Poisson ones, given that their sum is n.
    """
    if (low > high).any():
        return 0.0
    law, first = np.ones(1), 0  # of the count so far: law[i] is that of first + i, so far inside
    steps = np.diff(places, prepend=0.0)
    for a, b, step in zip(low.astype(int), high.astype(int), steps, strict=True):
        law = np.convolve(law, stats.poisson.pmf(np.arange(b - first + 1), n * step))
        law, first = law[a - first : b - first + 1], a
    rest = stats.poisson.pmf(n - first - np.arange(len(law)), n * (1 - places[-1]))
    return min(1.0, float(law @ rest / stats.poisson.pmf(n, n)))
