"""Likelihoods where the truth is known: Gaussian mixtures on R^d, chains, and both at once.

With the exact score all three estimates give log q_0; with a wrong one the bound falls short by
∫ E Φ dτ, and Feynman–Kac gives the density of the generative process that the score defines.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from scipy.integrate import solve_ivp

import dmm
from dmm.processes.linear import solve
from table import assert_mean, line_process, matrix_chain

x64 = pytest.mark.usefixtures("x64")


# --- Data with known laws ------------------------------------------------------------------------


def cholesky(a):
    """Of a 1 × 1 or 2 × 2 matrix, by hand: LAPACK is slow on many small ones."""
    first = jnp.sqrt(a[0, 0])
    if len(a) == 1:
        return first.reshape(1, 1)
    cross = a[1, 0] / first
    second = jnp.sqrt(a[1, 1] - cross**2)
    return jnp.stack([first, jnp.zeros_like(first), cross, second]).reshape(2, 2)


class Mixture(eqx.Module):
    """Σ_i w_i N(μ_i, v_i I) on R^d, and its noised law under any linear diffusion."""

    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    def log_prob(self, x):
        return self.noised(np.ones(1), np.zeros((1, 1)), x.reshape(1, -1))

    def log_marginal(self, p, x, tau):
        m, r = p.kernel(tau)
        return self.noised(m, r @ r.T, x.reshape(p.copies, -1))

    def noised(self, m, covariance, x):
        """The law of m x_0 + N(0, covariance), copies along the first axis."""

        def component(weight, mean, variance):
            total = jnp.asarray(covariance) + variance * m[:, None] * m[None, :]
            root = cholesky(total)
            z = solve(root) @ (x - m[:, None] * mean[None, :])
            volume = x.shape[1] * jnp.sum(jnp.log(jnp.diagonal(root)))
            return jnp.log(weight) - 0.5 * jnp.sum(z**2) - volume

        logs = jax.vmap(component)(*map(jnp.asarray, (self.weights, self.means, self.variances)))
        return jax.nn.logsumexp(logs) - 0.5 * x.size * math.log(2 * math.pi)


LINE = Mixture(np.array([0.3, 0.7]), np.array([[-1.0], [0.8]]), np.array([0.05, 0.3]))
PLANE = Mixture(
    np.array([0.2, 0.5, 0.3]),
    np.array([[-1.0, 0.2], [0.5, 0.9], [0.7, -1.1]]),
    np.array([0.1, 0.3, 0.05]),
)
GAUSSIAN = Mixture(np.ones(1), np.array([[0.4]]), np.array([0.5]))
SHARES = np.array([0.1, 0.4, 0.3, 0.2])


class Case(NamedTuple):
    """A process, the law of its noised data, points to try and log q_0 at them."""

    process: Any
    log_marginal: Callable  # (x, τ)
    points: list
    truth: list
    start: float = 1e-5  # τ_min, in horizons

    def score(self, x, tau, offset=None):
        """The exact score, frozen below τ_min; with an offset to log β, a wrong one."""
        tau = jnp.maximum(tau, self.schedule.tau_min)

        def log_beta(y):
            return self.log_marginal(y, tau) + (0.0 if offset is None else offset(y))

        return self.process.score(log_beta, x)

    @property
    def schedule(self):
        return dmm.Geometric(self.start * self.process.horizon, self.process.horizon)


def on_line(kind, mixture, points, **kwargs):
    p = line_process(kind, size=mixture.means.shape[1], **kwargs)
    points = [jnp.asarray(point) for point in points]

    def log_marginal(x, tau):
        return mixture.log_marginal(p, x, tau)

    return Case(p, log_marginal, points, [mixture.log_prob(x) for x in points])


def on_chain():
    p = matrix_chain()

    def log_marginal(x, tau):
        return jnp.log((jnp.asarray(SHARES) @ p.transitions(tau))[x])

    return Case(p, log_marginal, [jnp.int32(0), jnp.int32(3)], list(np.log(SHARES[[0, 3]])))


def on_both():
    """A state k with probability p_k, and a number N(μ_k, 0.2) that depends on it."""
    chain, line = matrix_chain(horizon=8.0), line_process()
    p, centres = dmm.ProductProcess(chain, line), np.array([-1.0, 0.0, 0.5, 1.5])

    def component(k, y, tau):
        return Mixture(np.ones(1), centres[k].reshape(1, 1), np.array([0.2])).log_marginal(
            line, y, tau
        )

    def log_marginal(x, tau):
        moved = jnp.log(chain.transitions(p.speeds[0] * tau)[:, x[0]])
        normal = jnp.stack([component(k, x[1], tau) for k in range(4)])
        return jax.nn.logsumexp(jnp.log(jnp.asarray(SHARES)) + moved + normal)

    points = [(jnp.int32(1), jnp.array([0.3])), (jnp.int32(3), jnp.array([1.2]))]

    def normal(k, y):
        return -0.5 * (y - centres[k]) ** 2 / 0.2 - 0.5 * math.log(2 * math.pi * 0.2)

    truth = [math.log(SHARES[int(k)]) + float(normal(int(k), y[0])) for k, y in points]
    return Case(p, log_marginal, points, truth)


def on_product(horizon=10.0):
    """Two independent mixtures, one noised by OU and one by damping, at different speeds."""
    slow = line_process(horizon=horizon)
    damped = line_process(dmm.CriticallyDamped, horizon=0.8 * horizon)
    p = dmm.ProductProcess(slow, damped)

    def log_marginal(x, tau):
        return LINE.log_marginal(slow, x[0], p.speeds[0] * tau) + GAUSSIAN.log_marginal(
            damped, x[1], p.speeds[1] * tau
        )

    points = [(jnp.array([0.5]), jnp.array([-0.3]))]
    return Case(
        p, log_marginal, points, [LINE.log_prob(x) + GAUSSIAN.log_prob(y) for x, y in points]
    )


CASES = {
    "ou": lambda: on_line(dmm.OrnsteinUhlenbeck, LINE, [[-1.2], [0.1], [0.9]]),
    "ou-plane": lambda: on_line(dmm.OrnsteinUhlenbeck, PLANE, [[0.4, 0.7], [-0.9, -0.2]]),
    "brownian": lambda: on_line(dmm.Brownian, LINE, [[-1.2], [0.9]]),
    "damped": lambda: on_line(dmm.CriticallyDamped, LINE, [[-1.2], [0.9]]),
    "chain": on_chain,
    "chain-ou": on_both,
    "ou-damped": on_product,
}


def bounds(case, *, draws=256, offset=None):
    """Estimates of the bound at a point, one a key."""

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def estimate(key, x0):
        def score(x, tau):
            return case.score(x, tau, offset)

        return dmm.elbo(case.process, score, case.schedule, key, x0, draws=draws)

    return estimate


# --- The bound -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_bound_is_tight_for_the_exact_score(name):
    """log q_0 at every point, in float32: within 5 standard errors of 64 estimates and 0.005 for
    what a finite horizon and a frozen score below τ_min leave. A velocity's entropy is included."""
    case = CASES[name]()
    estimate = bounds(case)
    for x0, truth in zip(case.points, case.truth, strict=True):
        values = estimate(jax.random.split(jax.random.key(0), 64), x0)
        assert_mean(values, float(truth), rounding=0.005)
        assert np.std(values) < 0.8, (
            "256 draws ought to be quieter: 0.55 with a velocity, else 0.35"
        )


