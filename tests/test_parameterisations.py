"""Parameterisations: all speak of one score, and networks see and return numbers of order one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from table import TRACTABLE, assert_mean, over

KINDS = (dmm.OrnsteinUhlenbeck, dmm.Brownian, dmm.CriticallyDamped)
HEADS = (dmm.PredictNoise(), dmm.PredictData(), dmm.Preconditioned(), dmm.PredictScore())
TAUS = (1e-6, 1e-4, 1e-2, 0.3, 1.0, 3.0, 10.0)

kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
heads = pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)


def posterior(p, x, tau, mean=0.4, variance=0.25):
    """E[x_0 | x] and the score at x for data N(mean, variance), by linear algebra in float64."""
    m, r = (np.asarray(a, np.float64) for a in p.kernel(jnp.asarray(tau)))
    x = np.asarray(x, np.float64).reshape(len(m), -1)
    total = r @ r.T + variance * np.outer(m, m)
    weighted = np.linalg.solve(total, x - m[:, None] * mean)
    return mean + variance * m @ weighted, -weighted


def perfect_output(p, head, x, tau):
    """What the best network returns under each head, from the head's docstring."""
    x0, score = posterior(p, x, tau)
    m, r = (np.asarray(a, np.float64) for a in p.kernel(jnp.asarray(tau)))
    flat = np.asarray(x, np.float64).reshape(len(m), -1)
    if isinstance(head, dmm.PredictNoise):
        output = np.linalg.solve(r, flat - np.outer(m, x0))
    elif isinstance(head, dmm.PredictData):
        output = x0
    elif isinstance(head, dmm.PredictScore):
        output = score
    else:
        precision = np.linalg.inv(r @ r.T + np.outer(m, m))
        gain = np.diag(np.linalg.inv(r @ r.T) - precision)
        output = ((score + precision @ flat) / np.sqrt(gain)[:, None])[list(p.noisy)]
    return jnp.asarray(output.reshape(head.outputs(p, x).shape))


@kinds
@heads
@pytest.mark.usefixtures("x64")
def test_every_head_gives_the_score_of_the_posterior_mean(kind, head):
    """For Gaussian data, where the best output is known. Scores are compared through a (only the
    velocity's counts under damping); the references' solves lose digits as τ³ there."""
    p = kind(dmm.Euclidean(3))
    score = jax.jit(lambda output, x, tau: head.score(p, output, x, tau))
    for tau in (0.05, 0.7, 4.0):
        x = jax.random.normal(jax.random.key(0), p.space.shape)
        truth = posterior(p, x, tau)[1].reshape(x.shape)
        given = score(perfect_output(p, head, x, tau), x, jnp.asarray(tau))
        np.testing.assert_allclose(p.flux(x, given), p.flux(x, jnp.asarray(truth)), rtol=1e-8)


@kinds
def test_preconditioned_network_works_with_numbers_of_order_one(kind):
    """Over data N(0, 1), inputs and what the output should be have mean square 1 at every τ, in
    float32: within 5 standard errors over 2¹⁴ draws of 2 coordinates."""
    p, head = kind(dmm.Euclidean(2)), dmm.Preconditioned()

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def squares(key, tau):
        data_key, noise_key = jax.random.split(key)
        noised = p.noise(noise_key, jax.random.normal(data_key, (2,)), tau)
        zero = jnp.zeros_like(head.outputs(p, noised.x))
        # The head is affine in the output: undo it on the copies that noise drives.
        at_zero = head.score(p, zero, noised.x, tau)
        scale = head.score(p, zero + 1, noised.x, tau) - at_zero
        noisy = jnp.asarray(p.noisy)

        def rows(a):
            return a.reshape(p.copies, -1)[noisy]

        output = rows(noised.target - at_zero) / rows(scale)
        return head.inputs(p, noised.x, tau).ravel() ** 2, output.ravel() ** 2

    for tau in TAUS:
        for values in squares(jax.random.split(jax.random.key(1), 2**14), jnp.asarray(tau)):
            assert_mean(values, np.ones(values.shape[1]), rounding=1e-3)


@kinds
@heads
def test_inputs_have_unit_variance(kind, head):
    """Of every head but the bare score's, whose inputs are the space's features as they are."""
    if isinstance(head, dmm.PredictScore):
        x = jnp.arange(2.0)
        p = dmm.OrnsteinUhlenbeck(dmm.Euclidean(2))
        np.testing.assert_array_equal(head.inputs(p, x, 0.1), p.space.features(x))
        return
    p = kind(dmm.Euclidean(1))
    for tau in TAUS:
        m, r = p.kernel(jnp.asarray(tau))
        deviation = jnp.sqrt(m**2 + jnp.sum(r**2, axis=1))
        inputs = head.inputs(p, deviation.reshape(p.space.shape), tau)
        np.testing.assert_allclose(inputs, 1.0, rtol=1e-5)


