"""The laws of the framework over every process of the table, against `dmm.calculus`.

The oracle uses the generator and its adjoint alone; adjointness ties the two together, and
`test_noising` ties the generator to the law of the noise. All in double precision, where what is
equal is equal to rounding: derivatives of second order of functions of order one, and sums of
such that cancel, keep more than nine digits. A wrong formula errs in the first.
"""

import functools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import dmm
from dmm import calculus
from dmm.processes.product import AbstractProduct
from dmm.spaces.base import Flat
from dmm.spaces.tangent import divergence
from table import DENSE, DIFFUSIONS, ROWS, TRACTABLE, assert_mean, over

pytestmark = pytest.mark.usefixtures("x64")

SEEDS = st.integers(0, 2**32 - 1)


# --- Laws at a point: pairs that must be equal, for any log β, log q, f, g on the space ----------


def constants_are_harmonic(p, log_beta, log_q, f, g, x):
    """L1 = 0."""
    return p.generator(lambda y: jnp.ones(()), x), 0.0


def source_is_the_adjoint_of_one(p, log_beta, log_q, f, g, x):
    return p.source(x), p.adjoint(lambda y: jnp.ones(()), x)


def phi_vanishes_on_constants(p, log_beta, log_q, f, g, x):
    """Φ(c) = 0 by the operator, and Φ(s, s) = 0 by the closed form."""
    s = p.score(log_beta, x)
    return (calculus.phi(p, lambda y: 2.0 + 0 * f(y), x), p.phi(x, p.mean(s), s)), (0.0, 0.0)


def score_gives_the_carre_du_champ(p, log_beta, log_q, f, g, x):
    """Γ(log β, f) = ⟨s, a∇f⟩ for diffusions, Σ_y B(x→y) s(y) (f(y) − f(x)) for jumps."""
    closed = champ(p, x, p.score(log_beta, x), p.score(f, x))
    return closed, calculus.carre_du_champ(p, log_beta, f, x)


def implicit_is_the_integrand(p, log_beta, log_q, f, g, x):
    """β⁻¹L*β + L log β."""
    closed = p.implicit(lambda y: p.score(log_beta, y), x)
    return closed, calculus.implicit(p, log_beta, x)


def reverse_is_the_time_reversal(p, log_beta, log_q, f, g, x):
    """The generator of `reverse` is β⁻¹L*(βf) − fβ⁻¹L*β."""
    reverse = p.reverse(lambda y: p.score(log_beta, y))
    return reverse.generator(f, x), calculus.reverse_generator(p, log_beta, f, x)


def auxiliary_process_is_the_adjoint_of_the_reverse(p, log_beta, log_q, f, g, x):
    """Mf + cf = K*f (Assumption 1) for M = reverse(s).reverse(0), c = reverse(s).source."""
    reverse = p.reverse(lambda y: p.score(log_beta, y))
    auxiliary = reverse.reverse(dmm.Zero(reverse))
    return auxiliary.generator(f, x) + reverse.source(x) * f(x), reverse.adjoint(f, x)


def reversing_twice_gives_the_process_back(p, log_beta, log_q, f, g, x):
    """β is the law of both directions at this time, so the reverse's reverse is the process."""

    def score(y):
        return p.score(log_beta, y)

    return p.reverse(score).reverse(score).generator(f, x), p.generator(f, x)


def excess_is_a_difference(p, log_beta, log_q, f, g, x):
    """Φ(q/β) − Φ(q/γ), γ = e^g."""
    target, s, r = p.mean(p.score(log_q, x)), p.score(log_beta, x), p.score(g, x)
    return p.excess(x, target, s, r), p.phi(x, target, s) - p.phi(x, target, r)


POINTWISE = (
    constants_are_harmonic,
    source_is_the_adjoint_of_one,
    phi_vanishes_on_constants,
    score_gives_the_carre_du_champ,
    implicit_is_the_integrand,
    reverse_is_the_time_reversal,
    auxiliary_process_is_the_adjoint_of_the_reverse,
    reversing_twice_gives_the_process_back,
    excess_is_a_difference,
)


