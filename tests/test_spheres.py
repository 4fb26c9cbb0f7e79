"""Brownian motion on spheres: its density in three forms, and all else against the density."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import dmm
from dmm.processes.heat import (
    earliest,
    heat_kernel_series,
    log_expansion,
    log_lineages,
    log_mixture,
    log_uniform,
)
from table import assert_mean

VALUES = pathlib.Path(__file__).parent / "reference_values"


def sphere(n):
    return dmm.SphericalBrownian(dmm.Sphere(n))


def at_angle(n, phi):
    """Two points of Sⁿ at an angle."""
    x0 = jnp.zeros(n + 1).at[0].set(1.0)
    return x0.at[0].set(jnp.cos(phi)).at[1].set(jnp.sin(phi)), x0


@functools.cache
def log_kernel(n):
    """log q as a function of angles and one time, compiled."""
    process = sphere(n)
    return jax.jit(
        jax.vmap(lambda phi, tau: process.log_transition(*at_angle(n, phi), tau), (0, None))
    )


# --- The density ---------------------------------------------------------------------------------

# n, angle, τ and log q, from the series in mpmath with all the digits that it cancels.
EXACT = (
    (1, 2.5, 0.02, -155.212927030491),
    (1, 3.1, 0.3, -15.9840294760407),
    (2, 0.3, 0.001, -39.9224322363262),
    (2, 2.0, 0.03, -64.5983183037478),
    (2, 2.5, 0.0999, -30.0793638558555),
    (2, 3.0, 0.15, -28.3349175834471),
    (2, 1.0, 4.0, -2.50177030908148),
    (5, 1.2, 0.05, -10.9186545876108),
    (5, 3.1, 0.25, -13.5559961848791),
    (64, 0.6, 0.005, 78.2984585712632),
    (64, 1.2, 0.0156, 40.9932041744219),
    (64, 1.2, 0.03, 46.5236967052183),
    (64, 3.0, 0.03, -17.3289969862438),
    (64, 1.5, 0.2, 41.9318765537656),
)


@pytest.mark.parametrize("n", sorted({case[0] for case in EXACT}))
def test_density_in_high_precision(n):
    """Double precision within 10⁻⁹; single within 10⁻⁵, on S⁶⁴ within 10⁻⁴."""
    cases = [case[1:] for case in EXACT if case[0] == n]
    with jax.enable_x64(True):
        double = [log_kernel(n)(jnp.array([phi]), tau)[0] for phi, tau, _ in cases]
    single = [log_kernel(n)(jnp.array([phi]), tau)[0] for phi, tau, _ in cases]
    truth = [value for _, _, value in cases]
    np.testing.assert_allclose(double, truth, rtol=0, atol=1e-9)
    np.testing.assert_allclose(single, truth, rtol=1e-6, atol=1e-4 if n == 64 else 1e-5)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.usefixtures("x64")
def test_forms_agree(n):
    """With the series: the mixture to 9 digits of the peak, the expansion to 12, at all angles up
    to 2.5 (and to π for n = 1 and n = 3); the two at their switch to 9 digits, as logarithms."""
    phi = jnp.linspace(0.0, jnp.pi, 41)
    y, z = jnp.maximum(jnp.sin(phi / 2) ** 2, 1e-30), jnp.maximum(jnp.cos(phi / 2) ** 2, 1e-30)
    series = jax.jit(jax.vmap(lambda u, t: heat_kernel_series(n, u, t), (0, None)))
    mixture = jax.jit(jax.vmap(lambda z, t: log_mixture(n, z, t), (0, None)))
    expansion = jax.jit(jax.vmap(lambda y, z, t: log_expansion(n, y, z, t), (0, 0, None)))
    exact = n in (1, 3)
    near = phi < (4.0 if exact else 2.5)
    for tau in (0.1, 0.2, 0.5, 1.3, 5.0, 30.0):
        truth = series(jnp.cos(phi), tau)
        np.testing.assert_allclose(jnp.exp(mixture(z, tau)), truth, atol=1e-9 * truth[0], rtol=0)
    for tau in (0.02, 0.05, 0.1):
        truth = series(jnp.cos(phi), tau)
        found = jnp.exp(expansion(y, z, tau))
        np.testing.assert_allclose(found, truth, atol=1e-12 * truth[0], rtol=0)
    switch = earliest(n)
    difference = mixture(z, switch) - expansion(y, z, switch)
    assert np.max(np.abs(difference[near])) < 2e-9
    assert np.max(np.abs(difference)) < (2e-9 if exact else 0.3)


def test_law_of_the_lineages():
    """log P(A = m) against the values of high precision: 10⁻¹¹, down to probabilities of 10⁻¹⁸."""
    for case in json.loads((VALUES / "wf_dn_pmf.json").read_text()):
        found = log_lineages(float(case["theta"]), np.array(case["n"]), np.array(case["t"]))
        np.testing.assert_allclose(found, np.log(case["d"]), atol=1e-11, rtol=0)


def angles(nodes=400):
    """Gauss–Legendre nodes and weights on (0, π)."""
    u, weights = np.polynomial.legendre.leggauss(nodes)
    return np.pi / 2 * (1 + u), np.pi / 2 * weights


@pytest.mark.parametrize("n", [1, 2, 3, 5, 64])
@pytest.mark.usefixtures("x64")
def test_density_integrates_to_one(n):
    """Over the angle, with the area of the sphere of lower dimension at it: 10⁻⁹."""
    phi, weights = angles()
    log_area = (n - 1) * np.log(np.sin(phi)) - (log_uniform(n - 1) if n > 1 else -np.log(2))
    for tau in np.geomspace(1e-3, 20.0, 12):
        density = np.exp(log_kernel(n)(jnp.asarray(phi), tau) + log_area)
        assert abs(np.sum(weights * density) - 1) < 1e-9, tau


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_heat_equation(n):
    """∂_τ q = ½Δq = L*q, as shares of q, to 10⁻⁶ of n/τ: by the process's own operators."""
    process, x0 = sphere(n), jnp.zeros(n + 1).at[0].set(1.0)

    @jax.jit
    @jax.vmap
    def sides(phi, tau):
        x, _ = at_angle(n, phi)
        level = process.log_transition(x, x0, tau)

        def share(y):
            return jnp.exp(process.log_transition(y, x0, tau) - level)

        slope = jax.grad(lambda t: process.log_transition(x, x0, t))(tau)
        return slope, process.generator(share, x), process.adjoint(share, x)

    phi, tau = jnp.meshgrid(jnp.array([0.1, 0.9, 2.0]), jnp.array([0.01, 0.08, 0.3, 1.0, 3.0]))
    slope, forward, adjoint = (side.reshape(phi.shape) for side in sides(phi.ravel(), tau.ravel()))
    assert np.max(np.abs(slope - forward) * tau / n) < 1e-6
    assert np.max(np.abs(slope - adjoint) * tau / n) < 1e-6