@kinds
@pytest.mark.parametrize(
    "head", [dmm.PredictNoise(), dmm.Preconditioned()], ids=lambda head: type(head).__name__
)
def test_score_in_single_precision(kind, head):
    """Within 1e-5 of its own size, √(mean square over coordinates), at τ from 1e-5 up. (PredictData
    subtracts x − m x_0, which leaves ε/√τ of it: why it is not the default.)"""
    p = kind(dmm.Euclidean(4))

    def apply(output, x, tau):
        return p.flux(x, head.score(p, output, x, tau))

    worst = 0.0
    for tau in (1e-5, 1e-3, 0.1, 1.0, 10.0):
        tau = float(np.float32(tau))
        noised = p.noise(jax.random.key(2), jax.random.normal(jax.random.key(3), (4,)), tau)
        output = jax.random.normal(jax.random.key(4), head.outputs(p, noised.x).shape)
        single = np.asarray(jax.jit(apply)(output, noised.x, jnp.float32(tau)), np.float64)
        with jax.enable_x64(True):
            double = [jnp.asarray(np.asarray(a, np.float64)) for a in (output, noised.x)]
            truth = np.asarray(jax.jit(apply)(*double, jnp.asarray(tau)))
        size = np.sqrt(np.mean(truth**2))
        worst = max(worst, np.max(np.abs(single - truth)) / size)
    assert worst < 1e-5, worst


def test_preconditioned_ou_is_the_formula():
    """s = −x + output/√(e^τ − 1); and `Relative`, which knows the reference alone, agrees."""
    p = dmm.OrnsteinUhlenbeck(dmm.Euclidean(3))
    x, output = jnp.array([0.3, -1.0, 2.0]), jnp.array([1.0, 0.5, -0.2])
    for tau in (1e-4, 0.5, 8.0):
        truth = -x + output / np.sqrt(np.expm1(tau))
        for head in (dmm.Preconditioned(), dmm.Relative()):
            np.testing.assert_allclose(head.score(p, output, x, tau), truth, rtol=1e-5)


@over(TRACTABLE)
def test_default_head_gives_scores_of_the_right_shape(row):
    """Shaped as the process's own scores, finite at every τ; and a diffusion's zero output means
    the score of the reference, or of standard Gaussian data."""
    p, head = row.process, dmm.default_parameterisation(row.process)
    x = row.one_point()
    output = head.outputs(p, x)
    for tau in (1e-6, 1.0, p.horizon):
        score = head.score(p, output, x, tau)
        own = p.score(p.reference.log_prob, x)
        assert jax.tree.map(jnp.shape, score) == jax.tree.map(jnp.shape, own)
        for leaf in jax.tree.leaves((score, head.inputs(p, x, tau))):
            assert jnp.all(jnp.isfinite(leaf))
        # On positive numbers a zero output means a power law: tests/test_positive.py.
        power = isinstance(head, dmm.PredictElasticity)
        if row.stationary and dmm.supports(p, dmm.AbstractDiffusion) and not power:
            # By the flow they make: scores count only through the covariance.
            flows = jax.tree.leaves(p.flow(x, score)), jax.tree.leaves(p.flow(x, own))
            for one, two in zip(*flows, strict=True):
                np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-5)


def test_factors_run_at_their_own_speed():
    """Each factor's head sees its own time."""
    slow = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1), horizon=10.0)
    fast = dmm.CriticallyDamped(dmm.Euclidean(1), horizon=5.0)
    p = dmm.ProductProcess(slow, fast)
    heads = (dmm.PredictNoise(), dmm.Preconditioned())
    both = dmm.Factors(heads)
    x = (jnp.array([0.3]), jnp.array([[0.1], [-0.4]]))
    output = (jnp.array([0.7]), jnp.array([[0.2]]))
    tau = jnp.asarray(0.6)
    own = (
        *(heads[0].inputs(slow, x[0], tau), heads[1].inputs(fast, x[1], 0.5 * tau)),
        heads[0].score(slow, output[0], x[0], tau),
        heads[1].score(fast, output[1], x[1], 0.5 * tau),
    )
    split = (*both.inputs(p, x, tau), *both.score(p, output, x, tau))
    for one, two in zip(split, own, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert jax.tree.map(jnp.shape, both.outputs(p, x)) == ((1,), (1, 1))
