"""The objectives of sections 3.4 and 4, for one point x_0 at one time τ.

Each is a function of (process, score_fn, key, x0, tau) whose expectation over the key, and over
data x_0, is minimised where `score_fn(·, τ)` is the score of the noised data.
"""

from collections.abc import Callable

import equinox as eqx
import jax

from .._types import Key, Point, Scalar, Score, Time
from ..processes import Noising, Process, Tractable

ScoreAt = Callable[[Point, Time], Score]


def denoising(process: Tractable, score_fn: ScoreAt, key: Key, x0: Point, tau: Time) -> Scalar:
    """I_DSM: Φ between the target of the noising draw and the score."""
    noised = process.noise(key, x0, tau)
    return process.phi(noised.x, noised.target, score_fn(noised.x, tau))


class Implicit(eqx.Module):
    """I_ISM: β⁻¹L*β + L log β at the noised point; needs no transition density.

    Exact (a derivative a coordinate, or the score at every neighbour) where the point has at most
    `exact_below` numbers; above, unbiased by one random probe or neighbour.
    """

    exact_below: int = eqx.field(static=True, default=8)

    def __call__(
        self, process: Noising, score_fn: ScoreAt, key: Key, x0: Point, tau: Time
    ) -> Scalar:
        draw_key, probe_key = jax.random.split(key)
        return self.at(process, score_fn, probe_key, process.draw(draw_key, x0, tau), tau)

    def at(self, process: Process, score_fn: ScoreAt, key: Key, x: Point, tau: Time) -> Scalar:
        """The objective at a point x, already noised."""
        size = sum(leaf.size for leaf in jax.tree.leaves(x))
        probe = None if size <= self.exact_below else key
        return process.implicit(lambda y: score_fn(y, tau), x, key=probe)


implicit = Implicit()


class Explicit(eqx.Module):
    """I_ESM: Φ(q_τ/β), for a known law log q_τ(x) = log_marginal(x, τ) of the noised data."""

    log_marginal: Callable[[Point, Time], Scalar]

    def __call__(
        self, process: Noising, score_fn: ScoreAt, key: Key, x0: Point, tau: Time
    ) -> Scalar:
        return self.at(process, score_fn, key, process.draw(key, x0, tau), tau)

    def at(self, process: Process, score_fn: ScoreAt, key: Key, x: Point, tau: Time) -> Scalar:
        """The objective at a point x, already noised."""
        truth = process.score(lambda y: self.log_marginal(y, tau), x)
        return process.phi(x, process.mean(truth), score_fn(x, tau))