@pytest.mark.parametrize("n", [1, 2, 5, 64])
def test_single_precision_is_finite(n):
    """Density and gradient at every time: at x_0, at −x_0, next to both and elsewhere."""
    process = sphere(n)
    keys = jax.random.split(jax.random.key(0), 4)
    x0, *others = jax.vmap(process.reference.sample)(keys)
    beside = process.space.project(x0 + 1e-6 * others[0])
    points = jnp.stack([x0, -x0, beside, -beside, *others])
    taus = jnp.geomspace(1e-6, 10.0, 57)
    both = jax.value_and_grad(process.log_transition)
    value, slope = jax.jit(jax.vmap(jax.vmap(both, (0, None, None)), (None, None, 0)))(
        points, x0, taus
    )
    assert value.dtype == slope.dtype == jnp.float32
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(slope))
    assert np.all(value[:, :1] >= value - 1e-4), "the density is highest at x_0"


def test_the_bound_stays_the_quiet_one():
    """A reference at rest and no entropy in closed form: `elbo` chooses by type."""
    assert isinstance(sphere(2), dmm.Stationary)
    assert not isinstance(sphere(2), dmm.HasDensity)


# --- Draws, targets and walks --------------------------------------------------------------------


def law_of_the_angle(n, tau):
    """The distribution function of the angle, by trapezia on a fine grid, in double precision."""
    reach = min(np.pi, 8 * (n * tau) ** 0.5 + 8 * tau**0.5)
    grid = np.linspace(0.0, reach, 4001)
    with jax.enable_x64(True):
        log_q = np.asarray(log_kernel(n)(jnp.asarray(grid), tau))
    density = np.exp(log_q - log_q[0]) * np.sin(grid) ** (n - 1)
    mass = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
    return lambda phi: np.interp(phi, grid, mass / mass[-1])


