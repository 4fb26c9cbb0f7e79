"""Noising: the transition law solves the forward equation, and draws and targets follow it.

Adjointness (`test_laws`) makes L* right when L is; the forward equation then makes the transition
density that of L, quadrature the entropy and the expectations, and statistics the draws.
"""

import functools
import json
import math
import pathlib
from decimal import Decimal, localcontext

import equinox as eqx
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

import dmm
from table import DENSE, FOUR, ROWS, TRACTABLE, assert_mean, matrix_chain, over

DRAWS = 2**15
x64 = pytest.mark.usefixtures("x64")


# --- The density ---------------------------------------------------------------------------------


@over(DENSE)
@x64
def test_transition_density_integrates_to_one(row):
    for x0 in row.starts:
        total = jax.jit(
            lambda x0=x0: row.integrate(
                lambda x: jnp.exp(row.process.log_transition(x, x0, row.tau))
            )
        )()
        np.testing.assert_allclose(total, 1.0, rtol=1e-9)


@functools.cache
def forward_equation(row):
    def sides(x, tau):
        x0 = row.starts[0]

        def log_q(y):
            return row.process.log_transition(y, x0, tau)

        at_x = log_q(x)
        slope = jax.grad(lambda t: row.process.log_transition(x, x0, t))(tau)
        return slope, row.process.adjoint(lambda y: jnp.exp(log_q(y) - at_x), x)

    return jax.jit(sides)


@over(DENSE)
@x64
@given(data=st.data())
def test_transition_density_solves_the_forward_equation(row, data):
    """∂_τ log q = q⁻¹L*q at every point and time; 1e-8 of terms that grow as 1/τ²."""
    x = jax.tree.map(jnp.asarray, data.draw(row.domain.points))
    tau = data.draw(st.floats(0.2, 5.0))
    slope, moved = forward_equation(row)(x, jnp.asarray(tau))
    np.testing.assert_allclose(slope, moved, rtol=1e-8, atol=1e-8 * (1 + tau**-2))


@over([row for row in DENSE if row.process.data == row.process.space])
@x64
def test_chapman_kolmogorov(row):
    """∫ q_τ(z | x_0) q_σ(x | z) dz = q_{τ+σ}(x | x_0)."""
    p, (x0, x) = row.process, row.starts

    @jax.jit
    def sides():
        def both(z):
            return p.log_transition(z, x0, row.tau) + p.log_transition(x, z, 0.8)

        return jnp.log(row.integrate(lambda z: jnp.exp(both(z))))

    np.testing.assert_allclose(sides(), p.log_transition(x, x0, row.tau + 0.8), rtol=1e-9)


@over(DENSE)
@x64
def test_entropy_is_that_of_the_density(row):
    x0, tau = row.starts[0], jnp.asarray(row.tau)

    def integrand(x):
        log_q = row.process.log_transition(x, x0, tau)
        return -jnp.exp(log_q) * log_q

    truth = jax.jit(lambda: row.integrate(integrand))()
    np.testing.assert_allclose(row.process.entropy(x0, tau), truth, rtol=1e-8)


@over([row for row in DENSE if row.stationary])
@x64
def test_noise_at_the_horizon_is_the_reference(row):
    """KL(q_T(· | x_0) ‖ reference) under 1e-3 nats: what a start from the reference costs."""
    p, x0 = row.process, row.starts[0]
    tau = jnp.asarray(p.horizon)

    def integrand(x):
        log_q = p.log_transition(x, x0, tau)
        return jnp.exp(log_q) * (log_q - p.reference.log_prob(x))

    assert jax.jit(lambda: row.integrate(integrand))() < 1e-3


@x64
def test_brownian_reference_is_the_noised_standard_gaussian():
    """∫ N(x_0; 0, 1) q_T(x | x_0) dx_0 at the horizon T, which it depends on."""
    row = next(row for row in ROWS if row.name == "brownian")
    unit = dmm.Gaussian((1,))
    for at in (-2.0, 0.3):
        x, tau = jnp.array([at]), jnp.asarray(row.process.horizon)
        noised = row.integrate(
            lambda x0, x=x, tau=tau: jnp.exp(
                unit.log_prob(x0) + row.process.log_transition(x, x0, tau)
            )
        )
        np.testing.assert_allclose(jnp.log(noised), row.process.reference.log_prob(x), rtol=1e-9)


