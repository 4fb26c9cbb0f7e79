"""Simplices, boxes and spheres end to end: reverse process, samplers, baselines, training.

The exact draws behind them are tested in `test_lineages`.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln
from scipy import stats
from scipy.linalg import expm

import dmm
from dmm import calculus
from dmm.datasets import DirichletMixture
from table import assert_mean

MUTATION = (1.5, 0.7, 4.0)


def some_log_beta(x):
    return (
        jnp.sin(2 * x[0] - x[2])
        + 0.3 * x[1] ** 2
        + jnp.sum(jnp.array([0.8, -0.2, 1.1]) * jnp.log(x))
    )


# --- The paper's formulas ------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
def test_reverse_drift_in_three_forms():
    """By the family, by the paper's r_ij, and by lineages: equal to rounding at random points."""
    process = dmm.WrightFisher(dmm.Simplex(3), MUTATION)
    for seed in range(5):
        x = process.reference.sample(jax.random.key(seed))
        lineages = 5 * jax.random.uniform(jax.random.key(100 + seed), (3,))
        score = (process.rates(x) - 1 + lineages) / x
        drift = process.reverse(lambda _, s=score: s).drift(x)
        r = process.reverse_rates(x, score)
        np.testing.assert_allclose(r.sum(1), 0.0, atol=1e-11)
        np.testing.assert_allclose(x @ r, drift, rtol=1e-10, atol=1e-12)
        more = process.rates(x) + 2 * lineages
        np.testing.assert_allclose(0.5 * (more - more.sum() * x), drift, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_implicit_loss_is_the_papers_with_its_constant():
    """Σ(δ_ij − p_j)∂_j s_i + ½Σ(δ_ij/p_j − 1)s_i s_j + (1 − N)Σ s_j − ½N(N − 1) + ½(N − 1)|ϑ|."""
    process = dmm.WrightFisher(dmm.Simplex(3), MUTATION)

    def s(p):
        return p * jax.grad(some_log_beta)(p)

    def papers(p):
        jacobian, n = jax.jacobian(s)(p), 3
        first = jnp.sum((jnp.eye(n) - p[None]) * jacobian)
        second = 0.5 * (jnp.sum(s(p) ** 2 / p) - jnp.sum(s(p)) ** 2)
        constant = -0.5 * n * (n - 1) + 0.5 * (n - 1) * sum(MUTATION)
        return first + second + (1 - n) * jnp.sum(s(p)) + constant

    for seed in range(5):
        x = process.reference.sample(jax.random.key(seed))
        ours = process.implicit(lambda y: process.score(some_log_beta, y), x)
        np.testing.assert_allclose(ours, papers(x), rtol=1e-8)
        np.testing.assert_allclose(ours, calculus.implicit(process, some_log_beta, x), rtol=1e-8)


# --- Samplers: a law that stays a known mixture -------------------------------------------------


class Mixture:
    """Data of law Beta(ϑ + l): at τ a mixture over lineages that are left of l, a finite chain."""

    def __init__(self, mutation, start):
        self.process = dmm.WrightFisher(dmm.Simplex(2), mutation)
        states = list(itertools.product(*(range(k + 1) for k in start)))
        index = {state: i for i, state in enumerate(states)}
        rates = np.zeros((len(states), len(states)))
        for state, i in index.items():
            pace = (sum(state) + sum(mutation) - 1) / 2
            for k in (0, 1):
                if state[k]:
                    fewer = (state[0] - (k == 0), state[1] - (k == 1))
                    rates[i, index[fewer]] = state[k] * pace
            rates[i, i] = -sum(state) * pace
        self.schedule = dmm.default_schedule(self.process)
        taus = np.geomspace(float(self.schedule.tau_min), self.process.horizon, 200)
        left = np.stack([expm(rates * tau)[index[tuple(start)]] for tau in taus])
        self.left, self.log_taus = jnp.asarray(np.maximum(left, 1e-30)), jnp.log(jnp.asarray(taus))
        self.shapes = jnp.asarray(np.array(states) + np.array(mutation))
        self.data = stats.beta(*(np.array(start) + np.array(mutation)))

    def score(self, x, tau):
        u = (jnp.log(tau) - self.log_taus[0]) / (self.log_taus[1] - self.log_taus[0])
        u = jnp.clip(u, 0, len(self.log_taus) - 1.001)
        i, share = u.astype(int), u - jnp.floor(u)
        log_weights = jnp.log((1 - share) * self.left[i] + share * self.left[i + 1])
        norms = gammaln(self.shapes.sum(1)) - gammaln(self.shapes).sum(1)
        logs = log_weights + norms + jnp.sum((self.shapes - 1) * jnp.log(x)[None], 1)
        return (jax.nn.softmax(logs) @ self.shapes - 1) / x

    def distance(self, sampler, steps, *, draws):
        """Kolmogorov's, of the first part of draws with the exact score."""

        def at(tau):
            return self.process.reverse(
                lambda x: self.score(x, jnp.maximum(tau, jnp.exp(self.log_taus[0])))
            )

        def one(key):
            start_key, key = jax.random.split(key)
            start = self.process.reference.sample(start_key)
            return dmm.simulate(key, sampler, at, start, self.schedule.grid(steps))[0]

        found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), draws))
        return stats.kstest(np.asarray(found, np.float64), self.data.cdf).statistic