def phi_is_the_operator(p, log_beta, log_q, f, g, x):
    """Φ(q/β), at every point: of diffusions only (jumps below)."""
    closed = p.phi(x, p.mean(p.score(log_q, x)), p.score(log_beta, x))
    return closed, calculus.explicit(p, log_q, log_beta, x)


def flow_has_the_same_law(p, log_beta, log_q, f, g, x):
    """L*q = −div(q v), v the probability flow: both move q alike."""

    def flow(y):
        return p.flow(y, p.score(log_q, y))

    s, v = p.score(log_q, x), flow(x)
    along = sum(jax.tree.leaves(jax.tree.map(lambda a, b: jnp.sum(a * b), s, v)))
    at_x = log_q(x)
    adjoint = p.adjoint(lambda y: jnp.exp(log_q(y) - at_x), x)
    return -divergence(p.space, flow, x) - along, adjoint


DIFFUSIONS_ONLY = (phi_is_the_operator, flow_has_the_same_law)


def phi_twice(p, log_beta, log_q, f, g, x):
    """Φ(q/β) by the closed form, and Φ(e^f) by the operator."""
    return p.phi(x, p.mean(p.score(log_q, x)), p.score(log_beta, x)), calculus.phi(p, f, x)


def champ(p, x, u, v):
    """The carré du champ of two functions from their scores, family by family."""
    if isinstance(p, AbstractProduct):
        terms = zip(p.speeds, p.families, x, u, v, strict=True)
        return sum(c * champ(factor, *rest) for c, factor, *rest in terms)
    if isinstance(p, dmm.Jump):
        return jnp.sum(p.rates(x) * u * v)
    return jnp.sum(u * p.flux(x, v))


@functools.cache
def at_a_point(row, law):
    """A law of a row, compiled once: functions enter by their coefficients."""

    def sides(thetas, x):
        log_beta, log_q = row.log_law(thetas[0]), row.log_law(thetas[1])
        return law(row.process, log_beta, log_q, row.wave(thetas[2]), row.wave(thetas[3]), x)

    return jax.jit(sides)


def draw_inputs(row, data):
    seed = data.draw(SEEDS)
    return [row.theta([seed, i]) for i in range(4)], data.draw(row.domain.points)