@over(DENSE)
@x64
def test_reference_draws_have_its_density(row):
    """Sixteen waves, each within 5 standard errors; the law sums to one."""
    law, waves = row.process.reference, row.waves(9, 16)

    @jax.jit
    def both(keys):
        def density(x):
            return jnp.exp(law.log_prob(x))

        truth = row.integrate_vector(density, waves)
        draws = jax.vmap(lambda key: waves(law.sample(key)))(keys)
        return row.integrate(density), truth, draws

    total, truth, draws = both(jax.random.split(jax.random.key(1), DRAWS))
    np.testing.assert_allclose(total, 1.0, rtol=1e-7)  # the tails beyond Brownian's grid: 2e-9
    assert_mean(draws, truth)


# --- The draws -----------------------------------------------------------------------------------


@over(DENSE)
@x64
def test_noise_has_the_transition_law(row):
    """The means of sixteen waves over 2¹⁵ draws, each within 5 standard errors of the density's:
    false by chance once in 10⁵ runs of a row, and off by 1% of a wave's spread is seen."""
    p, x0, tau, waves = row.process, row.starts[0], jnp.asarray(row.tau), row.waves(7, 16)

    @jax.jit
    def both(keys):
        truth = row.integrate_vector(lambda x: jnp.exp(p.log_transition(x, x0, tau)), waves)
        return truth, jax.vmap(lambda key: waves(p.noise(key, x0, tau).x))(keys)

    truth, draws = both(jax.random.split(jax.random.key(2), DRAWS))
    assert_mean(draws, truth)


@over(TRACTABLE)
def test_noise_obeys_dynkins_formula(row):
    """E f(X_T) − E f(X_0) = T E Lf(X_{UT}), U uniform: no density needed, and in float32.

    Eight waves, 5 standard errors of the difference of three independent sets of draws.
    """
    p, x0 = row.process, row.starts[0]
    waves, thetas = row.waves(8, 8), row.thetas(8, 8)

    def moved(x):
        return jax.vmap(lambda theta: p.generator(row.wave(theta), x))(thetas)

    @jax.jit
    def draws(keys, shares):
        start = jax.vmap(lambda key: waves(p.lift(key, x0)[0]))(keys[0])
        end = jax.vmap(lambda key: waves(p.noise(key, x0, row.tau).x))(keys[1])
        between = jax.vmap(lambda key, u: moved(p.noise(key, x0, u * row.tau).x))(keys[2], shares)
        return end - start - row.tau * between

    keys = jax.random.split(jax.random.key(3), (3, DRAWS))
    shares = (jnp.arange(DRAWS) + 0.5) / DRAWS  # stratified: the spread only falls
    assert_mean(draws(keys, shares), 0.0, rounding=1e-5)


@over(TRACTABLE)
def test_noise_starts_at_the_data(row):
    """At τ = 1e-8 a diffusion has moved by 1e-4, and a chain has jumped in 1e-5 of all runs."""
    p, keys = row.process, jax.random.split(jax.random.key(4), 256)
    draw = jax.jit(jax.vmap(lambda key, x0: p.drop(p.noise(key, x0, 1e-8).x), in_axes=(0, None)))
    for x0 in row.starts:
        for there, start in zip(jax.tree.leaves(draw(keys, x0)), jax.tree.leaves(x0), strict=True):
            np.testing.assert_allclose(there, np.broadcast_to(start, there.shape), atol=1e-3)


@over(TRACTABLE)
def test_drop_undoes_lift(row):
    """And `lift` reports a density if and only if it adds numbers (`elbo` tests its value)."""
    p, x0 = row.process, row.starts[0]
    state, log_added = p.lift(jax.random.key(5), x0)
    for there, start in zip(jax.tree.leaves(p.drop(state)), jax.tree.leaves(x0), strict=True):
        np.testing.assert_array_equal(there, start)
    assert (log_added == 0) == (jax.tree.map(jnp.shape, state) == jax.tree.map(jnp.shape, x0))


@pytest.mark.parametrize("tau", [1e-4, 1.0, 10.0])
@pytest.mark.parametrize(
    "kind", [dmm.OrnsteinUhlenbeck, dmm.Brownian, dmm.CriticallyDamped], ids=lambda k: k.__name__
)
def test_gaussian_noise_is_gaussian(kind, tau):
    """Whitened by the moments of the dynamics, draws are standard normal (Kolmogorov–Smirnov,
    p > 1e-4 a coordinate), and coordinates of the data do not mix."""
    p, x0 = kind(dmm.Euclidean(2)), jnp.array([1.5, -0.5])
    keys = jax.random.split(jax.random.key(6), DRAWS)
    x = np.asarray(jax.vmap(lambda key: p.noise(key, x0, tau).x)(keys), np.float64)
    x = x.reshape(DRAWS, -1, 2)
    mean, covariance = moments(p, tau)
    errors = x - (mean[:, None] * np.asarray(x0))[None]
    z = np.linalg.solve(np.linalg.cholesky(covariance)[None], errors)
    flat = z.reshape(DRAWS, -1)
    for column in flat.T:
        assert stats.kstest(column, "norm").pvalue > 1e-4
    # Off-diagonal correlations are N(0, 1/DRAWS): 5 standard deviations.
    off = np.corrcoef(flat.T) - np.eye(flat.shape[1])
    assert np.max(np.abs(off)) < 5 / DRAWS**0.5