def test_dirichlet_steps_are_of_second_order():
    """With 2¹⁵ draws Kolmogorov's distance is above 0.011 by chance once in 1000 times. Measured:
    0.035 at 12 steps and 0.008 at 25, where draws about a mean that noise does not move have 0.041,
    and Euler 0.050."""
    law = Mixture((1.5, 3.0), (12, 4))
    coarse, fine = (law.distance(dmm.DirichletStep(), n, draws=2**15) for n in (12, 25))
    assert fine < 0.018
    assert fine < 0.5 * coarse


@pytest.mark.parametrize("reflect", [False, True])
def test_heun_on_the_simplex(reflect):
    law = Mixture((1.5, 3.0), (12, 4))
    assert law.distance(dmm.Heun(reflect=reflect), 25, draws=2**15) < 0.018


# --- The baseline: noising by small steps ---------------------------------------------------------


@pytest.mark.parametrize("scheme", ["euler", "dirichlet"])
def test_small_steps_have_the_exact_moments(scheme):
    """Means and second moments at τ = 0.3 against exact draws, 200 steps, 2¹⁴ draws of each: five
    standard errors and 0.003 for the steps."""
    x0 = jnp.array([0.2, 0.3, 0.5])
    exact = dmm.WrightFisher(dmm.Simplex(3), MUTATION)
    steps = dmm.SimulatedWrightFisher(dmm.Simplex(3), MUTATION, substeps=200, scheme=scheme)
    keys = jax.random.split(jax.random.key(0), (2, 2**14))
    one, two = (
        np.asarray(jax.jit(jax.vmap(lambda key, p=p: p.draw(key, x0, 0.3)))(k))
        for p, k in zip((exact, steps), keys, strict=True)
    )
    pairs = [np.concatenate([x, x**2], 1) for x in (one, two)]
    assert_mean(pairs[1] - pairs[0], np.zeros(6), rounding=3e-3)


def test_small_steps_are_trained_by_the_implicit_objective():
    process = dmm.SimulatedWrightFisher(dmm.Simplex(3), substeps=5)
    data = np.random.default_rng(0).dirichlet([2.0, 3.0, 4.0], 64)
    model = dmm.fit(data, process=process, key=jax.random.key(0), steps=2, batch_size=8)
    assert np.all(np.isfinite(model.log_likelihood(data[:4], steps=4)))
    with pytest.raises(ValueError, match="objective: SimulatedWrightFisher"):
        dmm.fit(data, process=process, key=jax.random.key(0), objective=dmm.denoising)
    with pytest.raises(ValueError, match="scheme: expected"):
        dmm.SimulatedWrightFisher(dmm.Simplex(3), scheme="milstein")


# --- End to end -----------------------------------------------------------------------------------