def assert_sides_equal(row, law, data):
    thetas, x = draw_inputs(row, data)
    left, right = at_a_point(row, law)(thetas, jax.tree.map(jnp.asarray, x))
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@over(ROWS)
@pytest.mark.parametrize("law", POINTWISE, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law_at_every_point(row, law, data):
    assert_sides_equal(row, law, data)


@over(DIFFUSIONS)
@pytest.mark.parametrize("law", DIFFUSIONS_ONLY, ids=lambda law: law.__name__)
@given(data=st.data())
def test_law_of_diffusions(row, law, data):
    assert_sides_equal(row, law, data)


@over(ROWS)
@given(data=st.data())
def test_phi_is_not_negative(row, data):
    """Φ ≥ 0, by the operator and by the closed form. (Positive: `abs(left)` under the integral.)"""
    thetas, x = draw_inputs(row, data)
    for value in at_a_point(row, phi_twice)(thetas, jax.tree.map(jnp.asarray, x)):
        assert value >= -1e-12


@over([row for row in TRACTABLE if row.stationary])
@given(data=st.data())
def test_reference_is_invariant(row, data):
    """L*π = 0 at every point."""
    x = jax.tree.map(jnp.asarray, data.draw(row.domain.points))
    assert abs(_leak(row)(x)) < 1e-10


@functools.cache
def _leak(row):
    def leak(x):
        return row.process.adjoint(lambda y: jnp.exp(row.process.reference.log_prob(y)), x)

    return jax.jit(leak)


# --- Laws under the integral ---------------------------------------------------------------------


def adjoint_is_adjoint(row, log_beta, log_q, f):
    """⟨Lf, h⟩ = ⟨f, L*h⟩."""
    p, h = row.process, lambda x: jnp.exp(log_q(x))
    left = row.integrate(lambda x: p.generator(f, x) * h(x))
    return left, row.integrate(lambda x: f(x) * p.adjoint(h, x))


def adjoint_of_the_reverse_is_adjoint(row, log_beta, log_q, f):
    """The same for the generative process."""
    p, h = row.process, lambda x: jnp.exp(log_q(x))
    reverse = p.reverse(lambda x: p.score(log_beta, x))
    left = row.integrate(lambda x: reverse.generator(f, x) * h(x))
    return left, row.integrate(lambda x: f(x) * reverse.adjoint(h, x))


def reverse_is_adjoint_under_the_law(row, log_beta, log_q, f):
    """∫ g Kf β − ∫ f Lg β = −∫ f g L*β: what makes K the time reversal of L under β."""
    p, g, beta = row.process, log_q, lambda x: jnp.exp(log_beta(x))
    reverse = p.reverse(lambda x: p.score(log_beta, x))
    left = row.integrate(
        lambda x: (g(x) * reverse.generator(f, x) - f(x) * p.generator(g, x)) * beta(x)
    )
    return left, -row.integrate(lambda x: f(x) * g(x) * p.adjoint(beta, x))


def phi_in_expectation_is_the_operator(row, log_beta, log_q, f):
    """E Φ(q/β) under q, which is all that jumps promise."""
    p, q = row.process, lambda x: jnp.exp(log_q(x))

    def closed(x):
        return p.phi(x, p.mean(p.score(log_q, x)), p.score(log_beta, x))

    left = row.integrate(lambda x: q(x) * closed(x))
    return left, row.integrate(lambda x: q(x) * calculus.explicit(p, log_q, log_beta, x))


def implicit_is_explicit_up_to_a_constant(row, log_beta, log_q, f):
    """ISM(β) − ESM(β) = E[q⁻¹L*q + L log q] under q: its value at β = q, whatever β is."""
    p, q = row.process, lambda x: jnp.exp(log_q(x))

    def difference(x):
        def score(y):
            return p.score(log_beta, y)

        explicit = p.phi(x, p.mean(p.score(log_q, x)), score(x))
        return p.implicit(score, x) - explicit

    left = row.integrate(lambda x: q(x) * difference(x))
    return left, row.integrate(lambda x: q(x) * calculus.implicit(p, log_q, x))


INTEGRAL = (
    adjoint_is_adjoint,
    adjoint_of_the_reverse_is_adjoint,
    reverse_is_adjoint_under_the_law,
    phi_in_expectation_is_the_operator,
    implicit_is_explicit_up_to_a_constant,
)


@over(ROWS)
@pytest.mark.parametrize("law", INTEGRAL, ids=lambda law: law.__name__)
def test_law_under_the_integral(row, law):
    """Quadrature is exact to rounding for these functions (see `table.reals`)."""

    @jax.jit
    def sides(thetas):
        return law(row, row.log_law(thetas[0]), row.log_law(thetas[1]), row.wave(thetas[2]))

    for seed in range(3):
        left, right = sides([row.theta([seed, i]) for i in range(3)])
        assert abs(left) > 1e-6, "a law that reads 0 = 0 shows nothing"
        np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-9)


@over(DENSE)
def test_divergence_falls_at_the_rate_of_phi(row):
    """Proposition 1: d/dτ KL(π₁Q_τ ‖ π₂Q_τ) = −E Φ(π₁Q_τ / π₂Q_τ) under the first."""
    log_one, log_two = row.log_mixture(0.3), row.log_mixture(0.8)

    def kl(tau):
        def integrand(x):
            return jnp.exp(log_one(x, tau)) * (log_one(x, tau) - log_two(x, tau))

        return row.integrate(integrand)

    @jax.jit
    def mean_phi(tau):
        """By the closed form, which has the operator's mean (above) and compiles sooner."""
        p = row.process

        def integrand(x):
            first = p.score(lambda y: log_one(y, tau), x)
            second = p.score(lambda y: log_two(y, tau), x)
            return jnp.exp(log_one(x, tau)) * p.phi(x, p.mean(first), second)

        return row.integrate(integrand)

    slope = jax.jit(jax.grad(kl))(row.tau)
    assert slope < -1e-3
    np.testing.assert_allclose(slope, -mean_phi(row.tau), rtol=1e-7)