def angles_from(x, x0):
    """Without arccos, which has no digits near x_0."""
    x, x0 = np.asarray(x, np.float64), np.asarray(x0, np.float64)
    near, far = np.linalg.norm(x - x0, axis=1), np.linalg.norm(x + x0, axis=1)
    return 2 * np.arctan2(near, far)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_draws_have_the_density(n):
    """Kolmogorov–Smirnov of 2¹⁵ angles at each time, p above 10⁻⁵; a time 8% off is refused."""
    process = sphere(n)
    x0 = process.reference.sample(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), 2**15)
    draw = jax.jit(jax.vmap(process.draw, (0, None, None)))
    for tau in (1e-4, 0.02, 0.6 / n):
        found = angles_from(draw(keys, x0, tau), x0)
        assert stats.kstest(found, law_of_the_angle(n, tau)).pvalue > 1e-5, tau
        assert stats.kstest(found, law_of_the_angle(n, 1.08 * tau)).pvalue < 1e-5, tau


@pytest.mark.parametrize("n", [1, 2, 5])
def test_target_has_the_score_as_its_mean(n):
    """E⟨target − ∇log q, v⟩ = 0 for four fields v, one of them along the score: 2¹⁴ draws at each
    time, 5 standard errors, which are under 4% of the score's mean square where it is the field."""
    process = sphere(n)
    x0 = process.reference.sample(jax.random.key(1))
    slopes = jax.random.normal(jax.random.key(5), (3, n + 1, n + 1))

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def one(key, tau):
        x, target = process.noise(key, x0, tau)
        score = process.score(lambda y: process.log_transition(y, x0, tau), x)
        fields = jnp.concatenate([jnp.sin(slopes @ x), score[None]])
        error = process.flux(x, target - score)
        return fields @ error, jnp.sum(score * process.flux(x, score))

    keys = jax.random.split(jax.random.key(3), 2**14)
    for tau in (0.002, 0.05, 0.8):
        errors, square = one(keys, tau)
        assert_mean(errors, np.zeros(4), rounding=2e-5 * np.mean(square))
        assert np.std(errors[:, 3]) / 2**7 < 0.04 * np.mean(square)


def test_geodesic_walk_has_the_density():
    """150 small steps of the generator's own on the globe: Kolmogorov–Smirnov of 2¹⁴ ends, p above
    10⁻⁴ where that of a time 15% off is below."""
    process, tau, steps = sphere(2), 0.6, 150
    x0 = process.reference.sample(jax.random.key(1))

    @jax.jit
    @jax.vmap
    def walk(key):
        def body(x, key):
            return process.step(key, x, tau / steps), None

        return jax.lax.scan(body, x0, jax.random.split(key, steps))[0]

    found = angles_from(walk(jax.random.split(jax.random.key(4), 2**14)), x0)
    assert stats.kstest(found, law_of_the_angle(2, tau)).pvalue > 1e-4
    assert stats.kstest(found, law_of_the_angle(2, 1.15 * tau)).pvalue < 1e-4