def moments(p, tau):
    """Mean and covariance given x_0 of dX = FX dτ + G dB, by Van Loan's matrix exponential."""
    from scipy.linalg import expm

    f, g = np.array(p.drift_matrix), np.array(p.noise_matrix)
    k = len(f)
    block = expm(tau * np.block([[-f, g @ g.T], [np.zeros((k, k)), f.T]]))
    a = block[k:, k:].T
    added = np.diag([0.0, 1.0]) if k == 2 else np.zeros((1, 1))  # the velocity's own start
    covariance = a @ block[:k, k:] + a @ added @ a.T
    return a[:, 0], covariance


@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_chain_noise_has_the_transition_law(tau):
    """χ² over the states, p > 1e-4, against an independent matrix exponential."""
    p = matrix_chain()
    keys = jax.random.split(jax.random.key(7), DRAWS)
    x = jax.vmap(lambda key: p.noise(key, jnp.int32(1), tau).x)(keys)
    row = np.asarray(jax.scipy.linalg.expm(tau * jnp.array(FOUR)))[1].astype(np.float64)
    counts = np.bincount(x, minlength=4)
    assert stats.chisquare(counts, DRAWS * row / row.sum()).pvalue > 1e-4


# --- The targets ---------------------------------------------------------------------------------


@over([row for row in DENSE if not row.latent])
@x64
def test_target_is_the_score_of_the_transition_density(row):
    p, x0 = row.process, row.starts[0]

    @jax.jit
    @jax.vmap
    def both(key):
        noised = p.noise(key, x0, row.tau)
        score = p.score(lambda y: p.log_transition(y, x0, row.tau), noised.x)
        return noised.target, p.mean(score)

    target, score = both(jax.random.split(jax.random.key(8), 64))
    for one, two in zip(jax.tree.leaves(target), jax.tree.leaves(score), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-8, atol=1e-9)