def missing(case, loss):
    """∫ loss dτ from 0 to the horizon; with a frozen score the integrand has a corner at τ_min."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    total, corner = 0.0, float(case.schedule.tau_min)
    for low, high in ((1e-6, corner), (corner, case.process.horizon)):
        taus = low * (high / low) ** ((nodes + 1) / 2)
        losses = np.asarray(jax.jit(jax.vmap(loss))(jnp.asarray(taus)))
        total += math.log(high / low) / 2 * np.sum(weights * taus * losses)
    return total


def mean_phi(case, x, tau, offset):
    """q_τ(x) Φ between the true score and the one in use."""
    truth = case.process.mean(case.process.score(lambda y: case.log_marginal(y, tau), x))
    used = case.score(x, tau, offset)
    return jnp.exp(case.log_marginal(x, tau)) * case.process.phi(x, truth, used)


@x64
def test_bound_of_a_wrong_score_falls_short_by_phi_on_the_line():
    """The mean gap over the data is ∫ E Φ dτ: 0.48 here for s + 0.3, a score frozen below τ_min =
    0.1 included (which without its own integral would leave 0.3). By quadrature, against 2,048
    data points, 5 standard errors. The truth's own mean is taken over the same points."""
    case = CASES["ou"]()._replace(start=0.01)
    n, grid = 2048, jnp.linspace(-8.0, 8.0, 321)

    def offset(x):
        return 0.3 * jnp.sum(x)

    def loss(tau):
        return 0.05 * jnp.sum(jax.vmap(lambda x: mean_phi(case, x, tau, offset))(grid[:, None]))

    key, component_key, noise_key = jax.random.split(jax.random.key(1), 3)
    which = jax.random.categorical(component_key, jnp.log(LINE.weights), shape=(n,))
    deviation = np.sqrt(LINE.variances)[which][:, None]
    data = jnp.asarray(LINE.means)[which] + deviation * jax.random.normal(noise_key, (n, 1))

    @jax.jit
    @jax.vmap
    def gap(key, x0):
        def score(x, tau):
            return case.score(x, tau, offset)

        bound = dmm.elbo(case.process, score, case.schedule, key, x0, draws=64)
        return LINE.log_prob(x0) - bound

    gaps = gap(jax.random.split(key, n), data)
    assert_mean(gaps, missing(case, loss), rounding=1e-3)
    assert np.std(gaps) / n**0.5 < 0.02, "too noisy to show anything"


