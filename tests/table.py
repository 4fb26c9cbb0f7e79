"""The table of processes that the laws are tested over. A later process costs one row of `ROWS`.

A row says how to integrate over its space; everything else (test functions, points, laws) follows.
Points are numpy arrays in double precision, so that a test decides on the precision it runs in.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import dmm

# --- Where one integrates ------------------------------------------------------------------------


class Domain(NamedTuple):
    """∫ f dν = Σ weights · f(nodes) for smooth f that fall as fast as exp(log_base)."""

    nodes: Any  # stacked points
    weights: np.ndarray
    log_base: Callable  # log of a positive function, without flux at any boundary
    points: Any  # a hypothesis strategy


def reals(shape: tuple[int, ...], *, step: float, reach: float = 9.0) -> Domain:
    """R^d by the trapezoidal rule, which is exact to rounding for analytic functions that decay.

    A Gaussian of variance v is integrated with relative error 2 exp(−2π²v/step²).
    """
    line = np.arange(-reach, reach + step / 2, step)
    size = math.prod(shape)
    nodes = np.stack(np.meshgrid(*[line] * size, indexing="ij"), -1).reshape(-1, *shape)
    numbers = st.floats(-2.5, 2.5, allow_subnormal=False)
    return Domain(
        nodes,
        np.full(len(nodes), step**size),
        lambda x: -0.5 * jnp.sum(x**2),
        hnp.arrays(np.float64, shape, elements=numbers),
    )


def states(shape: tuple[int, ...], number: int) -> Domain:
    """A finite space by the sum over all of its points."""
    every = list(itertools.product(range(number), repeat=math.prod(shape)))
    nodes = np.array(every, np.int32).reshape(-1, *shape)
    # log β needs no help to be summable; a zero that depends on x keeps it a function of x.
    points = st.integers(0, len(nodes) - 1).map(lambda i: nodes[i])
    return Domain(nodes, np.ones(len(nodes)), lambda x: 0.0 * jnp.sum(x), points)


def triangle(nodes: int = 28) -> Domain:
    """Three proportions, by Gauss–Legendre in the angles of their square roots, in which features
    are smooth up to the boundary; functions vanish there as the cubes of the parts."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    angles, weights = np.pi / 4 * (places + 1), np.pi / 4 * weights
    first, second = (a.ravel() for a in np.meshgrid(angles, angles, indexing="ij"))
    u, v = np.sin(first) ** 2, np.sin(second) ** 2
    slopes = np.sin(2 * first) * np.sin(2 * second) * (1 - u)
    parts = st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3).map(np.array)
    return Domain(
        np.stack([u, (1 - u) * v, (1 - u) * (1 - v)], -1),
        np.outer(weights, weights).ravel() * slopes,
        lambda x: 3 * jnp.sum(jnp.log(3 * x)),
        parts.map(lambda x: x / x.sum()),
    )


