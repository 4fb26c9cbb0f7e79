"""Chains of many coordinates and states: a chunk at a time is as all at once, and small."""

import copy
import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.diagnostics import largest_array
from dmm.parameterisations.chains import PredictsStates
from dmm.processes.chain import Denoiser
from dmm.processes.coordinates import Compact, Rows, whole
from table import THREE, assert_mean

KEY = jax.random.key(0)
x64 = pytest.mark.usefixtures("x64")


class Fixed(Denoiser):
    """A score function whose network says the same everywhere."""

    process: dmm.Chain
    head: PredictsStates
    output: jax.Array
    tau: jax.Array

    def __call__(self, x):
        return self.head.score(self.process, self.output, x, self.tau)

    def bridge(self, x, earlier):
        return self.head.bridge(self.process, self.output, x, self.tau, earlier)


class Says(eqx.Module):
    """The same as a function of (x, τ)."""

    process: dmm.Chain
    head: PredictsStates
    output: jax.Array

    def at(self, tau):
        return Fixed(self.process, self.head, self.output, jnp.asarray(tau))

    def __call__(self, x, tau):
        return self.at(tau)(x)


SAMPLERS = [dmm.Bridge(), dmm.Euler(), dmm.Trapezoidal(), dmm.TauLeaping()]


def sampled(sampler, says, key, x):
    """One step of a sampler, in the middle of the time."""
    process, tau = says.process, jnp.asarray(0.1 * says.process.horizon)
    return sampler.step(key, lambda tau: process.reverse(says.at(tau)), x, tau, 0.9 * tau)


def loss(output, process, head, key, x0, objective=dmm.denoising):
    return objective(process, Says(process, head, output), key, x0, 0.1 * process.horizon)


def bound(says, key, x0):
    schedule = dmm.default_schedule(says.process)
    return dmm.elbo(says.process, says, schedule, key, x0, draws=1)


# --- The same ------------------------------------------------------------------------------------

KINDS = {
    "absorbing": lambda chunk: dmm.AbsorbingChain(dmm.Finite((3, 5), 4), chunk=chunk),
    "uniform": lambda chunk: dmm.UniformChain(dmm.Finite((3, 5), 4), chunk=chunk),
    "matrix": lambda chunk: dmm.MatrixChain(dmm.Finite((3, 5), 3), THREE, chunk=chunk),
    "ordinal": lambda chunk: dmm.OrdinalChain(dmm.Finite((3, 5), 40, ordered=True), chunk=chunk),
}


@functools.cache
def pair(kind):
    """All 15 coordinates at once, and four at a time, the last three by themselves; a head,
    what the network says and data."""
    whole, chunked = (KINDS[kind](chunk) for chunk in (None, 4))
    head = dmm.PriorLogistic() if kind == "ordinal" else dmm.PriorLogits()
    x0 = jax.random.randint(jax.random.key(1), (3, 5), 0, whole.data.states, jnp.int32)
    output = jax.random.normal(jax.random.key(2), head.outputs(whole, x0).shape)
    return whole, chunked, head, output, x0


over_kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("kind", ["absorbing", "ordinal"])
def test_targets_drawn_ahead(kind):
    """Of many points at once and kept, as a scan keeps them: the same losses, one by one."""
    _, process, head, output, x0 = pair(kind)
    keys, taus = jax.random.split(KEY, 3), process.horizon * jnp.array([0.01, 0.05, 0.2])
    score = Says(process, head, output)
    ahead = jax.jit(jax.vmap(process.noise, (0, None, 0)))(keys, x0, taus)

    def later(drawn):
        noised, tau = drawn
        return process.phi(noised.x, noised.target, score(noised.x, tau))

    losses = jax.jit(lambda drawn: jax.lax.map(later, drawn))((ahead, taus))
    alone = jax.jit(lambda key, tau: dmm.denoising(process, score, key, x0, tau))
    for i in range(3):
        np.testing.assert_allclose(losses[i], alone(keys[i], taus[i]), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "objective"),
    [*((kind, dmm.denoising) for kind in KINDS), ("absorbing", dmm.WithCrossEntropy(0.1))],
)
def test_loss_and_gradient_by_chunks(kind, objective):
    *processes, head, output, x0 = pair(kind)

    @jax.jit
    def both(process):
        def mean(output):
            one = functools.partial(loss, output, process, head, objective=objective)
            return jnp.mean(jax.vmap(one)(jax.random.split(KEY, 3), jnp.stack([x0] * 3)))

        return jax.value_and_grad(mean)(output)

    (one, slope), (other, other_slope) = map(both, processes)
    np.testing.assert_allclose(one, other, rtol=1e-5)
    np.testing.assert_allclose(slope, other_slope, rtol=1e-4, atol=1e-5 * np.abs(slope).max())
    assert isinstance(processes[1].noise(KEY, x0, 1.0).target, Compact)
    assert not isinstance(processes[0].noise(KEY, x0, 1.0).target, Compact)