@x64
def test_bound_of_a_wrong_score_falls_short_by_phi_on_a_chain():
    """The same with exact sums, over the data law itself."""
    case = on_chain()._replace(start=0.03)
    states = jnp.arange(4, dtype=jnp.int32)

    def offset(x):
        return jnp.asarray([0.0, 0.8, -0.6, 0.4])[x]

    def loss(tau):
        return jnp.sum(jax.vmap(lambda x: mean_phi(case, x, tau, offset))(states))

    estimate, keys = bounds(case, offset=offset), jax.random.split(jax.random.key(2), 128)
    values = sum(
        share * np.asarray(estimate(keys, x)) for share, x in zip(SHARES, states, strict=True)
    )
    short = missing(case, loss)
    assert short > 0.2
    assert_mean(math.fsum(SHARES * np.log(SHARES)) - values, short, rounding=2e-3)


@x64
def test_bound_lies_below_the_likelihood():
    """Elbo < log p for the process that a poor score generates, p known by its moments: by more
    than 5 standard errors of 256 estimates, at every point."""
    model = Linear(0.2, 1.0)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def estimate(key, x):
        return dmm.elbo(model.process, model.score, model.schedule, key, x, draws=256)

    for x in (-0.8, 0.5, 1.5):
        values = estimate(jax.random.split(jax.random.key(3), 256), jnp.array([x]))
        gap = model.log_density(x) - np.mean(values)
        assert 5 * np.std(values) / 16 < gap < 1.0


# --- The probability flow ------------------------------------------------------------------------