@over([row for row in DENSE if not row.latent])
@x64
@given(data=st.data())
def test_mean_target_is_the_score_of_the_noised_data(row, data):
    """E[target | x] = mean(score of q_τ): over data of two points, weighed by their posterior."""
    x = jax.tree.map(jnp.asarray, data.draw(row.domain.points))
    given_x, marginal = mean_target(row)(x)
    for one, two in zip(jax.tree.leaves(given_x), jax.tree.leaves(marginal), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


@functools.cache
def mean_target(row):
    def sides(x):
        p, share, tau, log_mixture = row.process, 0.3, row.tau, row.log_mixture(0.3)
        logs = [p.log_transition(x, x0, tau) for x0 in row.starts]
        targets = [
            p.mean(p.score(lambda y, x0=x0: p.log_transition(y, x0, tau), x)) for x0 in row.starts
        ]
        first = jnp.exp(jnp.log(share) + logs[0] - log_mixture(x, tau))
        mixed = jax.tree.map(lambda a, b: first * a + (1 - first) * b, *targets)
        return mixed, p.mean(p.score(lambda y: log_mixture(y, tau), x))

    return jax.jit(sides)


# --- Noising by simulation -----------------------------------------------------------------------


class SimulatedOU(dmm.Diffusion, dmm.Simulated):
    """Ornstein–Uhlenbeck by its two coefficients."""

    space: dmm.Euclidean
    substeps: int = eqx.field(static=True, default=16)
    horizon: float = eqx.field(static=True, default=10.0)

    @property
    def data(self):
        return self.space

    @property
    def reference(self):
        return dmm.Gaussian(self.space.shape)

    def drift(self, x):
        return -0.5 * x

    def covariance(self, x):
        return jnp.eye(x.size, dtype=x.dtype)


def test_simulated_noise_is_the_chain_of_its_steps():
    """Euler's mean and variance in closed form, within 5 standard errors."""
    p, x0, tau = SimulatedOU(dmm.Euclidean(2)), jnp.array([1.0, -2.0]), 2.0
    h = tau / p.substeps
    shrink = 1 - 0.5 * h
    mean = shrink**p.substeps * np.asarray(x0)
    variance = h * sum(shrink ** (2 * i) for i in range(p.substeps))
    keys = jax.random.split(jax.random.key(9), DRAWS)
    x = jax.jit(jax.vmap(lambda key: p.draw(key, x0, tau)))(keys)
    assert_mean(x, mean)
    assert_mean((x - mean[None]) ** 2, np.full(2, variance))


# --- Accuracy ------------------------------------------------------------------------------------

OU = json.loads((pathlib.Path(__file__).parent / "reference_values" / "ou.json").read_text())


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_ou_kernel_and_density_against_high_precision(double):
    """mpmath values. The kernel is good to a few units in the last place at every τ; the
    log-density inherits twice that from the variance, and the error of x − m x_0."""
    unit = 2.3e-16 if double else 1.2e-7
    with jax.enable_x64(double):
        p = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
        for row in OU:
            tau = jnp.asarray(row["int_beta"])
            m, r = p.kernel(tau)
            np.testing.assert_allclose(m[0], row["alpha"], rtol=4 * unit)
            np.testing.assert_allclose(r[0, 0] ** 2, row["var"], rtol=6 * unit)
            log_q = p.log_transition(jnp.ones(1), jnp.full(1, 0.5), tau)
            np.testing.assert_allclose(
                log_q, row["logpdf_at_x1_given_x0_half"], rtol=20 * unit, atol=20 * unit
            )


def exact_damped_kernel(tau: float):
    """m and R of `CriticallyDamped` in 60 digits, from covariance I − eeᵀ, as floats."""
    with localcontext() as context:
        context.prec = 60
        t = Decimal(tau)
        decay = (-t).exp()
        e = (decay * (1 + t), -decay * t)
        position = (1 - e[0] ** 2).sqrt()
        cross = -e[0] * e[1] / position
        velocity = (1 - e[1] ** 2 - cross**2).sqrt()
        return [float(v) for v in e], [float(v) for v in (position, cross, velocity)]


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
def test_damped_kernel_against_high_precision(double):
    """Position variance is O(τ³) and cancels if written down naively. Relative error at most 2e-6
    in float32 (16 units in the last place) at τ from 1e-5 to 10, and as many units in float64."""
    bound = 4e-15 if double else 2e-6
    with jax.enable_x64(double):
        p = dmm.CriticallyDamped(dmm.Euclidean(1))
        kernel = jax.jit(p.kernel)
        for tau in np.geomspace(1e-5, 10.0, 121):
            tau = float(np.float32(tau))  # the time that both precisions see
            e, r = exact_damped_kernel(tau)
            m, root = kernel(jnp.asarray(tau))
            np.testing.assert_allclose(m, e, rtol=bound)
            np.testing.assert_allclose([root[0, 0], root[1, 0], root[1, 1]], r, rtol=bound)
            assert root[0, 1] == 0


def test_damped_kernel_follows_from_the_dynamics():
    """The closed form against the matrix exponential of drift and noise."""
    with jax.enable_x64(True):
        p = dmm.CriticallyDamped(dmm.Euclidean(1))
        for tau in (0.1, 0.5, 2.0):  # beyond, the matrix exponential loses digits
            mean, covariance = moments(p, tau)
            m, r = p.kernel(jnp.asarray(tau))
            np.testing.assert_allclose(m, mean, rtol=1e-10)
            np.testing.assert_allclose(r @ r.T, covariance, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "kind", [dmm.OrnsteinUhlenbeck, dmm.Brownian, dmm.CriticallyDamped], ids=lambda k: k.__name__
)
def test_precision_is_the_inverse_covariance_under_unit_data(kind):
    with jax.enable_x64(True):
        p = kind(dmm.Euclidean(1))
        for tau in (0.01, 1.0, 10.0):
            m, r = p.kernel(jnp.asarray(tau))
            total = r @ r.T + m[:, None] * m[None, :]
            precision = p.precision(jnp.asarray(tau))
            np.testing.assert_allclose(precision @ total, np.eye(len(m)), atol=1e-12)


def test_gaussian_law():
    """Log-density and draws of N(0, scale²), against SciPy."""
    law = dmm.Gaussian((3,), 2.0)
    x = jnp.array([0.5, -1.0, 3.0])
    np.testing.assert_allclose(
        law.log_prob(x), stats.norm(0, 2).logpdf(np.asarray(x)).sum(), rtol=1e-6
    )
    draws = jax.vmap(law.sample)(jax.random.split(jax.random.key(10), 10_000))
    assert stats.kstest(np.ravel(draws) / 2, "norm").pvalue > 1e-4
    assert math.isclose(float(jnp.std(draws)), 2.0, rel_tol=0.02)  # 5 standard errors