def unit_square(nodes: int = 24) -> Domain:
    """Two numbers between 0 and 1, by Gauss–Legendre in the angles of their roots, as above."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    angles = np.pi / 4 * (places + 1)
    places, weights = np.sin(angles) ** 2, np.pi / 4 * weights * np.sin(2 * angles)
    points = st.tuples(st.floats(0.05, 0.95), st.floats(0.05, 0.95)).map(np.array)
    return Domain(
        np.stack([a.ravel() for a in np.meshgrid(places, places, indexing="ij")], -1),
        np.outer(weights, weights).ravel(),
        lambda x: 3 * jnp.sum(jnp.log(4 * x * (1 - x))),
        points,
    )


def globe(nodes: int = 20) -> Domain:
    """The sphere, by Gauss–Legendre in height and even angles: exact for low harmonics."""
    heights, weights = np.polynomial.legendre.leggauss(nodes)
    angles = np.pi / nodes * np.arange(2 * nodes)
    z, angle = (a.ravel() for a in np.meshgrid(heights, angles, indexing="ij"))
    around = np.sqrt(1 - z**2)
    directions = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=3).map(np.array)
    return Domain(
        np.stack([around * np.cos(angle), around * np.sin(angle), z], -1),
        np.repeat(weights, 2 * nodes) * np.pi / nodes,
        lambda x: 0.0 * jnp.sum(x),
        directions.filter(lambda x: x @ x > 0.01).map(lambda x: x / np.sqrt(x @ x)),
    )


def rotations(nodes: int = 10) -> Domain:
    """The rotations by Euler angles about z, y and z, as on the globe; the measure has mass 1."""
    heights, weights = np.polynomial.legendre.leggauss(nodes)
    around = np.pi / nodes * np.arange(2 * nodes)
    grid = np.meshgrid(around, np.arccos(heights), around, indexing="ij")
    angles = np.stack([a.ravel() for a in grid], -1)
    weights = np.broadcast_to(weights[:, None] / 2 / (2 * nodes) ** 2, grid[0].shape).ravel()
    vectors = st.lists(st.floats(-1.5, 1.5), min_size=3, max_size=3)
    return Domain(
        Rotation.from_euler("ZYZ", angles).as_matrix(),
        weights,
        lambda x: 0.0 * jnp.sum(x),
        vectors.map(lambda v: Rotation.from_rotvec(v).as_matrix()),
    )


def angles(nodes: int = 40) -> Domain:
    """Two angles, by even steps: exact for waves of low order."""
    line = 2 * np.pi / nodes * np.arange(nodes) - np.pi
    points = st.tuples(st.floats(-3.1, 3.1), st.floats(-3.1, 3.1)).map(np.array)
    return Domain(
        np.stack([a.ravel() for a in np.meshgrid(line, line, indexing="ij")], -1),
        np.full(nodes**2, (2 * np.pi / nodes) ** 2),
        lambda x: 0.0 * jnp.sum(x),
        points,
    )


def positives(nodes: int = 32) -> Domain:
    """Positive numbers, by Gauss–Legendre in their roots; functions vanish as x³ at 0."""
    places, weights = np.polynomial.legendre.leggauss(nodes)
    roots = 2.25 * (places + 1)
    return Domain(
        roots[:, None] ** 2,
        2.25 * weights * 2 * roots,
        lambda x: jnp.sum(3 * jnp.log(x) - 2 * x),
        hnp.arrays(np.float64, (1,), elements=st.floats(0.05, 6.0)),
    )


def counts(most: int = 48) -> Domain:
    """Counts by the sum over all that matter: functions fall as Poisson's law of mean 3."""
    nodes = np.arange(most + 1, dtype=np.int32)[:, None]

    def log_base(x):
        n = x.astype(jnp.result_type(float))
        return jnp.sum(n * math.log(3.0) - jax.scipy.special.gammaln(n + 1))

    points = st.integers(0, 12).map(lambda n: np.array([n], np.int32))
    return Domain(nodes, np.ones(len(nodes)), log_base, points)


def side_by_side(*domains: Domain) -> Domain:
    """The product of domains: points are tuples."""
    index = np.meshgrid(*[np.arange(len(d.weights)) for d in domains], indexing="ij")
    index = [i.ravel() for i in index]
    return Domain(
        tuple(d.nodes[i] for d, i in zip(domains, index, strict=True)),
        math.prod(d.weights[i] for d, i in zip(domains, index, strict=True)),
        lambda x: sum(d.log_base(y) for d, y in zip(domains, x, strict=True)),
        st.tuples(*[d.points for d in domains]),
    )


