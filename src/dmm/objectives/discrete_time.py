"""Objectives in discrete time: natural discretisation (section 5), autoencoders (appendix I)."""

import equinox as eqx
import jax

from .._types import Key, Point, Scalar, Time
from ..processes import Noising, Tractable
from .score_matching import ScoreAt


class DiscreteTime(eqx.Module):
    """(1/γ) log q_{t|s}(x_t | x_s)/p(x_s | x_t) over one step from s = τ to t = τ(1 + ratio).

    q is exact and p one first-order step of the generative process; γ = t − s. By Lemma 2 and
    Theorem 3 this is the implicit objective to first order in γ, up to a constant in the score.
    The process, or every factor of a product, must have a density.
    """

    ratio: float = eqx.field(static=True, default=0.05)

    def __call__(
        self, process: Tractable, score_fn: ScoreAt, key: Key, x0: Point, tau: Time
    ) -> Scalar:
        first_key, second_key = jax.random.split(key)
        gamma = self.ratio * tau
        earlier = process.draw(first_key, x0, tau)
        later = process.draw(second_key, earlier, gamma)
        generative = process.reverse(lambda y: score_fn(y, tau + gamma))
        forward = process.log_transition(later, earlier, gamma)
        return (forward - generative.log_step(later, earlier, gamma)) / gamma


def autoencoder(process: Noising, score_fn: ScoreAt, key: Key, x0: Point, tau: Time) -> Scalar:
    """J_DAE: −log p_{0|τ}(x_0 | x_τ), p one step of the generative process from τ to 0.

    For Gaussian noise on R^d it is the mean square reconstruction error, up to constants.
    """
    x = process.draw(key, x0, tau)
    generative = process.reverse(lambda y: score_fn(y, tau))
    return -generative.log_step(x, x0, tau)