@over_kinds
def test_noising_by_chunks(kind):
    """The same draws, targets, densities and entropies."""
    one, other, _, _, x0 = pair(kind)
    tau = 0.05 * one.horizon
    (x, target), (y, small) = (p.noise(KEY, x0, tau) for p in (one, other))
    np.testing.assert_array_equal(x, y)
    assert sum(leaf.size for leaf in jax.tree.leaves(small)) == x0.size + 1
    np.testing.assert_allclose(whole(small.rows(other, y)), target, rtol=1e-5)
    for value in (
        lambda p: p.log_transition(x, x0, tau),
        lambda p: p.entropy(x0, tau),
        lambda p: p.source(x),
    ):
        np.testing.assert_allclose(value(one), value(other), rtol=1e-5, atol=1e-5)


@over_kinds
@pytest.mark.parametrize("sampler", SAMPLERS[:3], ids=lambda s: type(s).__name__)
def test_draws_by_chunks(kind, sampler):
    *processes, head, output, x0 = pair(kind)
    one, other = (
        jax.jit(lambda p, key: sampled(sampler, Says(p, head, output), key, p.draw(key, x0, 1.0)))(
            process, KEY
        )
        for process in processes
    )
    np.testing.assert_array_equal(one, other)
    assert one.dtype == other.dtype == x0.dtype


@pytest.mark.parametrize("kind", ["absorbing", "ordinal"])
def test_bound_by_chunks(kind):
    *processes, head, output, x0 = pair(kind)
    one, other = (jax.jit(lambda p: bound(Says(p, head, output), KEY, x0))(p) for p in processes)
    np.testing.assert_allclose(one, other, rtol=2e-4)


@pytest.mark.parametrize("ordered", [False, True])
def test_tau_leaping_by_chunks_has_the_same_law(ordered):
    """Of 30,000 coordinates alike, how often each state: within five standard errors of the law.

    Jumps come a Poisson number of times N, each to a state in proportion to its rate.
    """
    d, h, x = 30_000, 0.7, 1
    process = dmm.MatrixChain(dmm.Finite(d, 3, ordered=ordered), THREE, chunk=1024)
    rates = np.asarray(process.rates(jnp.asarray(x)))
    total = rates.sum()
    law = np.zeros(3)
    walk = {0: 1.0}  # how far N jumps lead, added up
    for n in range(30):
        weight = math.exp(-total * h) * (total * h) ** n / math.factorial(n)
        for far, p in walk.items():
            stays = not ordered and n != 1
            law[x if stays else min(max(x + far, 0), 2)] += weight * p
        further = {}
        for far, p in walk.items():
            for to in range(3):
                further[far + to - x] = further.get(far + to - x, 0.0) + p * rates[to] / total
        walk = further
    start = jnp.full(d, x, jnp.int32)
    end = dmm.TauLeaping().step(KEY, lambda tau: process, start, jnp.zeros(()), jnp.asarray(h))
    assert_mean(np.eye(3)[np.asarray(end)], law)


def test_guided_scores_and_models_by_chunks():
    """A model's guided score, its draws and its bound."""
    models = []
    for chunk in (None, 4):
        process = KINDS["uniform"](chunk)
        like = jnp.zeros((3, 5), jnp.int32)
        head = dmm.PriorLogits()
        network = dmm.MLP(
            KEY, head.inputs(process, like, 1.0), head.outputs(process, like), width=8, depth=1
        )
        schedule = dmm.default_schedule(process)
        models.append(
            dmm.Model(process, schedule, schedule, head, network, dmm.Identity(), None, None)
        )
    one, other = models
    x = one.process.draw(KEY, jnp.zeros((3, 5), jnp.int32), 1.0)
    np.testing.assert_allclose(one.score(x, 0.5), other.score(x, 0.5), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(one.sample(KEY, 3, steps=3), other.sample(KEY, 3, steps=3))
    guided = [dmm.learned.Learned(m, guidance=2.0).at(jnp.asarray(0.5)) for m in models]
    assert isinstance(guided[1](x), Rows)
    np.testing.assert_allclose(guided[0](x), whole(guided[1](x)), rtol=1e-5, atol=1e-6)


@x64
def test_products_with_a_chain_by_chunks():
    """The target of a factor, at the factor's own time; and its step."""
    found = []
    for chunk in (None, 4):
        chain = dmm.UniformChain(dmm.Finite(9, 3), chunk=chunk)
        p = dmm.ProductProcess(chain, dmm.OrnsteinUhlenbeck(dmm.Euclidean(2)))
        x0 = (jnp.arange(9, dtype=jnp.int32) % 3, jnp.array([0.3, 1.0]))
        noised = p.noise(KEY, x0, 0.7)
        score = Fixed(chain, dmm.PriorLogits(), jnp.ones((9, 3)), jnp.asarray(0.7))(noised.x[0])
        reverse = p.reverse(lambda x, score=score: (score, -x[1]))
        found.append(
            (p.phi(noised.x, noised.target, (score, -noised.x[1])), reverse.step(KEY, x0, 0.1))
        )
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-12)
    jax.tree.map(np.testing.assert_array_equal, found[0][1], found[1][1])