FLOWS = {
    # At the default horizon 10 the law's mean is e^{−5} of the data's, not 0: 3e-3 nats a point.
    # What is tested is the flow, so the horizon here leaves 1e-6.
    "ou": (lambda: on_line(dmm.OrnsteinUhlenbeck, LINE, [[-1.2], [0.9]], horizon=24.0), 100),
    "ou-plane": (
        lambda: on_line(dmm.OrnsteinUhlenbeck, PLANE, [[0.4, 0.7], [-0.9, -0.2]], horizon=24.0),
        100,
    ),
    # Exact at any horizon for unit data, so no mixture.
    "brownian": (
        lambda: on_line(
            dmm.Brownian, Mixture(np.ones(1), np.zeros((1, 1)), np.ones(1)), [[-1.2], [0.9]]
        ),
        100,
    ),
    # Near the reference the flow turns (x, v) at unit speed: even steps, not geometric ones.
    "damped": (lambda: on_line(dmm.CriticallyDamped, LINE, [[-1.2], [0.9]], horizon=16.0), 200),
    "ou-damped": (lambda: on_product(horizon=24.0), 300),
}


def likelihood(name):
    """A case, and its compiled flow likelihood of a state."""
    make, steps = FLOWS[name]
    case = make()
    schedule = case.schedule
    if "damped" in name:
        schedule = dmm.Linear(2 * case.process.horizon)

    def log_likelihood(x, key=None):
        return dmm.flow_log_likelihood(case.process, case.score, schedule, x, steps=steps, key=key)

    return case, log_likelihood


@pytest.mark.parametrize("name", FLOWS)
@x64
def test_flow_likelihood_is_the_truth(name):
    """Within 1e-4 of log q_0, and of the density of a drawn velocity where there is one."""
    case, log_likelihood = likelihood(name)
    for x0, truth in zip(case.points, case.truth, strict=True):
        x, added = case.process.lift(jax.random.key(4), x0)
        np.testing.assert_allclose(jax.jit(log_likelihood)(x), truth + added, atol=1e-4)


@x64
def test_flow_likelihood_is_differentiable():
    """Its gradient in x is the score of q_0, through the flow: to 1e-3."""
    case, log_likelihood = likelihood("ou-plane")
    gradient, score = jax.jit(jax.grad(log_likelihood)), jax.jit(jax.grad(PLANE.log_prob))
    for x in case.points:
        np.testing.assert_allclose(gradient(x), score(x), atol=1e-3)


@x64
def test_flow_likelihood_by_probes_has_the_right_mean():
    """Hutchinson's divergence: 5 standard errors over 256 keys, and not the exact one."""
    case, log_likelihood = likelihood("ou-plane")
    x, truth = case.points[0], case.truth[0]
    keys = jax.random.split(jax.random.key(5), 256)
    values = jax.jit(jax.vmap(lambda key: log_likelihood(x, key)))(keys)
    assert np.std(values) > 1e-3
    assert_mean(values, truth, rounding=1e-3)


def test_flow_likelihood_in_single_precision():
    """Within 2e-3: what float32 leaves of 100 steps of a derivative."""
    case, log_likelihood = likelihood("ou")
    for x, truth in zip(case.points, case.truth, strict=True):
        np.testing.assert_allclose(jax.jit(log_likelihood)(x), truth, atol=2e-3)


def test_a_chain_has_no_flow():
    case = on_chain()
    with pytest.raises(TypeError, match="no probability flow"):
        dmm.flow_log_likelihood(case.process, case.score, case.schedule, case.points[0])


# --- Feynman–Kac ---------------------------------------------------------------------------------


