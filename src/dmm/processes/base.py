"""A Markov process is its generator; what a process can do beyond that is a type."""

import abc
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Function, Key, Point, Scalar, Score, ScoreFn, Time
from ..spaces import Space


class Process(eqx.Module):
    """A time-homogeneous Markov process with generator L, in its own time τ.

    The *score* of a positive function β at x is what a loss or a reverse process needs of β; the
    family (diffusion, jump, product) fixes its form. A time-inhomogeneous process, such as the
    generative one, is a function τ → Process.
    """

    space: eqx.AbstractVar[Space]

    @abc.abstractmethod
    def generator(self, f: Function, x: Point) -> Scalar:
        """(Lf)(x)."""

    @abc.abstractmethod
    def adjoint(self, f: Function, x: Point) -> Scalar:
        """(L*f)(x), w.r.t. the space's measure."""

    @abc.abstractmethod
    def score(self, log_beta: Function, x: Point) -> Score:
        """The score of β at x."""

    @abc.abstractmethod
    def mean(self, score: Score) -> Score:
        """The score as a target: what the conditional mean of targets should equal."""

    @abc.abstractmethod
    def phi(self, x: Point, target: Score, score: Score) -> Scalar:
        """Φ(q/β)(x) from the target of q and the score of β: a Bregman divergence of the two."""

    @abc.abstractmethod
    def excess(self, x: Point, target: Score, score: Score, other: Score) -> Scalar:
        """Φ of a score less Φ of another one, against one target in which it is linear.

        What the target alone gives to Φ has left it: that may be larger by any number of digits.
        """

    @abc.abstractmethod
    def implicit(self, score_fn: ScoreFn, x: Point, *, key: Key | None = None) -> Scalar:
        """β⁻¹L*β + L log β at x. Exact without a key; with one, an unbiased cheaper estimate."""

    @abc.abstractmethod
    def source(self, x: Point) -> Scalar:
        """(L*1)(x): the implicit integrand at β = 1."""

    @abc.abstractmethod
    def reverse(self, score_fn: ScoreFn) -> "Process":
        """The process run backwards, given the score of its law at one frozen time."""

    @abc.abstractmethod
    def step(self, key: Key, x: Point, dtau: Time) -> Point:
        """One first-order step of length dtau; lands in the space."""

    @abc.abstractmethod
    def log_step(self, x: Point, y: Point, dtau: Time) -> Scalar:
        """The log-density at y of one first-order `step` from x."""


class Reverse(Process):
    """A process that runs another one backwards with the score `score_fn` of its law.

    Running it backwards once more with the zero score, `p.reverse(s).reverse(zero)`, gives the
    paper's auxiliary process M, and `p.reverse(s).source` its c (Assumption 1).
    """

    base: eqx.AbstractVar[Process]
    score_fn: eqx.AbstractVar[ScoreFn]


class Law(eqx.Module):
    """A probability law that can be drawn from and evaluated."""

    @abc.abstractmethod
    def sample(self, key: Key) -> Point:
        """One draw."""

    @abc.abstractmethod
    def log_prob(self, x: Point) -> Scalar:
        """The log-density w.r.t. the space's measure."""


class Noised(NamedTuple):
    """A noised point and a random target whose mean given x is the score of the law of x."""

    x: Point
    target: Score


class Noising(Process):
    """The capability of turning data into noise: where it starts, where it ends, how to get there.

    The state may hold more than the data (a velocity, a mask): `lift` adds it, `drop` hides it.
    """

    data: eqx.AbstractVar[Space]
    reference: eqx.AbstractVar[Law]
    horizon: eqx.AbstractVar[float]

    @abc.abstractmethod
    def draw(self, key: Key, x0: Point, tau: Time) -> Point:
        """x_τ given the data x_0."""

    @abc.abstractmethod
    def lift(self, key: Key, x0: Point) -> tuple[Point, Scalar]:
        """A state at τ = 0 over the data x_0, and the log-density of what was added."""

    @abc.abstractmethod
    def drop(self, x: Point) -> Point:
        """The data part of a state."""


class Tractable(Noising):
    """Exact noising in one draw, with a target."""

    @abc.abstractmethod
    def noise(self, key: Key, x0: Point, tau: Time) -> Noised:
        """x_τ given x_0, and a target: a latent variable of the draw often gives a simple one."""

    def draw(self, key, x0, tau):
        return self.noise(key, x0, tau).x


class HasDensity(Tractable):
    """The transition density in closed form."""

    @abc.abstractmethod
    def log_transition(self, x: Point, x0: Point, tau: Time) -> Scalar:
        """log q_τ(x | x_0)."""

    @abc.abstractmethod
    def entropy(self, x0: Point, tau: Time) -> Scalar:
        """−E log q_τ(X_τ | x_0)."""


class Stationary(Tractable):
    """A reference that is invariant, L*π = 0: the bound is then quiet without a density."""

    @abc.abstractmethod
    def at_rest(self, x: Point) -> Score:
        """The score of the reference at x."""


class Simulated(Noising):
    """Noising by `substeps` steps of the process itself: for a process without exact draws.

    Such a process is trained by the implicit objective. Mix it in and say where it ends:

        class Mine(dmm.Diffusion, dmm.Simulated): ...
    """

    substeps: eqx.AbstractVar[int]

    def draw(self, key, x0, tau):
        def body(x, key):
            return self.step(key, x, tau / self.substeps), None

        return jax.lax.scan(body, x0, jax.random.split(key, self.substeps))[0]

    def lift(self, key, x0):
        return x0, jnp.zeros(())

    def drop(self, x):
        return x


class Constant(eqx.Module):
    """A score function that is the same everywhere."""

    value: Score

    def __call__(self, x: Point) -> Score:
        return self.value


class Zero(eqx.Module):
    """The score of β = 1."""

    process: Process

    def __call__(self, x: Point) -> Score:
        score = jax.eval_shape(lambda y: self.process.score(_one, y), x)
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), score)


def _one(x: Point) -> Array:
    """β = 1, as log β = 0 with a derivative in x."""
    leaf = jax.tree.leaves(x)[0]
    return jnp.zeros((), jnp.result_type(leaf, float))


@functools.singledispatch
def default_process(space: Space) -> Tractable:
    """The noising process that `fit` chooses for a space."""
    raise ValueError(f"space: no default process for {space}; pass process=...")
