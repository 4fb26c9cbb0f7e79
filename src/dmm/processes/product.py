"""Processes side by side, each on its own factor of a product space."""

import abc

import equinox as eqx
import jax

from .._types import Point, ScoreFn
from ..spaces import Product
from .base import Constant, Law, Noised, Process, Reverse, Tractable, default_process


class AbstractProduct(Process):
    """L = Σ_i c_i L_i, where L_i moves coordinate i alone but may look at the whole point.

    One verb, `conditional`, gives the L_i; a point and its score are tuples.
    """

    space: eqx.AbstractVar[Product]
    speeds: eqx.AbstractVar[tuple[float, ...]]

    @abc.abstractmethod
    def conditional(self, x: Point) -> tuple[Process, ...]:
        """Each coordinate's process, the other coordinates held at x."""

    @abc.abstractmethod
    def frozen(self, x: Point) -> tuple[Process, ...]:
        """As `conditional`, but its coefficients are right at x only: one score evaluation."""

    def generator(self, f, x):
        terms = _each(self.frozen(x), self.speeds, x)
        return sum(c * p.generator(lambda z, i=i: f(_put(x, i, z)), y) for i, p, c, y in terms)

    def adjoint(self, f, x):
        terms = _each(self.conditional(x), self.speeds, x)
        return sum(c * p.adjoint(lambda z, i=i: f(_put(x, i, z)), y) for i, p, c, y in terms)

    def score(self, log_beta, x):
        terms = _each(self.frozen(x), self.speeds, x)
        return tuple(p.score(lambda z, i=i: log_beta(_put(x, i, z)), y) for i, p, _, y in terms)

    def mean(self, score):
        return tuple(p.mean(s) for p, s in zip(self.families, score, strict=True))

    @property
    @abc.abstractmethod
    def families(self) -> tuple[Process, ...]:
        """A process of each coordinate's family."""

    def phi(self, x, target, score):
        terms = _each(self.conditional(x), self.speeds, x)
        return sum(c * p.phi(y, target[i], score[i]) for i, p, c, y in terms)

    def excess(self, x, target, score, other):
        terms = _each(self.conditional(x), self.speeds, x)
        return sum(c * p.excess(y, target[i], score[i], other[i]) for i, p, c, y in terms)

    def implicit(self, score_fn, x, *, key=None):
        keys = [None] * len(x) if key is None else jax.random.split(key, len(x))
        terms = _each(self.conditional(x), self.speeds, x)
        return sum(
            c * p.implicit(lambda z, i=i: score_fn(_put(x, i, z))[i], y, key=keys[i])
            for i, p, c, y in terms
        )

    def source(self, x):
        return sum(c * p.source(y) for _, p, c, y in _each(self.conditional(x), self.speeds, x))

    def reverse(self, score_fn):
        return ReverseProduct(self, score_fn)

    def step(self, key, x, dtau):
        terms = _each(self.frozen(x), self.speeds, x)
        keys = jax.random.split(key, len(x))
        return tuple(p.step(keys[i], y, c * dtau) for i, p, c, y in terms)

    def log_step(self, x, y, dtau):
        terms = _each(self.frozen(x), self.speeds, x)
        return sum(p.log_step(here, y[i], c * dtau) for i, p, c, here in terms)

    # Where every factor is a diffusion (`supports(process, AbstractDiffusion)`), so is the product.

    def drift(self, x):
        return tuple(c * p.drift(y) for _, p, c, y in _each(self.frozen(x), self.speeds, x))

    def root(self, x, z):
        terms = _each(self.frozen(x), self.speeds, x)
        return tuple(c**0.5 * p.root(y, z[i]) for i, p, c, y in terms)

    def flow(self, x, score):
        terms = _each(self.frozen(x), self.speeds, x)
        return tuple(c * p.flow(y, score[i]) for i, p, c, y in terms)