class Linear:
    """OU over a short horizon, the score −k(x − c): its generative process is Gaussian."""

    def __init__(self, slope, centre, horizon=2.0):
        self.process = line_process()
        self.schedule = dmm.Geometric(1e-3, horizon)
        self.horizon = horizon
        self.slope, self.centre = slope, centre

    def score(self, x, tau):
        return -self.slope * (x - self.centre)

    def log_density(self, x):
        """Of the generative SDE from N(0, 1) at the horizon to 0: dX = (X/2 + s) dτ + dB."""
        rate = 0.5 - self.slope

        def slopes(_, state):
            return [rate * state[0] + self.slope * self.centre, 2 * rate * state[1] + 1]

        ends = solve_ivp(slopes, (0, self.horizon), [0.0, 1.0], rtol=1e-11, atol=1e-11).y[:, -1]
        return -0.5 * (x - ends[0]) ** 2 / ends[1] - 0.5 * math.log(2 * math.pi * ends[1])


@x64
def test_feynman_kac_gives_the_density_of_the_generative_process():
    """For a wrong linear score: p by its moments. 8 estimates of 4,096 particles; 5 standard errors
    and 1% for 200 first-order steps."""
    model = Linear(0.7, 0.1)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def estimate(key, x):
        return dmm.feynman_kac(
            model.process, model.score, model.schedule, key, x, steps=200, particles=4096
        )

    for x in (-0.8, 0.5):
        values = estimate(jax.random.split(jax.random.key(6), 8), jnp.array([x]))
        assert_mean(jnp.exp(values - model.log_density(x)), 1.0, rounding=0.01)


@x64
def test_feynman_kac_with_a_nonlinear_score_agrees_with_the_truth():
    """Mixture data and the exact score, so that c varies along the path. At the horizon 4 the
    reference is not q_T yet, and p(x) = q_0(x) E[(π/q_T)(X_T) | X_0 = x], by Gauss–Hermite."""
    process, schedule = line_process(), dmm.Geometric(1e-3, 4.0)
    soft = Mixture(np.array([0.4, 0.6]), np.array([[-0.7], [0.6]]), np.array([0.4, 0.5]))

    def marginal(x, tau):
        return soft.log_marginal(process, x, jnp.maximum(tau, 1e-3))

    def score(x, tau):
        return jax.grad(lambda y: marginal(y, tau))(x)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def estimate(key, x):
        return dmm.feynman_kac(process, score, schedule, key, x, steps=150, particles=1024)

    for at in (-0.5, 0.8):
        x = jnp.array([at])
        values = estimate(jax.random.split(jax.random.key(7), 8), x)
        nodes, weights = np.polynomial.hermite_e.hermegauss(40)
        m, r = process.kernel(4.0)
        ends = (m[0] * x[0] + r[0, 0] * jnp.asarray(nodes)).reshape(-1, 1)
        ratio = jax.vmap(
            lambda y: jnp.exp(process.reference.log_prob(y) - marginal(y, jnp.asarray(4.0)))
        )(ends)
        truth = soft.log_prob(x) + jnp.log(jnp.sum(weights * ratio) / weights.sum())
        assert_mean(jnp.exp(values - truth), 1.0, rounding=0.02)


@x64
def test_feynman_kac_on_a_chain():
    """The law of a generative chain with frozen wrong rates is a matrix exponential."""
    p = matrix_chain()

    def log_beta(x):
        return jnp.asarray([0.2, -0.3, 0.5, 0.0])[x]

    def score(x, tau):
        return p.score(log_beta, x)

    schedule, states = dmm.ConstantRate(1.5), jnp.arange(4, dtype=jnp.int32)
    rates = np.asarray(jax.vmap(p.reverse(lambda x: score(x, 0.0)).rates)(states))
    rates = rates - np.diag(rates.sum(1))
    truth = np.asarray(p.reference.probabilities) @ scipy.linalg.expm(1.5 * rates)

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def estimate(key, x):
        return dmm.feynman_kac(p, score, schedule, key, x, steps=100, particles=1024)

    for state in (0, 2):
        values = estimate(jax.random.split(jax.random.key(8), 8), states[state])
        assert_mean(jnp.exp(values) / truth[state], 1.0, rounding=0.02)
