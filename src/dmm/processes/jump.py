"""Jump processes: rates B(x → y), Lf(x) = Σ_y B(x → y) (f(y) − f(x))."""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array

from .._types import Key, Scalar, Score, ScoreFn, Time
from .base import Process, Reverse
from .coordinates import Compact, Rows, at_once, each, rowwise, whole


class Jump(Process):
    """A jump changes one coordinate d of x to `moves(x)[d, k]`.

    Moves, rates and scores have shape x.shape + (K,). Score: log β(y)/β(x); targets are the
    ratios themselves, since a ratio may be 0. Φ(ρ, s) = Σ_y B(y → x) [eˢ − ρ + ρ(log ρ − s)],
    equal to the paper's in expectation under q and needing the network at x alone.
    """

    @abc.abstractmethod
    def moves(self, x: Array) -> Array:
        """Where each coordinate may jump to."""

    @abc.abstractmethod
    def rates(self, x: Array) -> Array:
        """B(x → y); 0 where y = x."""

    @abc.abstractmethod
    def inflow(self, x: Array) -> Array:
        """B(y → x); 0 where y = x."""

    def neighbours(self, x: Array) -> Array:
        """All points one jump away, stacked: D·K of them, so for small spaces only."""
        moves = self.moves(x)
        d, k = x.size, moves.shape[-1]
        points = jnp.broadcast_to(x.ravel(), (d, k, d))
        at = jnp.arange(d)
        return points.at[at, :, at].set(moves.reshape(d, k)).reshape(d * k, *x.shape)

    def _at_neighbours(self, f, x: Array) -> Array:
        return jax.lax.map(f, self.neighbours(x)).reshape(self.moves(x).shape)

    def back(self, value_fn, x: Array, index: Array, y: Array) -> Array:
        """The entry of `value_fn(y)` for the jump from y, neighbour number `index` of x, to x."""
        moves = self.moves(y)
        d, k = x.size, moves.shape[-1]
        at = index // k
        hit = moves.reshape(d, k)[at] == x.ravel()[at]
        values = whole(value_fn(y)).reshape(d, k)[at]
        return jnp.sum(jnp.where(hit, values, 0.0)) / jnp.maximum(jnp.sum(hit), 1)

    def back_from_neighbours(self, value_fn, x: Array) -> Array:
        """`back` over all neighbours, in the shape of the moves."""
        neighbours = self.neighbours(x)
        index = jnp.arange(len(neighbours))
        values = jax.vmap(lambda i, y: self.back(value_fn, x, i, y))(index, neighbours)
        return values.reshape(self.moves(x).shape)

    def generator(self, f, x):
        return jnp.sum(self.rates(x) * (self._at_neighbours(f, x) - f(x)))

    def adjoint(self, f, x):
        return jnp.sum(self.inflow(x) * self._at_neighbours(f, x) - self.rates(x) * f(x))

    def score(self, log_beta, x):
        return self._at_neighbours(log_beta, x) - log_beta(x)

    def mean(self, score):
        return jnp.exp(score)

    def phi(self, x, target, score):
        def one(x, target, score):
            inflow = self.inflow(x)
            score, target = _where_used(inflow, score), jnp.where(inflow > 0, target, 1.0)
            positive = jnp.where(target > 0, target, 1.0)
            entropy = jnp.where(target > 0, positive * (jnp.log(positive) - score), 0.0)
            return jnp.sum(inflow * (jnp.exp(score) - target + entropy), -1)

        return jnp.sum(each(one, x, self._rows(x, target), score, chunk=at_once(self, x)))

    def excess(self, x, target, score, other):
        """Σ_y B(y → x) [e^s − e^r − ρ(s − r)]."""

        def one(x, target, score, other):
            inflow = self.inflow(x)
            score, other = _where_used(inflow, score), _where_used(inflow, other)
            change = jnp.where(target > 0, target * (score - other), 0.0)
            return jnp.sum(inflow * (jnp.exp(score) - jnp.exp(other) - change), -1)

        return jnp.sum(each(one, x, self._rows(x, target), score, other, chunk=at_once(self, x)))

    def _rows(self, x: Array, target: Score) -> Array | Rows:
        return target.rows(self, x) if isinstance(target, Compact) else target

    def implicit(self, score_fn: ScoreFn, x: Array, *, key: Array | None = None) -> Scalar:
        """Σ_y B(y → x) e^{s(x, y)} − B(x → y) (1 + s(y, x)): the score at x and at y.

        All neighbours without a key; one, drawn in proportion to its rate, with a key.
        """
        rates, inflow = self.rates(x), self.inflow(x)
        here = jnp.sum(inflow * jnp.exp(_where_used(inflow, whole(score_fn(x)))) - rates)
        if key is None:
            back = self.back_from_neighbours(score_fn, x)
            return here - jnp.sum(jnp.where(rates > 0, rates * back, 0.0))
        index = jax.random.categorical(key, jnp.log(rates.ravel()))
        at, k = index // rates.shape[-1], index % rates.shape[-1]
        jumped = self.moves(x).reshape(x.size, -1)[at, k]
        y = x.ravel().at[at].set(jumped).reshape(x.shape)
        return here - jnp.sum(rates) * self.back(score_fn, x, index, y)

    def source(self, x):
        def one(x):
            return jnp.sum(self.inflow(x) - self.rates(x), -1)

        return jnp.sum(each(one, x, chunk=at_once(self, x)))

    def reverse(self, score_fn):
        return ReverseJump(self, score_fn)

    def step(self, key, x, dtau):
        """Each coordinate jumps at most once, at its rates at x."""
        return hop(key, self, x, rates_of(self, x), dtau)

    def log_step(self, x, y, dtau):
        def one(x, y, rates):
            total = jnp.sum(rates, -1)
            taken = jnp.sum(jnp.where(self.moves(x) == y[..., None], rates, 0.0), -1)
            stays = x == y
            # The branch not taken must be finite too, or its derivative is NaN.
            moving = ~stays & (total > 0)
            exit_rate = jnp.where(moving, total, 1.0)
            share = jnp.where(stays, 1.0, taken / exit_rate)
            hop = jnp.log(-jnp.expm1(-exit_rate * dtau)) + jnp.log(share)
            return jnp.where(stays, -total * dtau, hop)

        return jnp.sum(each(one, x, y, rates_of(self, x)))