# --- Rows ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Row:
    """A process and what a test must know beyond it."""

    name: str
    built: Any  # the process, as made in double precision
    domain: Domain
    data: tuple = ()  # two data points, for a process with exact noising
    tau: float = 1.0  # a time at which the quadrature resolves the transition law
    stationary: bool = True  # whether the reference is invariant
    zeros: bool = False  # whether transition probabilities vanish, so that their logarithms do not
    latent: bool = False  # whether targets are a latent variable's, not the conditional score
    bounded: bool = False  # whether steps are cut off at a boundary, so that they have no density

    @property
    def process(self):
        return jax.tree.map(_fresh, self.built)

    def _repr_pretty_(self, printer, cycle):
        printer.text(self.name)  # as hypothesis reports it

    def integrate(self, f) -> jax.Array:
        """∫ f dν."""
        return jnp.sum(_fresh(self.domain.weights) * jax.vmap(f)(self.nodes))

    def integrate_vector(self, density, values) -> jax.Array:
        """∫ density · values dν, for a function with values in a vector space."""
        weights = _fresh(self.domain.weights) * jax.vmap(density)(self.nodes)
        return jnp.tensordot(weights, jax.vmap(values)(self.nodes), 1)

    @property
    def nodes(self):
        return jax.tree.map(_fresh, self.domain.nodes)

    @property
    def first_node(self):
        return jax.tree.map(lambda leaf: _fresh(leaf[0]), self.domain.nodes)

    def wave(self, theta) -> Callable:
        """A smooth bounded function with generic derivatives, on any space."""

        def f(x):
            features = jax.tree.leaves(self.process.space.features(x))
            u = jnp.concatenate([leaf.ravel() for leaf in features])
            return jnp.sum(theta["height"] * jnp.sin(theta["slope"] @ u + theta["phase"]))

        return f

    def thetas(self, seed: int, n: int):
        """Coefficients of n waves, stacked."""
        return jax.tree.map(lambda *a: jnp.stack(a), *[self.theta([seed, i]) for i in range(n)])

    def waves(self, seed: int, n: int) -> Callable:
        """n waves, as one function with values in Rⁿ."""
        thetas = self.thetas(seed, n)
        return lambda x: jax.vmap(lambda theta: self.wave(theta)(x))(thetas)

    def log_law(self, theta) -> Callable:
        """The logarithm of a positive integrable function with generic derivatives."""
        wave = self.wave(theta)
        return lambda x: self.domain.log_base(x) + wave(x)

    def theta(self, seed: int):
        """Coefficients of a wave."""
        features = jax.eval_shape(self.process.space.features, self.first_node)
        size = sum(leaf.size for leaf in jax.tree.leaves(features))
        random = np.random.default_rng(seed)
        return {  # slopes under 1: the quadrature then resolves products and exponentials of waves
            "slope": jnp.asarray(random.uniform(-1, 1, (3, size)) / math.sqrt(size)),
            "phase": jnp.asarray(random.normal(size=3)),
            "height": jnp.asarray(0.5 * random.normal(size=3)),
        }

    def some_points(self, n: int):
        """n nodes of the quadrature from where exp(log_base) has its mass, stacked."""
        log_base = np.asarray(jax.jit(jax.vmap(self.domain.log_base))(self.nodes))
        inner = np.flatnonzero(log_base >= log_base.max() - 2.0)
        chosen = inner[np.linspace(0, len(inner) - 1, n + 2).astype(int)[1:-1]]
        return jax.tree.map(lambda leaf: leaf[chosen], self.nodes)

    def one_point(self):
        return jax.tree.map(lambda leaf: leaf[0], self.some_points(1))

    def directions(self) -> dict:
        """The noising, the generative and the auxiliary process, at one frozen time."""
        p, theta = self.process, self.theta(21)
        reverse = p.reverse(lambda x: p.score(self.log_law(theta), x))
        auxiliary = reverse.reverse(dmm.Zero(reverse))
        return {"noising": p, "generative": reverse, "auxiliary": auxiliary}

    @property
    def starts(self):
        """The two data points, as arrays."""
        return tuple(jax.tree.map(_array, x0, is_leaf=_is_number) for x0 in self.data)

    def log_mixture(self, share=0.3) -> Callable:
        """(x, τ) ↦ log q_τ(x) for data that are the first point with probability `share`."""
        one, two = self.starts

        def log_q(x, tau):
            return jnp.logaddexp(
                jnp.log(share) + self.process.log_transition(x, one, tau),
                jnp.log1p(-share) + self.process.log_transition(x, two, tau),
            )

        return log_q


def _fresh(array: np.ndarray) -> jax.Array:
    """In the precision of the moment. From a copy: JAX keeps what it once made of a numpy array
    in a compiled gradient, double precision included, and returns it by the array's identity."""
    return jnp.asarray(array.copy())


