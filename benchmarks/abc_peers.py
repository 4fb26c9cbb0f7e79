"""Two methods of approximate Bayesian computation, in NumPy: for the comparison in `peers.py`."""

import time

import numpy as np
from peer import Outcome, Problem, Settings

POWERS = 4  # of every statistic, as regressors
KEPT = 0.01  # the share of simulations that rejection keeps, but never less or more than
LEAST, MOST = 100, 1_000
PARTICLES = 1024  # of sequential Monte Carlo, at most a tenth of the simulations
SURVIVORS = 0.5  # the share of distinct particles that a new tolerance keeps


def semi_automatic(problem: Problem, settings: Settings) -> Outcome:
    """Semi-automatic ABC (Fearnhead & Prangle, 2012).

    Half of the simulations regress θ on the features of x and their powers; the fitted E[θ | x] is
    the summary by which the nearest of the other half are kept.
    """
    start = time.perf_counter()
    theta, x = problem.theta, problem.features
    half = len(theta) // 2
    mean, scale = x[:half].mean(0), x[:half].std(0)
    scale = np.where(scale > 0, scale, 1.0)

    def regressors(x):
        z = np.clip((x - mean) / scale, -10, 10)
        powers = [z**p / 10 ** (p - 1) for p in range(1, POWERS + 1)]
        return np.concatenate([np.ones((len(x), 1)), *powers], 1)

    a, b = regressors(x[:half]), theta[:half]
    ridge = 1e-6 * len(a) * np.eye(a.shape[1])
    weights = np.linalg.solve(a.T @ a + ridge, a.T @ b)
    summaries = regressors(x[half:]) @ weights
    unit = summaries.std(0)
    trained = time.perf_counter() - start

    start, draws, random = time.perf_counter(), [], np.random.default_rng(settings.seed)
    kept = min(max(LEAST, int(KEPT * (len(theta) - half))), MOST)
    for seen in problem.observed_features:
        gap = (summaries - regressors(seen[None]) @ weights) / unit
        nearest = np.argsort(np.sum(gap**2, 1))[:kept]
        draws.append(theta[half:][random.choice(nearest, settings.samples)])
    taken = (time.perf_counter() - start) / len(draws)
    return Outcome(np.stack(draws), trained, taken, simulations=len(theta))


def wasserstein_smc(problem: Problem, settings: Settings) -> Outcome:
    """Sequential Monte Carlo ABC by the Wasserstein distance of data (Bernton et al., 2019).

    Numbers on a line are at the distance mean |x_(i) − y_(i)|. Tolerances fall so that half of the
    distinct particles survive; resampled ones move by a random walk of 2.38/√d of their covariance,
    as many steps as make all but a hundredth of them move (Drovandi & Pettitt, 2011). Simulations
    are its own, as many as the others have.
    """
    start = time.perf_counter()
    draws = [_smc(problem, x, settings, i) for i, x in enumerate(problem.observed)]
    # All of it depends on the observation: there is nothing to train.
    taken = (time.perf_counter() - start) / len(draws)
    random = np.random.default_rng(settings.seed)
    chosen = [found[random.choice(len(found), settings.samples)] for found in draws]
    return Outcome(np.stack(chosen), 0.0, taken, simulations=len(problem.theta))


def _smc(problem: Problem, observed: np.ndarray, settings: Settings, number: int) -> np.ndarray:
    random = np.random.default_rng([settings.seed, number])
    budget = len(problem.theta)
    n = min(PARTICLES, budget // 10)

    def distances(theta):
        x = problem.simulate(int(random.integers(2**31)), theta)
        return np.mean(np.abs(x - observed), 1, dtype=np.float64)

    theta = problem.prior_draws(int(random.integers(2**31)), n)
    distance, budget, moves = distances(theta), budget - n, 1
    while budget >= n:
        distinct = np.unique(distance)
        tolerance = distinct[max(1, int(SURVIVORS * len(distinct))) - 1]
        alive = np.flatnonzero(distance <= tolerance)
        if len(alive) <= theta.shape[1]:
            break
        root = 2.38 / theta.shape[1] ** 0.5 * np.linalg.cholesky(np.cov(theta[alive].T))
        rows = random.choice(alive, n)
        theta, distance, moved = theta[rows], distance[rows], []
        for _ in range(min(moves, budget // n)):
            proposed = theta + random.normal(size=theta.shape) @ root.T
            inside = problem.inside(proposed)
            found = distances(np.where(inside[:, None], proposed, theta))
            # The prior is uniform. What lies outside need not be simulated.
            take, budget = inside & (found <= tolerance), budget - int(inside.sum())
            theta = np.where(take[:, None], proposed, theta)
            distance = np.where(take, found, distance)
            moved.append(take.mean())
        rate = np.clip(np.mean(moved), 0.01, 0.99)
        moves = int(np.ceil(np.log(0.01) / np.log1p(-rate)))
    return theta