class ReverseJump(Jump, Reverse):
    """The time reversal: rates B(y → x) e^{s(x, y)}."""

    base: Jump
    score_fn: ScoreFn

    @property
    def space(self):
        return self.base.space

    def moves(self, x):
        return self.base.moves(x)

    def rates(self, x):
        return rowwise(Partial(_rates_back, self.base), x, self.score_fn(x))

    def inflow(self, x):
        """A(y → x) = B(x → y) e^{s(y, x)}: needs the score at every neighbour."""
        rates = self.base.rates(x)
        back = self.base.back_from_neighbours(self.score_fn, x)
        return rates * jnp.exp(_where_used(rates, back))


def _where_used(rates: Array, score: Array) -> Array:
    """The score, and 0 where no rate multiplies it: there it may be anything, and overflow."""
    return jnp.where(rates > 0, score, 0.0)


def _rates_back(base: Jump, x: Array, score: Array) -> Array:
    inflow = base.inflow(x)
    return inflow * jnp.exp(_where_used(inflow, score))


def rates_of(process: Jump, x: Array) -> Array | Rows:
    """B(x → y): as `Rows` where all together would be too many."""
    chunk = at_once(process, x)
    return process.rates(x) if chunk is None else Rows(Partial(_rates, process), (x,), chunk)


def _rates(process: Jump, x: Array) -> Array:
    return process.rates(x)


def hop(key: Key, process: Jump, x: Array, rates: Array | Rows, dtau: Time) -> Array:
    """Each coordinate of x, moved at most once at its rates, held for a time."""
    hop_key, move_key = jax.random.split(key)
    first = jax.random.uniform(hop_key, x.shape)
    second = uniforms(move_key, x.shape)

    def one(x, rates, first, second):
        hops = first < -jnp.expm1(-jnp.sum(rates, -1) * dtau)
        return jnp.where(hops, pick(process.moves(x), invert(rates, second)), x)

    return each(one, x, rates, first, second)


def draw_states(key: Key, law: Array) -> Array:
    """An index a coordinate, in proportion to weights along the last axis, by inverting their sums.

    One uniform number a coordinate, where `jax.random.categorical` takes one a weight. What has
    weight 0 is never drawn, unless all have.
    """
    return invert(law, uniforms(key, law.shape[:-1], law.dtype))


def uniforms(key: Key, shape: tuple[int, ...], dtype: Any = float) -> Array:
    """Uniform numbers, each the middle of its cell.

    Were they the lower ends, 0 would draw the first of the weights, however small, once in 8
    million times.
    """
    u = jax.random.uniform(key, shape, dtype)
    return u + jnp.finfo(u.dtype).eps / 2


def invert(law: Array, u: Array) -> Array:
    """The index whose weights, summed up to it, first exceed the share u of all of them."""
    sums = jnp.cumsum(law, -1)
    below_all = jnp.nextafter(sums[..., -1:], jnp.zeros((), law.dtype))
    passed = sums <= jnp.minimum(u[..., None] * sums[..., -1:], below_all)
    return jnp.minimum(jnp.sum(passed, -1, dtype=jnp.int32), law.shape[-1] - 1)


def pick(values: Array, x: Array) -> Array:
    """The entry number x of every coordinate's values."""
    return jnp.take_along_axis(values, x[..., None], -1)[..., 0]