def _is_number(x):
    return not isinstance(x, tuple)  # a tuple is a point of a product


def _array(x):
    x = np.asarray(x)
    return jnp.asarray(x, jnp.int32 if x.dtype.kind == "i" else jnp.result_type(float))


def over(rows, **kwargs):
    """Parametrise a test over rows; tests of a row share a worker, and so what it compiled."""
    params = [pytest.param(r, id=r.name, marks=pytest.mark.xdist_group(r.name)) for r in rows]
    return pytest.mark.parametrize("row", params, **kwargs)


def assert_mean(draws, truth, *, sigmas=5.0, rounding=1e-6):
    """Each column's mean is the truth within 5 standard errors: false by chance once in 2·10⁶."""
    draws = np.asarray(draws, np.float64).reshape(len(draws), -1)
    error = np.abs(draws.mean(0) - np.ravel(truth))
    bound = sigmas * draws.std(0) / len(draws) ** 0.5 + rounding
    assert np.all(error <= bound), f"off by {np.max(error / bound):.1f} times the bound"


def fitted_order(sizes, errors) -> float:
    """The slope of log error against log size."""
    return float(np.polyfit(np.log(sizes), np.log(np.abs(errors)), 1)[0])


@contextlib.contextmanager
def feeding(**draws):
    """`jax.random.normal` (or another, by its name) returns the given values, one a call.

    What is random becomes a function of its noise: expectations by quadrature, laws by derivatives.
    """

    def from_queue(queue):
        def draw(key, first=(), *args, shape=None, **kwargs):
            value = jnp.asarray(queue.pop(0))
            wanted = shape if shape is not None else first if isinstance(first, tuple) else None
            return value if wanted is None else value.reshape(wanted)

        return draw

    queues = {name: list(values) for name, values in draws.items()}
    with pytest.MonkeyPatch.context() as patch:
        for name, queue in queues.items():
            patch.setattr(jax.random, name, from_queue(queue))
        yield
    assert not any(queues.values()), "fewer draws were made than values given"


# --- Processes of a user's own -------------------------------------------------------------------


class Bent(dmm.Diffusion):
    """A diffusion from its two methods: nonlinear drift, a covariance of rank one that turns."""

    space: dmm.Euclidean

    def drift(self, x):
        return jnp.stack([jnp.sin(x[1]) - x[0], 0.5 * jnp.cos(x[0]) * x[1]])

    def covariance(self, x):
        u = jnp.stack([1 + 0.5 * jnp.sin(x[1]), jnp.cos(x[0])])
        return u[:, None] * u[None, :]


# Neither matrix is reversible, and rates differ by a factor of eight: nothing cancels by symmetry.
FOUR = ((-1.6, 0.9, 0.2, 0.5), (0.1, -0.8, 0.4, 0.3), (0.7, 0.3, -1.2, 0.2), (0.4, 0.6, 0.8, -1.8))
THREE = ((-1.0, 0.8, 0.2), (0.1, -0.7, 0.6), (0.9, 0.3, -1.2))


def line_process(kind=dmm.OrnsteinUhlenbeck, size=1, **kwargs):
    return kind(dmm.Euclidean(size), **kwargs)


# --- The table -----------------------------------------------------------------------------------

LINE = reals((1,), step=0.25)
PLANE, PHASE = reals((2,), step=0.35), reals((2, 1), step=0.35)
COARSE = {"step": 0.65, "reach": 8.2}  # three dimensions need a coarser grid


def matrix_chain(shape=(), matrix=FOUR, horizon=10.0):
    return dmm.MatrixChain(dmm.Finite(shape, len(matrix)), matrix, horizon=horizon)