class ProductLaw(Law):
    """Independent factors."""

    factors: tuple[Law, ...]

    def sample(self, key):
        keys = jax.random.split(key, len(self.factors))
        return tuple(law.sample(k) for law, k in zip(self.factors, keys, strict=True))

    def log_prob(self, x):
        return sum(law.log_prob(y) for law, y in zip(self.factors, x, strict=True))


class ProductProcess(AbstractProduct, Tractable):
    """Independent processes, each at the speed that takes it to its reference at `horizon`."""

    factors: tuple[Tractable, ...]
    speeds: tuple[float, ...] = eqx.field(static=True)
    horizon: float = eqx.field(static=True)

    def __init__(self, *factors: Tractable):
        for i, factor in enumerate(factors):
            if not isinstance(factor, Tractable):
                raise ValueError(f"factors[{i}]: {type(factor).__name__} has no exact noising")
        self.factors = factors
        self.horizon = max(factor.horizon for factor in factors)
        self.speeds = tuple(factor.horizon / self.horizon for factor in factors)

    @property
    def space(self):
        return Product(*(factor.space for factor in self.factors))

    @property
    def data(self):
        return Product(*(factor.data for factor in self.factors))

    @property
    def reference(self):
        return ProductLaw(tuple(factor.reference for factor in self.factors))

    @property
    def families(self):
        return self.factors

    def conditional(self, x):
        return self.factors

    def frozen(self, x):
        return self.factors

    def noise(self, key, x0, tau):
        keys = jax.random.split(key, len(x0))
        terms = _each(self.factors, self.speeds, x0)
        draws = [p.noise(keys[i], y, c * tau) for i, p, c, y in terms]
        return Noised(tuple(n.x for n in draws), tuple(n.target for n in draws))

    def lift(self, key, x0):
        keys = jax.random.split(key, len(x0))
        lifts = [p.lift(k, y) for p, k, y in zip(self.factors, keys, x0, strict=True)]
        return tuple(x for x, _ in lifts), sum(log_prob for _, log_prob in lifts)

    def drop(self, x):
        return tuple(p.drop(y) for p, y in zip(self.factors, x, strict=True))

    # Where every factor has a density (`supports(process, HasDensity)`), so has the product.

    def log_transition(self, x, x0, tau):
        terms = _each(self.factors, self.speeds, x)
        return sum(p.log_transition(y, x0[i], c * tau) for i, p, c, y in terms)

    def entropy(self, x0, tau):
        return sum(p.entropy(y, c * tau) for _, p, c, y in _each(self.factors, self.speeds, x0))


class ReverseProduct(AbstractProduct, Reverse):
    """The time reversal: not a product, since each coordinate's score sees the whole point."""

    base: AbstractProduct
    score_fn: ScoreFn

    @property
    def space(self):
        return self.base.space

    @property
    def speeds(self):
        return self.base.speeds

    @property
    def families(self):
        return self.base.families

    def conditional(self, x):
        return tuple(
            p.reverse(lambda z, i=i: self.score_fn(_put(x, i, z))[i])
            for i, p in enumerate(self.base.conditional(x))
        )

    def frozen(self, x):
        score = self.score_fn(x)
        # The base stays live: to run a jump process backwards is to ask it at neighbours of x.
        processes = self.base.conditional(x)
        return tuple(p.reverse(Constant(s)) for p, s in zip(processes, score, strict=True))


@default_process.register
def _(space: Product):
    return ProductProcess(*(default_process(factor) for factor in space.factors))


def supports(process: Process, capability: type) -> bool:
    """Whether a process, or every factor of a product, is of a type."""
    if isinstance(process, AbstractProduct):
        return all(supports(factor, capability) for factor in process.families)
    return isinstance(process, capability)


def _put(x: tuple, i: int, y: Point) -> tuple:
    return (*x[:i], y, *x[i + 1 :])


def _each(processes, speeds, x):
    return zip(range(len(x)), processes, speeds, x, strict=True)