@over(ROWS)
def test_random_probe_has_the_mean_of_the_exact_integrand(row):
    """`implicit` with a key, over 2¹³ keys: within 5 standard errors, which fails by chance once
    in 10⁶ runs. In one dimension a probe is exact, and the error is rounding alone."""
    p, theta = row.process, row.theta(5)

    def score(y):
        return p.score(row.log_law(theta), y)

    x = jax.tree.map(lambda leaf: leaf[len(row.domain.weights) // 2 + 2], row.nodes)
    keys = jax.random.split(jax.random.key(0), 2**13)
    draws = jax.jit(jax.vmap(lambda key: p.implicit(score, x, key=key)))(keys)
    error = jnp.mean(draws) - jax.jit(lambda: p.implicit(score, x))()
    assert abs(error) < 5 * jnp.std(draws) / len(keys) ** 0.5 + 1e-9


# --- One step, over the table --------------------------------------------------------------------


@over(ROWS)
@pytest.mark.parametrize("direction", ["noising", "auxiliary"])
def test_step_follows_the_generator(row, direction):
    """(E f(Y) − f(x))/h = Lf(x) + O(h) for a step Y of length h = 0.01: eight waves at each of four
    points, 2¹⁷ draws a point. The error, as a vector, is within 5% of Lf (second order: 4% here)
    and 3 standard errors. Waves at one point share their draws, so as few as four numbers may be
    independent: χ² beyond 36, for 3 in 10⁷ keys."""
    h, n, process = 0.01, 2**17, row.directions()[direction]
    waves, thetas = row.waves(22, 8), row.thetas(22, 8)

    @jax.jit
    @jax.vmap
    def at(keys, x):
        moved = jax.vmap(lambda key: waves(process.step(key, x, h)) - waves(x))(keys)
        truth = jax.vmap(lambda theta: process.generator(row.wave(theta), x))(thetas)
        return jnp.mean(moved, 0) / h, jnp.std(moved, 0) / h / n**0.5, truth

    mean, error, truth = at(jax.random.split(jax.random.key(0), (4, n)), row.some_points(4))
    size, noise = jnp.linalg.norm(truth), jnp.linalg.norm(error)
    assert noise < 0.08 * size, "too noisy to show anything"
    assert jnp.linalg.norm(mean - truth) <= 0.05 * size + 3 * noise


def is_noisy(process, x):
    """Whether noise drives every coordinate and none wraps round, so that a step has a density."""
    if isinstance(process, AbstractProduct):
        return all(map(is_noisy, process.families, x))
    if isinstance(process, dmm.Jump):
        return True
    flat = isinstance(process.space, Flat)
    return flat and np.linalg.matrix_rank(process.covariance_matrix(x)) == x.size


# Of the nodes any will do where spaces are flat: there, covariances are the same everywhere.
NOISY = [row for row in ROWS if not row.bounded and is_noisy(row.process, row.first_node)]


@over(NOISY)
@pytest.mark.parametrize("direction", ["noising", "generative"])
def test_log_step_is_the_density_of_a_step(row, direction):
    """It integrates to one, and gives eight waves their means over 2¹⁵ draws, 5 standard errors."""
    h, process, x, waves = 0.6, row.directions()[direction], row.one_point(), row.waves(23, 8)

    @jax.jit
    def both(keys):
        def density(y):
            return jnp.exp(process.log_step(x, y, h))

        draws = jax.vmap(lambda key: waves(process.step(key, x, h)))(keys)
        return row.integrate(density), row.integrate_vector(density, waves), draws

    total, truth, draws = both(jax.random.split(jax.random.key(1), 2**15))
    np.testing.assert_allclose(total, 1.0, rtol=1e-8)
    assert_mean(draws, truth)


def test_log_step_of_a_degenerate_diffusion_counts_the_noisy_directions():
    """Under damping the position moves without noise: the velocity's density alone."""
    p = dmm.CriticallyDamped(dmm.Euclidean(1))
    x, y, h = jnp.array([[0.3], [-0.2]]), jnp.array([[0.25], [0.1]]), 0.04
    error = y[1] - (x[1] - h * (x[0] + 2 * x[1]))
    variance = 4 * h
    truth = -0.5 * error**2 / variance - 0.5 * np.log(2 * np.pi * variance)
    np.testing.assert_allclose(p.log_step(x, y, h), truth[0], rtol=1e-5)


# --- Products ------------------------------------------------------------------------------------


@given(data=st.data())
def test_product_of_euclidean_processes_is_the_joint_one(data):
    """OU(R²) is OU(R¹) × OU(R¹), in all that a process does."""
    joint_row = next(row for row in ROWS if row.name == "ou-plane")
    thetas, x = draw_inputs(joint_row, data)
    joint, split = _both_ways()(thetas, jnp.asarray(x), jnp.asarray([0.4, -1.1]))
    for name in joint:
        np.testing.assert_allclose(split[name], joint[name], rtol=1e-9, atol=1e-10, err_msg=name)


@functools.cache
def _both_ways():
    row = next(row for row in ROWS if row.name == "ou-plane")
    single = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
    pair = dmm.ProductProcess(single, single)

    def everything(process, cut, thetas, x, x0):
        """`cut` makes a vector of the plane a point of the process."""

        def join(z):
            return jnp.concatenate(jax.tree.leaves(z))

        def log_beta(z):
            return row.log_law(thetas[0])(join(z))

        def f(z):
            return row.wave(thetas[2])(join(z))

        def score(z):
            return process.score(log_beta, z)

        x, x0, tau = cut(x), cut(x0), jnp.asarray(0.7)
        target = process.score(lambda z: process.log_transition(z, x0, tau), x)
        reverse = process.reverse(score)
        return {
            "generator": process.generator(f, x),
            "adjoint": process.adjoint(f, x),
            "score": join(score(x)),
            "phi": process.phi(x, target, score(x)),
            "implicit": process.implicit(score, x),
            "source": process.source(x),
            "flow": join(process.flow(x, score(x))),
            "log_transition": process.log_transition(x, x0, tau),
            "entropy": process.entropy(x0, tau),
            "log_step": process.log_step(x, x0, tau),
            "reference": process.reference.log_prob(x),
            "reverse generator": reverse.generator(f, x),
            "reverse adjoint": reverse.adjoint(f, x),
            "reverse source": reverse.source(x),
            "reverse drift": join(reverse.drift(x)),
            "reverse log_step": reverse.log_step(x, x0, tau),
        }

    @jax.jit
    def both(thetas, x, x0):
        joint = everything(row.process, lambda v: v, thetas, x, x0)
        return joint, everything(pair, lambda v: (v[:1], v[1:]), thetas, x, x0)

    return both


def test_a_factor_runs_at_the_speed_of_its_horizon():
    """Factors meet their references together: own time is τ × own horizon / horizon."""
    slow = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1), horizon=10.0)
    fast = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1), horizon=5.0)
    product = dmm.ProductProcess(slow, fast)
    assert product.horizon == 10.0
    x, x0, tau = jnp.array([0.3]), jnp.array([1.1]), jnp.asarray(0.8)
    total = slow.log_transition(x, x0, tau) + fast.log_transition(x, x0, 0.5 * tau)
    np.testing.assert_allclose(product.log_transition((x, x), (x0, x0), tau), total, rtol=1e-12)
    total = slow.entropy(x0, tau) + fast.entropy(x0, 0.5 * tau)
    np.testing.assert_allclose(product.entropy((x0, x0), tau), total, rtol=1e-12)