def in_double(make):
    """A process whose constants have all their digits, as numpy arrays."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, make())


ROWS = (
    Row("ou", line_process(), LINE, data=([0.1], [2.0])),
    Row("ou-plane", line_process(size=2), PLANE, data=([0.1, 0.4], [2.0, 1.0])),
    Row(
        "brownian",
        line_process(dmm.Brownian, horizon=3.0),
        reals((1,), step=0.25, reach=12.0),
        data=([0.1], [2.0]),
        stationary=False,  # it has no stationary law: its docstring says what the reference is
    ),
    Row("damped", line_process(dmm.CriticallyDamped), PHASE, data=([0.1], [2.0])),
    Row(
        "ou-damped",
        dmm.ProductProcess(line_process(), line_process(dmm.CriticallyDamped, horizon=8.0)),
        side_by_side(reals((1,), **COARSE), reals((2, 1), **COARSE)),
        data=(([0.1], [0.9]), ([2.0], [0.0])),
        tau=2.0,
    ),
    Row("chain", in_double(matrix_chain), states((), 4), data=(0, 2)),
    Row("uniform", dmm.UniformChain(dmm.Finite(2, 3)), states((2,), 3), data=([0, 1], [2, 2])),
    Row(
        "absorbing",
        dmm.AbsorbingChain(dmm.Finite(2, 2)),
        states((2,), 3),
        data=([0, 1], [1, 1]),
        zeros=True,  # a state comes from itself or not at all; test_chains has the laws with zeros
    ),
    Row(
        "ordinal",
        in_double(lambda: dmm.OrdinalChain(dmm.Finite((), 5, ordered=True))),
        states((), 5),
        data=(0, 1),
    ),
    Row(
        "chains-ou",
        in_double(lambda: dmm.ProductProcess(matrix_chain((2,), THREE, 8.0), line_process())),
        side_by_side(states((2,), 3), LINE),
        data=(([0, 1], [0.1]), ([2, 2], [2.0])),
    ),
    Row(
        "wright-fisher",
        dmm.WrightFisher(dmm.Simplex(3), (3.0, 2.5, 4.0)),
        triangle(),
        data=([0.2, 0.3, 0.5], [0.7, 0.2, 0.1]),
        latent=True,
        bounded=True,
    ),
    Row(
        "box",
        dmm.Jacobi(dmm.Box([0.0, 0.0], [1.0, 1.0]), 3.0, 2.5),
        unit_square(),
        data=([0.2, 0.6], [0.7, 0.1]),
        latent=True,
        bounded=True,
    ),
    Row(
        "sphere",
        dmm.SphericalBrownian(dmm.Sphere(2)),
        globe(),
        data=([0.0, 0.0, 1.0], [0.6, 0.0, 0.8]),
        latent=True,
    ),
    Row(
        "rotations",
        dmm.RotationalBrownian(dmm.SO3()),
        rotations(),
        data=(np.eye(3), Rotation.from_rotvec([0.5, -1.0, 0.3]).as_matrix()),
    ),
    Row(
        "torus",
        dmm.ToroidalBrownian(dmm.Torus(2)),
        angles(),
        data=([0.3, -3.0], [2.0, 1.0]),
    ),
    Row(
        "positive",
        dmm.SquareRoot(dmm.PositiveReals(1), 2.5),
        positives(),
        data=([0.4], [2.0]),
        latent=True,
        bounded=True,
    ),
    Row(
        "counts",
        dmm.ImmigrationDeath(dmm.Counts(1), 2.5),
        counts(),
        data=([1], [6]),
        latent=True,
    ),
    Row(
        "counts-positive-chain",
        dmm.ProductProcess(
            dmm.ImmigrationDeath(dmm.Counts(1)),
            dmm.SquareRoot(dmm.PositiveReals(1)),
            dmm.UniformChain(dmm.Finite((), 2)),
        ),
        side_by_side(counts(26), positives(24), states((), 2)),
        data=(([1], [0.4], 0), ([6], [2.0], 1)),
        latent=True,
        bounded=True,
    ),
    Row("own-diffusion", Bent(dmm.Euclidean(2)), PLANE),
)

TRACTABLE = tuple(row for row in ROWS if isinstance(row.process, dmm.Tractable))
DENSE = tuple(
    row for row in TRACTABLE if dmm.supports(row.process, dmm.HasDensity) and not row.zeros
)
DIFFUSIONS = tuple(row for row in ROWS if dmm.supports(row.process, dmm.AbstractDiffusion))
