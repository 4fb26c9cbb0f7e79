"""Objectives: three losses with one gradient, and their discrete-time relatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import dmm
from table import DENSE, FOUR, assert_mean, feeding, fitted_order, line_process, over

x64 = pytest.mark.usefixtures("x64")
DRAWS = 2**14
SHARE = 0.3  # data are a row's two points, with probabilities 0.3 and 0.7


# --- Implicit, denoising, explicit ---------------------------------------------------------------


def exact_losses(row, theta, tau):
    """Expectations of the three losses over data and noise, for β = exp(log_law(θ))."""
    p, log_q = row.process, row.log_mixture(SHARE)

    def score_fn(x):
        return p.score(row.log_law(theta), x)

    def phi(log_density, x):
        return p.phi(x, p.mean(p.score(log_density, x)), score_fn(x))

    def under(log_density, f):
        return row.integrate(lambda x: jnp.exp(log_density(x)) * f(x))

    def marginal(x):
        return log_q(x, tau)

    given = [lambda x, x0=x0: p.log_transition(x, x0, tau) for x0 in row.starts]
    denoising = [under(log_density, functools.partial(phi, log_density)) for log_density in given]
    return {
        "implicit": under(marginal, lambda x: p.implicit(score_fn, x)),
        "explicit": under(marginal, functools.partial(phi, marginal)),
        "denoising": SHARE * denoising[0] + (1 - SHARE) * denoising[1],
    }


@functools.cache
def everything(row):
    """θ ↦ losses, their gradients, and the slopes of the entropies; compiled once a row."""
    p, log_q, tau = row.process, row.log_mixture(SHARE), jnp.asarray(row.tau)

    def negentropy(tau):
        return row.integrate(lambda x: jnp.exp(log_q(x, tau)) * log_q(x, tau))

    def conditional_entropy(tau):
        first, second = (p.entropy(x0, tau) for x0 in row.starts)
        return SHARE * first + (1 - SHARE) * second

    @jax.jit
    def compiled(theta):
        losses = exact_losses(row, theta, tau)
        gradients = jax.jacrev(lambda theta: exact_losses(row, theta, tau))(theta)
        return losses, gradients, jax.grad(negentropy)(tau), jax.grad(conditional_entropy)(tau)

    return compiled


@over(DENSE)
@x64
def test_losses_have_one_gradient_and_known_differences(row):
    """In all coefficients of log β, by quadrature. And, whatever β: implicit − explicit is
    d/dτ E log q_τ(x), implicit − denoising is d/dτ E log q_τ(x | x_0), minus the entropy's."""
    losses, gradients, slope, conditional_slope = everything(row)(row.theta(11))
    for name in ("explicit", "denoising"):
        for leaf, other in zip(
            jax.tree.leaves(gradients["implicit"]), jax.tree.leaves(gradients[name]), strict=True
        ):
            assert np.max(np.abs(leaf)) > 1e-4
            np.testing.assert_allclose(leaf, other, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(losses["implicit"] - losses["explicit"], slope, rtol=1e-6)
    difference = losses["implicit"] - losses["denoising"]
    np.testing.assert_allclose(difference, -conditional_slope, rtol=1e-6, atol=1e-8)


@over(DENSE)
def test_objectives_are_unbiased(row):
    """The public functions, over 2¹⁴ keys in float32, against quadrature; 5 standard errors."""
    p, theta, tau = row.process, row.theta(12), jnp.asarray(row.tau)

    def score_fn(x, tau):
        return p.score(row.log_law(theta), x)

    log_q = row.log_mixture(SHARE)
    objectives = {
        "denoising": dmm.denoising,
        "implicit": dmm.implicit,
        "explicit": dmm.Explicit(log_q),
    }

    @jax.jit
    @jax.vmap
    def draws(key):
        data_key, key = jax.random.split(key)
        first = jax.random.bernoulli(data_key, SHARE)
        x0 = jax.tree.map(lambda a, b: jnp.where(first, a, b), *row.starts)
        return {name: f(p, score_fn, key, x0, tau) for name, f in objectives.items()}

    values = draws(jax.random.split(jax.random.key(0), DRAWS))
    with jax.enable_x64(True):
        truth = everything(row)(row.theta(12))[0]
    for name in objectives:
        assert_mean(values[name], truth[name], rounding=1e-4)


@x64
def test_implicit_is_exact_below_a_size_and_a_probe_above():
    """The same draw, the exact divergence or one probe of it: equal in mean, not in value."""
    row = next(row for row in DENSE if row.name == "ou-plane")
    p, theta, x0 = row.process, row.theta(13), row.starts[0]

    def score_fn(x, tau):
        return p.score(row.log_law(theta), x)

    @jax.jit
    @jax.vmap
    def both(key):
        exact, probed = dmm.Implicit(exact_below=2), dmm.Implicit(exact_below=1)
        return exact(p, score_fn, key, x0, 1.0), probed(p, score_fn, key, x0, 1.0)

    exact, probed = both(jax.random.split(jax.random.key(1), DRAWS))
    assert_mean(probed - exact, 0.0)
    assert jnp.std(probed - exact) > 1e-3


# --- Discrete time -------------------------------------------------------------------------------


@x64
def test_natural_discretisation_is_implicit_to_first_order():
    """Theorem 3 on a chain, all exact: (1/γ) E log q_γ(x_t | x_s)/p_γ(x_s | x_t) with both kernels
    matrix exponentials, against the implicit loss at s. The difference is O(γ), fitted."""
    row = next(row for row in DENSE if row.name == "chain")
    p, score_fn = row.process, lambda x: row.process.score(row.log_law(row.theta(14)), x)

    @jax.jit
    @jax.vmap
    def at(x):
        rates = p.reverse(score_fn).rates(x)
        return rates, jnp.exp(row.log_mixture(SHARE)(x, 0.5)), p.implicit(score_fn, x)

    generative, law, integrand = map(np.asarray, at(jnp.arange(4, dtype=jnp.int32)))
    generative = generative - np.diag(generative.sum(1))
    implicit = np.dot(law, integrand)

    def discrete(gamma):
        forward, back = (scipy.linalg.expm(gamma * b) for b in (np.array(FOUR), generative))
        return np.sum(law[:, None] * forward * np.log(forward / back.T)) / gamma

    gammas = np.array([0.04, 0.02, 0.01, 0.005])
    errors = np.array([discrete(gamma) - implicit for gamma in gammas])
    assert 0.95 < fitted_order(gammas, errors) < 1.05


def gradient_gaps(discrete, implicit, ratios):
    """Gaps between the gradients of the discrete-time losses and of the implicit one."""
    truth = np.asarray(implicit)
    return [float(np.linalg.norm(np.asarray(discrete(ratio)) - truth)) for ratio in ratios]


@x64
def test_discrete_time_objective_approaches_the_implicit_one_on_the_line():
    """`DiscreteTime` on OU as its step shrinks: gradients in a score's parameters differ by O(γ).
    Expectations by Gauss–Hermite over the two normals the objective draws, so without noise."""
    p, tau = line_process(), jnp.asarray(0.8)
    x0, parameters = jnp.array([0.6]), jnp.array([0.7, -0.4])

    def score_fn(parameters):
        return lambda x, tau: -parameters[0] * x + parameters[1] * jnp.sin(x)

    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def discrete(ratio):
        def value(parameters, z, w):
            with feeding(normal=[z, w]):
                return dmm.DiscreteTime(ratio)(p, score_fn(parameters), jax.random.key(0), x0, tau)

        def mean(parameters):
            grid = jax.vmap(jax.vmap(value, (None, None, 0)), (None, 0, None))
            values = grid(parameters, jnp.asarray(nodes), jnp.asarray(nodes))
            return jnp.sum(weights[:, None] * weights[None, :] * values)

        return jax.jit(jax.grad(mean))(parameters)

    def implicit(parameters):
        def value(z):
            with feeding(normal=[z]):
                return dmm.implicit(p, score_fn(parameters), jax.random.key(0), x0, tau)

        return jnp.sum(weights * jax.vmap(value)(jnp.asarray(nodes)))

    ratios = [0.1, 0.05, 0.025]
    gaps = gradient_gaps(discrete, jax.jit(jax.grad(implicit))(parameters), ratios)
    assert 0.9 < fitted_order(ratios, gaps) < 1.3
    assert gaps[-1] < 0.05


@x64
def test_discrete_time_objective_approaches_the_implicit_one_on_a_chain():
    """The same on four states, the two draws of the objective enumerated."""
    row = next(row for row in DENSE if row.name == "chain")
    p, tau, x0 = row.process, jnp.asarray(0.8), row.starts[0]
    states = jnp.arange(4, dtype=jnp.int32)

    def score_fn(theta):
        return lambda x, tau: p.score(row.log_law(theta), x)

    def discrete(ratio):
        gamma = ratio * tau

        def value(theta, earlier, later):
            states = [earlier, later]
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(dmm.processes.chain, "draw_states", lambda *_: states.pop(0))
                loss = dmm.DiscreteTime(ratio)(p, score_fn(theta), jax.random.key(0), x0, tau)
            log_weight = p.log_transition(earlier, x0, tau) + p.log_transition(
                later, earlier, gamma
            )
            return jnp.exp(log_weight) * loss

        def mean(theta):
            grid = jax.vmap(jax.vmap(value, (None, None, 0)), (None, 0, None))
            return jnp.sum(grid(theta, states, states))

        return jax.jit(jax.grad(mean))(theta)["height"]

    def implicit(theta):
        def value(x):
            weight = jnp.exp(p.log_transition(x, x0, tau))
            return weight * p.implicit(lambda y: score_fn(theta)(y, tau), x)

        return jnp.sum(jax.vmap(value)(states))

    theta = row.theta(15)
    ratios = [0.1, 0.05, 0.025]
    gaps = gradient_gaps(discrete, jax.jit(jax.grad(implicit))(theta)["height"], ratios)
    assert 0.9 < fitted_order(ratios, gaps) < 1.3
    assert gaps[-1] < 0.05


def test_discrete_time_objective_of_a_product_is_that_of_the_joint_process():
    """Two coordinates, apart or together, from the same normals."""
    joint, single = line_process(size=2), line_process()
    pair = dmm.ProductProcess(single, single)

    def split(v):
        return (v[:1], v[1:])

    def score(x, tau):
        return -jnp.tanh(x)

    x0, z = jnp.array([0.4, -0.7]), jnp.array([[0.3, -1.2], [0.9, 0.1]])
    objective = dmm.DiscreteTime()
    with feeding(normal=[z[0], z[1]]):
        together = objective(joint, score, jax.random.key(0), x0, jnp.asarray(0.5))
    with feeding(normal=[z[0, :1], z[0, 1:], z[1, :1], z[1, 1:]]):
        apart = objective(
            pair,
            lambda x, tau: tuple(score(y, tau) for y in x),
            jax.random.key(0),
            split(x0),
            jnp.asarray(0.5),
        )
    np.testing.assert_allclose(apart, together, rtol=1e-5)


@x64
def test_autoencoder_is_the_reconstruction_error():
    """Vincent's case: −log p(x_0 | x) is |x_0 − f(x)|²/2τ plus a constant, f the one-step mean."""
    p, tau, x0 = line_process(dmm.Brownian, size=2), 0.4, jnp.array([0.5, -1.0])

    def score(x, tau):
        return -jnp.sin(x)

    z = jnp.array([0.3, 1.1])
    with feeding(normal=[z]):
        loss = dmm.autoencoder(p, score, jax.random.key(0), x0, tau)
    x = x0 + np.sqrt(tau) * z
    reconstruction = x + tau * score(x, tau)
    truth = jnp.sum((x0 - reconstruction) ** 2) / (2 * tau) + np.log(2 * np.pi * tau)
    np.testing.assert_allclose(loss, truth, rtol=1e-12)


@x64
def test_autoencoder_is_implicit_to_first_order():
    """Appendix I: for data with a density, ∇J_DAE/τ approaches ∇J_ISM at q_τ as τ falls."""
    p, parameters = line_process(), jnp.array([0.7, -0.4])
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()

    def score_fn(parameters):
        return lambda x, tau: -parameters[0] * x + parameters[1] * jnp.sin(x)

    def gradient(objective, tau):
        def value(parameters, a, z):
            x0 = (0.3 + 0.6 * a).reshape(1)  # data N(0.3, 0.36)
            with feeding(normal=[z]):
                return objective(p, score_fn(parameters), jax.random.key(0), x0, tau)

        def mean(parameters):
            grid = jax.vmap(jax.vmap(value, (None, None, 0)), (None, 0, None))
            values = grid(parameters, jnp.asarray(nodes), jnp.asarray(nodes))
            return jnp.sum(weights[:, None] * weights[None, :] * values)

        return np.asarray(jax.jit(jax.grad(mean))(parameters))

    taus = [0.1, 0.05, 0.025]
    gaps = [
        np.linalg.norm(gradient(dmm.autoencoder, tau) / tau - gradient(dmm.implicit, tau))
        for tau in taus
    ]
    assert 0.9 < fitted_order(taus, gaps) < 1.3
    assert gaps[-1] < 0.1