# --- Small ---------------------------------------------------------------------------------------

SIDE, CHUNK, STATES = 64, 1024, 256
D = 3 * SIDE**2


@functools.cache
def levels() -> dmm.OrdinalChain:
    return dmm.OrdinalChain(dmm.Finite((), STATES, ordered=True))


def images(chunk: int | None = CHUNK, d: int = D) -> dmm.OrdinalChain:
    """The same chain, in d copies: its table takes seconds to make."""
    made = copy.copy(levels())
    object.__setattr__(made, "data", dmm.Finite(d, STATES, ordered=True))
    object.__setattr__(made, "chunk", chunk)
    return made


def computations(process):
    """What a model does with one point, as functions of a key and what the network says."""
    head, x = dmm.PriorLogistic(), jnp.zeros(process.data.shape, jnp.int32)

    def one(f, *args):
        return lambda key, output: f(*args, Says(process, head, output), key, x)

    def gradient(key, output):
        return jax.value_and_grad(loss)(output, process, head, key, x)

    steps = {type(sampler).__name__: one(sampled, sampler) for sampler in SAMPLERS}
    return {
        "loss and gradient": gradient,
        "evidence bound": one(bound),
        "noise": lambda key, output: process.noise(key, x, 1.0),
        "reference": lambda key, output: process.reference.sample(key),
        **steps,
    }


NAMES = list(computations(dmm.UniformChain(dmm.Finite(1, 2))))


@pytest.mark.parametrize("name", NAMES)
def test_no_array_is_larger_than_a_chunk(name):
    """Of rows there are a chunk's at most, a point of a batch: traced, not run."""
    f, output = computations(images())[name], jnp.zeros((D, 2))
    assert math.prod(largest_array(f, KEY, output)) <= CHUNK * STATES
    keys, outputs = jax.random.split(KEY, 4), jnp.zeros((4, D, 2))
    assert math.prod(largest_array(jax.vmap(f), keys, outputs)) <= 4 * CHUNK * STATES


@pytest.mark.parametrize("name", [n for n in NAMES if n != "reference"])
def test_all_at_once_arrays_are_larger(name):
    """So that the test above can fail."""
    f = computations(images(D))[name]
    assert math.prod(largest_array(f, KEY, jnp.zeros((D, 2)))) >= D * STATES


def test_large_points_are_treated_by_chunks_unasked():
    """A colour photograph of 256 × 256; a digit is treated at once."""
    process = images(None, 196_608)
    f, output = computations(process)["loss and gradient"], jnp.zeros((196_608, 2))
    assert math.prod(largest_array(f, KEY, output)) <= 2**20
    noised = process.noise(KEY, jnp.zeros(784, jnp.int32), 1.0)
    assert isinstance(noised.target, jax.Array)


def test_largest_array_looks_into_loops_and_branches():
    def f(x):
        def body(carry, _):
            return jax.lax.cond(carry[0] > 0, lambda c: jnp.outer(c, c)[0], lambda c: c, carry), ()

        return jax.lax.scan(body, x, length=2)[0]

    assert largest_array(f, jnp.zeros(7)) == (7, 7)
    assert largest_array(lambda x: jax.lax.map(lambda y: y + x, x), jnp.zeros(5)) == (5, 5)
    assert largest_array(lambda x: x, jnp.zeros(3)) == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [0, -3])
def test_bad_chunks(kind, chunk):
    with pytest.raises(ValueError, match="chunk: must be"):
        KINDS[kind](chunk)