class OnSphere:
    """Von Mises–Fisher law of concentration 5 about the first axis of S²."""

    def sample(self, key):
        up_key, turn_key = jax.random.split(key)
        u = jax.random.uniform(up_key)
        height = 1 + jnp.log(u + (1 - u) * jnp.exp(-10.0)) / 5
        turn = 2 * jnp.pi * jax.random.uniform(turn_key)
        across = jnp.sqrt(jnp.maximum(1 - height**2, 0.0))
        return jnp.stack([height, across * jnp.cos(turn), across * jnp.sin(turn)])

    def log_prob(self, x):
        return 5 * x[0] + jnp.log(5 / (4 * jnp.pi * jnp.sinh(5.0)))


class InBox:
    """Independent Beta laws, the second coordinate from −1 to 3."""

    def sample(self, key):
        draws = jax.random.beta(key, jnp.array([2.0, 5.0]), jnp.array([6.0, 1.5]))
        return jnp.array([0.0, -1.0]) + jnp.array([1.0, 4.0]) * jnp.clip(draws, 1e-6, 1 - 1e-6)

    def log_prob(self, x):
        y = (x - jnp.array([0.0, -1.0])) / jnp.array([1.0, 4.0])
        first, second = jnp.array([2.0, 5.0]), jnp.array([6.0, 1.5])
        return jnp.sum(jax.scipy.stats.beta.logpdf(y, first, second)) - jnp.log(4.0)


KNOWN = {
    "simplex": (DirichletMixture([[8.0, 2.0, 3.0], [1.5, 6.0, 2.0]]), dmm.Simplex(3)),
    "box": (InBox(), dmm.Box([0.0, -1.0], [1.0, 3.0])),
    "sphere": (OnSphere(), dmm.Sphere(2)),
}


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("name", KNOWN)
def test_training_finds_a_known_law(name):
    """Log-likelihood by flow within 0.05 nats of the truth on 500 points, the bound within 0.12
    below it (its standard error is under 0.03), samples inside with the data's means. An untrained
    model is 0.6 and more below."""
    truth, space = KNOWN[name]
    model = dmm.fit(
        dmm.Simulator(truth.sample),
        space=space,
        key=jax.random.key(0),
        steps=1500,
        batch_size=256,
        learning_rate=3e-3,
        network=lambda *shapes: dmm.MLP(*shapes, width=64, depth=3),
    )
    test = jax.vmap(truth.sample)(jax.random.split(jax.random.key(1), 500))
    log_truth = jax.vmap(truth.log_prob)(test)
    gap = model.log_likelihood(test, steps=40) - log_truth
    assert abs(float(gap.mean())) < 0.05
    bound = model.elbo(jax.random.key(2), test, draws=256) - log_truth
    assert -0.12 < float(bound.mean()) < 0.06
    samples = model.sample(jax.random.key(3), 2000, steps=30)
    assert bool(jnp.all(jax.vmap(space.contains)(samples)))
    data = jax.vmap(truth.sample)(jax.random.split(jax.random.key(4), 2000))
    assert_mean(samples - data, np.zeros(samples.shape[1]), rounding=0.01)


def test_likelihood_is_finite_near_the_boundary():
    """Of a network with random weights, where parts are as small as 10⁻²⁵."""
    space = dmm.Simplex(4)
    data = np.random.default_rng(0).dirichlet(np.full(4, 0.3), 64) + 1e-12
    data[0] = [1e-25, 1e-20, 0.5, 0.5]
    data /= data.sum(1, keepdims=True)
    model = dmm.fit(data, space=space, key=jax.random.key(0), steps=5, learning_rate=1e-2)
    assert np.all(np.isfinite(model.log_likelihood(data)))
    assert np.all(np.isfinite(model.elbo(jax.random.key(1), data, draws=8)))


# --- Points on a bound ----------------------------------------------------------------------------


def test_inset():
    box = dmm.Box([0.0, -1.0], [2.0, 1.0])
    moved = dmm.inset([[0.0, 0.5], [2.0, 1.0], [1.0, -0.9]], box, share=0.01)
    np.testing.assert_allclose(moved, [[0.02, 0.5], [1.98, 0.98], [1.0, -0.9]])
    box.check(moved)
    with pytest.raises(ValueError, match="row 0 lies outside"):
        dmm.inset([[3.0, 0.0]], box, share=0.01)
    with pytest.raises(ValueError, match="share: must lie"):
        dmm.inset([[1.0, 0.0]], box, share=0.0)
