"""The standard tasks: simulators against their definitions, references against Bayes's rule."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from dmm.datasets.tasks import (
    SIR,
    SLCP,
    TASKS,
    BernoulliGLM,
    GaussianLinear,
    LotkaVolterra,
    SLCPDistractors,
    bernoulli_glm,
    dynamics,
    sampling,
    slcp,
)
from table import assert_mean

NAMES = list(TASKS)
TEMPERED = {"bernoulli_glm", "sir", "lotka_volterra"}  # tested by identities below, in less time
DRAWS, MANY = 20_000, 2_000


@functools.cache
def simulator(task):
    return jax.jit(jax.vmap(task.simulate, (0, None)))


def simulated(task, theta, n=DRAWS):
    keys = jax.random.split(jax.random.key(1), n)
    return np.asarray(simulator(task)(keys, jnp.asarray(theta, jnp.float32)), np.float64)


@functools.cache
def reference(task, i):
    """Many draws of the posterior given the observation i."""
    return task.reference(jax.random.key(2), task.observation(i), MANY)


def thetas(name, n):
    keys = jax.random.split(jax.random.key(3), n)
    return np.asarray(jax.vmap(TASKS[name]().prior.sample)(keys), np.float64)


# --- All of them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_observations_are_the_same_whatever_the_precision(name):
    task = TASKS[name]()
    theta, x = task.observed(3)
    with jax.enable_x64(True):
        np.testing.assert_array_equal(x, task.observation(3))
    assert bool(task.prior.support(jnp.asarray(theta)))
    assert np.isfinite(x).all()
    assert x.dtype == theta.dtype == np.float32
    assert not np.array_equal(x, task.observation(4))
    with pytest.raises(ValueError, match=r"^i\b"):
        task.observation(-1)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TEMPERED - {"sir"}])
def test_reference_is_determined_by_its_key(name):
    task, x = TASKS[name](), TASKS[name]().observation(0)
    drawn = reference(task, 0)
    np.testing.assert_array_equal(drawn, task.reference(jax.random.key(2), x, MANY))
    assert not np.array_equal(drawn, task.reference(jax.random.key(6), x, MANY))


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", NAMES)
def test_reference_is_in_the_support(name):
    drawn, prior = reference(TASKS[name](), 0), TASKS[name]().prior
    assert drawn.shape == (MANY, *prior.event_shape)
    assert np.all(jax.vmap(prior.support)(jnp.asarray(drawn)))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in TEMPERED | {"slcp_distractors"}])
def test_ranks_among_the_reference_are_uniform(name):
    """Of each coordinate of θ and of the likelihood at θ, over pairs of the joint law."""
    task, n = TASKS[name](), 99
    log_likelihood = jax.jit(jax.vmap(task.log_likelihood, (0, None)))
    ranks, random = [], np.random.default_rng(0)
    for i in range(40):
        theta, x = task.observed(100 + i)
        drawn = np.concatenate([theta[None], task.reference(jax.random.key(i), x, n)])
        values = np.column_stack([drawn, np.asarray(log_likelihood(jnp.asarray(drawn), x))])
        ranks.append((values[1:] < values[:1]).sum(0) + random.uniform(size=values.shape[1]))
    levels = [stats.kstest(column / (n + 1), "uniform").pvalue for column in np.transpose(ranks)]
    assert min(levels) > 5e-7 / len(levels)


# --- Simulators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian_linear", "gaussian_linear_uniform", "gaussian_mixture"])
def test_gaussian_simulators(name):
    task = TASKS[name]()
    theta = thetas(name, 1)[0]
    noise = simulated(task, theta) - theta
    assert_mean(noise, np.zeros_like(theta))
    variance, fourth = (
        (0.505, 3 * 0.5 * (1 + 1e-4)) if task.name == "gaussian_mixture" else (0.1, 0.03)
    )
    assert_mean(noise**2, np.full_like(theta, variance))
    assert_mean(noise**4, np.full_like(theta, fourth))
    # One scale for both coordinates of the mixture.
    both = {"gaussian_mixture": 0.5 * (1 + 1e-4)}.get(name, 0.01)
    assert_mean(noise[:, 0] ** 2 * noise[:, 1] ** 2, both)


@pytest.mark.parametrize("theta", [(0.3, 0.5), (-0.8, 0.1)])
def test_two_moons_simulator(theta):
    a, b = np.asarray(theta)
    x = simulated(TASKS["two_moons"](), theta)
    x += np.array([abs(a + b), a - b]) / 2**0.5 - np.array([0.25, 0.0])
    assert_mean(x, [0.1 * 2 / np.pi, 0.0])
    assert_mean(x**2, np.full(2, (0.1**2 + 0.01**2) / 2))
    assert_mean(np.hypot(*x.T), 0.1)


@pytest.mark.parametrize("distractors", [False, True])
def test_slcp_simulator(distractors):
    task = SLCPDistractors() if distractors else SLCP()
    theta = np.array([0.7, -2.9, -1.2, 0.9, 0.6])
    x = simulated(task, theta)
    points = (x[:, task.places] if distractors else x).reshape(-1, 4, 2) - theta[:2]
    s1, s2 = theta[2:4] ** 2
    assert_mean(points, np.zeros(8))
    second = np.stack(
        [points[..., 0] ** 2, points[..., 1] ** 2, points[..., 0] * points[..., 1]], -1
    )
    assert_mean(second, np.tile([s1**2, s2**2, np.tanh(0.6) * s1 * s2], 4))


def test_distractors_have_the_law_of_their_mixture():
    locations, roots, order = slcp._nuisances()
    task = SLCPDistractors()
    x = simulated(task, np.array([0.0, 0.0, 1.0, 1.0, 0.0]), 2_000)
    noise = x[:, np.argsort(order)[8:]]
    scales = np.linalg.norm(roots, axis=2)
    levels = stats.t.cdf((noise[:, None] - locations) / scales, 2).mean(1)
    assert_mean(levels, np.full(92, 0.5))
    assert_mean(levels**2, np.full(92, 1 / 3))


def test_glm_design_prior_and_simulator():
    design, task = bernoulli_glm.DESIGN, BernoulliGLM()
    stimulus = np.random.RandomState(42).randn(100)
    for row, lag in [(0, 0), (7, 3), (99, 8)]:
        assert design[row, 1 + lag] == stimulus[row - lag]
    assert design[3, 1 + 4] == 0
    theta = thetas("bernoulli_glm", 1)[0]
    x = simulated(task, theta)
    p = special.expit(design @ theta)
    assert_mean(x, design.T @ p)
    assert_mean((x - design.T @ p) ** 2, (design**2).T @ (p * (1 - p)))
    drawn = thetas("bernoulli_glm", DRAWS)
    assert_mean(drawn[:, 0] ** 2, 2.0)
    # What the prior whitens: Fθ, row by row.
    filters = drawn[:, 1:]
    whitened = filters * (1 + np.sqrt(np.arange(9) / 9))
    whitened[:, 1:] -= 2 * filters[:, :-1]
    whitened[:, 2:] += filters[:, :-2]
    assert_mean(whitened**2, np.ones(9), rounding=1e-4)
    assert_mean(whitened[:, 1:] * whitened[:, :-1], np.zeros(8), rounding=1e-4)


def solved(field, start, times):
    found = integrate.solve_ivp(
        field, (0, times[-1]), start, t_eval=times, rtol=1e-10, atol=1e-12, method="DOP853"
    )
    return found.y


@pytest.mark.parametrize("row", range(3))
def test_sir_simulator(row):
    theta = thetas("sir", 3)[row]
    beta, gamma = theta

    def field(t, u):
        return [-beta * u[0] * u[1], beta * u[0] * u[1] - gamma * u[1]]

    share = solved(field, [1 - 1e-6, 1e-6], 17.0 * np.arange(10))[1]
    found = np.exp(SIR().infected(jnp.asarray(theta, jnp.float32)))
    np.testing.assert_allclose(found, share, atol=2e-5, rtol=1e-3)
    x = simulated(SIR(), theta)
    assert_mean(x, 1000 * share, rounding=0.02)
    assert_mean(x**2, 1000 * share * (1 - share) + (1000 * share) ** 2, rounding=20.0)
    assert x.min() >= 0
    assert x.max() <= 1000
    assert np.all(x == np.round(x))


@pytest.mark.parametrize("row", range(3))
def test_lotka_volterra_simulator(row):
    theta = thetas("lotka_volterra", 3)[row]
    alpha, beta, gamma, delta = theta

    def field(t, u):
        return [alpha * u[0] - beta * u[0] * u[1], delta * u[0] * u[1] - gamma * u[1]]

    truth = np.log(solved(field, [30.0, 1.0], 2.1 * np.arange(10))).ravel()
    noise = np.log(simulated(LotkaVolterra(), theta)) - truth
    assert_mean(noise, np.zeros(20), rounding=1e-3)
    assert_mean(noise**2, np.full(20, 0.01), rounding=1e-5)


@pytest.mark.parametrize(
    ("task", "solution", "scale"),
    [(SIR(), "infected", 1e-4), (LotkaVolterra(), "populations", 3e-3)],
)
def test_dynamics_are_solved_over_the_whole_prior(task, solution, scale, monkeypatch, x64):
    """Twice the steps give the same, to a small part of the noise."""
    theta, solve = jnp.asarray(thetas(task.name, 2_000)), dynamics._solve
    coarse = jax.vmap(getattr(task, solution))(theta)
    monkeypatch.setattr(dynamics, "_solve", lambda *args, steps: solve(*args, steps=2 * steps))
    fine = jax.vmap(getattr(task, solution))(theta)
    change = jnp.exp(coarse) - jnp.exp(fine) if task.name == "sir" else coarse - fine
    assert float(jnp.max(jnp.abs(change))) < scale


# --- References -----------------------------------------------------------------------------------


def test_gaussian_linear_reference():
    x = GaussianLinear().observation(0)
    drawn = GaussianLinear().reference(jax.random.key(0), x, DRAWS)
    assert_mean(drawn, x / 2)
    assert_mean((drawn - x / 2) ** 2, np.full(10, 0.05))


def test_gaussian_linear_uniform_reference():
    task = TASKS["gaussian_linear_uniform"]()
    x, nodes = np.linspace(-2.0, 2.0, 10), np.linspace(-1, 1, 20_001)
    weights = np.exp(-0.5 * (nodes[:, None] - x) ** 2 / 0.1)
    weights /= weights.sum(0)
    drawn = task.reference(jax.random.key(0), x, DRAWS)
    for power in (1, 2):
        assert_mean(drawn**power, (weights * nodes[:, None] ** power).sum(0), rounding=1e-3)


def moments(task, x, low, high, cells=2_000):
    """E θ, E θ², E θ₁θ₂ of the posterior by the midpoint rule in the plane."""
    axes = [a + (b - a) * (np.arange(cells) + 0.5) / cells for a, b in zip(low, high, strict=True)]
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)

    def log_joint(point):
        prior = jnp.sum(task.prior.log_prob(point))
        return prior + task.log_likelihood(point, jnp.asarray(x, point.dtype))

    logs = np.asarray(jax.jit(jax.vmap(log_joint))(jnp.asarray(theta)))
    weights = np.exp(logs - logs.max())
    return weights @ features(theta) / weights.sum()


def features(theta):
    return np.column_stack([theta, theta**2, theta[:, 0] * theta[:, 1]])


@pytest.mark.parametrize("i", range(2))
@pytest.mark.parametrize("name", ["two_moons", "gaussian_mixture", "sir"])
def test_references_in_the_plane_by_quadrature(name, i, x64):
    task = TASKS[name]()
    x = task.observation(i)
    if name == "gaussian_mixture" and i == 0:
        x = np.array([9.5, -9.9], np.float32)  # at the edge of the prior
    drawn = task.reference(jax.random.key(2), x, DRAWS if name != "sir" else MANY)
    if name == "sir":
        spread, middle = drawn.std(0), drawn.mean(0)
        low, high = np.maximum(drawn.min(0) - spread, 1e-3), drawn.max(0) + 4 * spread
        truth = moments(task, x, low, high, 200)
        # In units of the posterior, or rounding would hide its spread.
        assert np.all(np.abs(middle - truth[:2]) < 5 * spread / len(drawn) ** 0.5)
    else:
        truth = moments(task, x, *np.outer([-1, 1], task.prior.base_dist.high), cells=1_000)
    assert_mean(features(drawn), truth)


@pytest.mark.parametrize("name", ["bernoulli_glm", "sir", "lotka_volterra"])
def test_references_by_stein_identities(name, x64):
    """E ∇log p = 0 and E z ∇log pᵀ = −I, of the posterior p in coordinates of a normal prior."""
    task = TASKS[name]()
    x = jnp.asarray(task.observation(0), float)
    theta = reference(task, 0)
    if name == "bernoulli_glm":
        z = np.linalg.solve(bernoulli_glm.ROOT, theta.T).T
    else:
        z = (np.log(theta) - task.centre) / task.spread

    def log_joint(z):
        return task._log_likelihood(z, x) - 0.5 * jnp.sum(z**2)

    slope = np.asarray(jax.jit(jax.vmap(jax.grad(log_joint)))(jnp.asarray(z)))
    assert_mean(slope, np.zeros(z.shape[1]))
    centred = z - z.mean(0)
    assert_mean(centred[:, :, None] * slope[:, None], -np.eye(z.shape[1]))


def test_slcp_reference_by_another_way():
    """Particles in all five dimensions, which know nothing of the structure."""
    task = SLCP()
    x = task.observation(1)

    def log_likelihood(z, x):
        return task.log_likelihood(6 * jax.scipy.stats.norm.cdf(z) - 3, x)

    n = 1_000
    other = 6 * stats.norm.cdf(sampling.tempered(jax.random.key(0), log_likelihood, 5, x, n)) - 3
    ours = task.reference(jax.random.key(1), x, n)
    for sign in (1, -1):  # each mode's mass and moments
        for values in (
            [a[:, 2] * a[:, 3] * sign > 0 for a in (ours, other)],
            [np.abs(a) for a in (ours, other)],
            [a**2 for a in (ours, other)],
            [a[:, :1] * a[:, 1:2] * a[:, 4:] for a in (ours, other)],
        ):
            first, second = (np.asarray(v, float).reshape(n, -1) for v in values)
            error = np.sqrt((first.var(0) + second.var(0)) / n)
            assert np.all(np.abs(first.mean(0) - second.mean(0)) < 5 * error)


def test_distractors_do_not_change_the_reference():
    task = SLCPDistractors()
    truth = SLCP().reference(jax.random.key(2), task.observation(0)[task.places], MANY)
    np.testing.assert_array_equal(reference(task, 0), truth)


def test_an_observation_that_no_parameter_gives():
    with pytest.raises(RuntimeError, match=r"^reference: no proposal"):
        TASKS["two_moons"]().reference(jax.random.key(0), np.array([5.0, 5.0]), 10)
