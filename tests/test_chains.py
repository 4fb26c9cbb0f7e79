"""Chains: masks, heads and samplers against exact small cases."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import qmc

import dmm
from dmm.parameterisations.chains import PredictsStates
from dmm.processes.chain import Denoiser
from dmm.processes.jump import draw_states
from table import FOUR, THREE, assert_mean, feeding, fitted_order, matrix_chain

x64 = pytest.mark.usefixtures("x64")
# --- Drawing states ------------------------------------------------------------------------------


def test_states_are_drawn_in_proportion():
    """χ² of 2¹⁶ draws of five weights, one of them 0: below 25 with 3 degrees of freedom, which
    fails by chance once in 10⁵."""
    weights = jnp.array([0.5, 0.0, 2.0, 0.5, 1.0])
    draws = draw_states(jax.random.key(0), jnp.broadcast_to(weights, (2**16, 5)))
    counts = np.bincount(draws, minlength=5)
    expected = np.asarray(weights / weights.sum()) * 2**16
    assert counts[1] == 0
    kept = expected > 0
    assert np.sum((counts - expected)[kept] ** 2 / expected[kept]) < 25


@pytest.mark.parametrize("u", [0.0, np.nextafter(np.float32(1), np.float32(0))])
def test_a_state_without_weight_is_never_drawn(u):
    """At either end of the uniform numbers."""
    with feeding(uniform=[jnp.float32(u)]):
        state = draw_states(jax.random.key(0), jnp.array([0.0, 0.3, 0.7, 0.0], jnp.float32))
    assert state in (1, 2)


def test_a_tiny_weight_is_not_drawn_by_a_zero():
    """A uniform number is 0 once in 2²³ draws; a weight of 1e-30 is due far less often."""
    with feeding(uniform=[jnp.float32(0.0)]):
        assert draw_states(jax.random.key(0), jnp.array([1e-30, 1.0], jnp.float32)) == 1


def test_scores_without_a_rate_may_be_anything():
    """Their exponentials overflow, and multiply no rate: values and gradients stay finite."""
    p, x = masking((1,)), jnp.array([0])
    wild, target = jnp.array([[0.0, 0.0, 200.0]]), jnp.ones((1, 3))
    assert p.phi(x, target, wild) == 0
    assert np.all(np.isfinite(jax.grad(lambda s: p.phi(x, target, s))(wild)))
    generative = p.reverse(lambda y: wild)
    assert np.all(generative.rates(x) == 0)
    assert np.isfinite(p.implicit(lambda y: wild, x))


# --- Masks: laws with zeros ----------------------------------------------------------------------


def masking(shape=(2,), states=2):
    return dmm.AbsorbingChain(dmm.Finite(shape, states))


@x64
def test_masks_fall_as_said():
    """q_τ(mask | x_0) = 1 − e^{−τ}; the target at a mask has the score as its mean; the entropy
    and the bound's constant agree."""
    p, x0, tau = masking(), jnp.array([0, 1]), jnp.asarray(0.7)
    keys = jax.random.split(jax.random.key(0), 2**15)
    noised = jax.vmap(lambda key: p.noise(key, x0, tau))(keys)
    assert_mean(noised.x == 2, np.full(2, 1 - np.exp(-0.7)))
    assert np.all((noised.x == x0[None]) | (noised.x == 2))
    at_mask = noised.target[noised.x[:, 0] == 2][0, 0]
    np.testing.assert_allclose(at_mask, [1 / np.expm1(0.7), 0.0, 1.0], rtol=1e-10)
    kept, gone = np.exp(-0.7), 1 - np.exp(-0.7)
    entropy = -2 * (kept * np.log(kept) + gone * np.log(gone))
    np.testing.assert_allclose(p.entropy(x0, tau), entropy, rtol=1e-10)
    zero = jnp.zeros((2, 3))
    constant = jax.vmap(lambda n: p.source(n.x) - p.phi(n.x, n.target, zero))(noised)
    assert_mean(constant, -jax.grad(lambda t: p.entropy(x0, t))(tau))


def test_reference_of_masks():
    """Masks, and what is left of the data at the horizon: finite at every point, summing to 1."""
    p = masking()
    keys = jax.random.split(jax.random.key(1), 2**12)
    assert np.all(jax.vmap(p.reference.sample)(keys) == 2)
    every = jnp.array(list(itertools.product(range(3), repeat=2)))
    log_prob = jax.vmap(p.reference.log_prob)(every)
    assert np.all(np.isfinite(log_prob))
    np.testing.assert_allclose(jnp.exp(log_prob).sum(), 1.0, rtol=1e-6)
    np.testing.assert_allclose(log_prob[0], 2 * (-p.horizon - np.log(2)), rtol=1e-6)
    last = jax.vmap(lambda key: p.draw(key, jnp.array([0, 1]), p.horizon))(keys)
    assert np.all(last == 2)


def test_first_hitting_stays_at_finite_times():
    """A uniform number that rounds to 1 keeps the first mask's time at τ, not at infinity."""
    p = masking((1,))

    def at(tau):  # state 1 for sure, if the time is a number
        ratio = jnp.where(jnp.isfinite(tau), jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0]))
        return p.reverse(lambda x: jnp.log(jnp.append(ratio, 1.0))[None])

    ones = [np.nextafter(np.float32(1), np.float32(0)), 0.5, 0.5, 0.5]
    with feeding(uniform=[jnp.float32(u) for u in ones]):
        x = dmm.FirstHitting().step(
            jax.random.key(0), at, jnp.array([2]), jnp.asarray(p.horizon), jnp.zeros(())
        )
    assert x == 1


# --- Heads ---------------------------------------------------------------------------------------


class Joint:
    """Data on two coordinates with a joint law, noised by a chain: everything by enumeration."""

    def __init__(self, process, seed=0):
        self.p, states = process, process.data.states
        self.law = np.random.default_rng(seed).dirichlet(np.ones(states**2)).reshape(states, states)
        self.points = jnp.asarray(
            list(itertools.product(range(process.space.states), repeat=2)), jnp.int32
        )

    def marginal(self, tau):
        """q_τ as a matrix over the two coordinates."""
        p = self.p
        rows = jax.vmap(lambda x0: p.row(x0, tau))(jnp.arange(p.data.states))
        return rows.T @ jnp.asarray(self.law) @ rows

    def weights(self, x, tau):
        """The law of each coordinate of x_0 given the other coordinate of x."""
        p = self.p
        columns = [p.column(x[i], tau)[: p.data.states] for i in range(2)]
        both = [jnp.asarray(self.law) @ columns[1], columns[0] @ jnp.asarray(self.law)]
        return jnp.stack([w / jnp.sum(w) for w in both])


class Exact(Denoiser):
    """What a perfect model would know, through a head."""

    joint: Joint = eqx.field(static=True)
    head: PredictsStates
    tau: jax.Array

    def _output(self, x):
        return jnp.log(jnp.maximum(self.joint.weights(x, self.tau), 1e-30))

    def __call__(self, x):
        return self.head.score(self.joint.p, self._output(x), x, self.tau)

    def bridge(self, x, earlier):
        return self.head.bridge(self.joint.p, self._output(x), x, self.tau, earlier)


KINDS = {
    "uniform": lambda: dmm.UniformChain(dmm.Finite(2, 3)),
    "absorbing": lambda: dmm.AbsorbingChain(dmm.Finite(2, 3)),
    "matrix": lambda: matrix_chain((2,), THREE),
    "ordinal": lambda: dmm.OrdinalChain(dmm.Finite(2, 3, ordered=True)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tau", [1e-3, 0.6, 4.0])
def test_exact_weights_give_the_exact_ratios(kind, tau, x64):
    """At every point, wherever there is a rate back."""
    joint = Joint(KINDS[kind]())
    marginal = joint.marginal(tau)
    score = Exact(joint, dmm.PriorLogits(), jnp.asarray(tau))
    for x in joint.points:
        there = jnp.stack([marginal[:, x[1]], marginal[x[0]]])
        truth = there / marginal[x[0], x[1]]
        used = np.asarray(joint.p.inflow(x)) > 0
        np.testing.assert_allclose(jnp.exp(score(x))[used], truth[used], rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_bridge_is_the_law_at_an_earlier_time(kind, x64):
    """Each coordinate's law at s given both coordinates at τ, by Bayes over all points."""
    joint, tau, earlier = Joint(KINDS[kind]()), jnp.asarray(1.1), 0.4
    p, at_earlier = joint.p, joint.marginal(earlier)
    step = jax.vmap(lambda z: p.row(z, tau - earlier))(jnp.arange(p.space.states))
    bridge = Exact(joint, dmm.PriorLogits(), tau).bridge
    for x in joint.points:
        both = at_earlier * step[:, x[0]][:, None] * step[:, x[1]][None, :]
        if both.sum() < 1e-12:
            continue
        found = jax.nn.softmax(bridge(x, earlier))
        np.testing.assert_allclose(found[0], both.sum(1) / both.sum(), rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(found[1], both.sum(0) / both.sum(), rtol=1e-7, atol=1e-12)


def test_logistic_weights_are_those_of_a_logistic_law(x64):
    """Differences of its distribution function between midway points, the tails with the ends."""
    p = dmm.OrdinalChain(dmm.Finite((), 9, ordered=True))
    head, x, tau = dmm.PriorLogistic(), jnp.asarray(6), 1.3
    output = jnp.array([0.3, -0.4])
    place = np.exp(-10 / p.horizon * tau) * 0.5 + 0.3
    edges = np.concatenate([[-np.inf], -1 + (np.arange(8) + 0.5) / 4, [np.inf]])
    cdf = 1 / (1 + np.exp(-(edges - place) / np.exp(-0.4 - 2)))
    np.testing.assert_allclose(head.weights(p, output, x, tau), np.diff(cdf), rtol=1e-9, atol=1e-15)


def test_logistic_weights_far_out_have_finite_gradients():
    """Places far outside the range and scales at both ends, in float32."""
    p, head = dmm.OrdinalChain(dmm.Finite((), 256, ordered=True)), dmm.PriorLogistic()

    def loss(output):
        return head.score(p, output, jnp.asarray(250), 0.2)[3]

    for place, scale in itertools.product((-30.0, 0.0, 30.0), (-30.0, 0.0, 30.0)):
        gradient = jax.grad(loss)(jnp.array([place, scale]))
        assert np.all(np.isfinite(gradient))


def test_rates_as_outputs():
    """The score of `PredictRates` makes the reverse rates the network's."""
    p = matrix_chain((2,), THREE)
    x, output = jnp.array([0, 2]), jax.random.normal(jax.random.key(0), (2, 3))
    generative = p.reverse(lambda y: dmm.PredictRates().score(p, output, y, 1.0))
    wanted = jnp.where(p.inflow(x) > 0, jnp.exp(output), 0.0)
    np.testing.assert_allclose(generative.rates(x), wanted, rtol=1e-5)


def test_cross_entropy_is_added_with_its_weight(x64):
    """WithCrossEntropy(w) − denoising = −w Σ_d log p(x_0^d | x_τ), by Bayes over all points."""
    joint, tau, x0, key = Joint(KINDS["uniform"]()), jnp.asarray(0.6), jnp.array([2, 0]), 3
    p = joint.p

    class Scores:
        def at(self, tau):
            return Exact(joint, dmm.PriorLogits(), tau)

        def __call__(self, x, tau):
            return self.at(tau)(x)

    key = jax.random.key(key)
    difference = dmm.WithCrossEntropy(0.3)(p, Scores(), key, x0, tau) - dmm.denoising(
        p, Scores(), key, x0, tau
    )
    x = p.noise(key, x0, tau).x
    columns = [p.column(x[i], tau) for i in range(2)]
    both = jnp.asarray(joint.law) * columns[0][:, None] * columns[1][None, :]
    laws = both.sum(1) / both.sum(), both.sum(0) / both.sum()
    truth = -0.3 * sum(jnp.log(law[x0[i]]) for i, law in enumerate(laws))
    np.testing.assert_allclose(difference, truth, rtol=1e-7)


def test_the_published_shortcut_is_biased_and_ours_is_not(x64):
    """The implicit objective needs the score at x and at a neighbour. Evaluated at the neighbour
    for both terms, as published, its gradient differs in the first digit; ours is the exact one."""
    p, tau = matrix_chain(), jnp.asarray(0.5)
    law = jnp.asarray([0.1, 0.2, 0.3, 0.4]) @ p.transitions(tau)
    rates = p.transitions.rates

    def score(theta, x):
        return theta[x] - theta[x][x]

    def shortcut(theta):
        total = 0.0
        for x in range(4):
            for y in set(range(4)) - {x}:
                jumped = jnp.sum(rates[:, y] * jnp.exp(score(theta, y)))
                back = jnp.sum(rates[x]) * score(theta, y)[x]
                total += law[x] * rates[x, y] / jnp.sum(rates[x]) * (jumped - back)
        return total

    def exact(theta):
        each = jax.vmap(lambda x: p.implicit(lambda y: score(theta, y), x))(jnp.arange(4))
        return law @ each

    def ours(theta):
        keys = jax.random.split(jax.random.key(0), (4, 2**13))

        def one(x, key):
            return p.implicit(lambda y: score(theta, y), x, key=key)

        each = jax.vmap(jax.vmap(one, (None, 0)))(jnp.arange(4), keys)
        return law @ each.mean(1)

    theta = jax.random.normal(jax.random.key(1), (4, 4))
    truth, biased, drawn = (jax.jit(jax.grad(f))(theta) for f in (exact, shortcut, ours))
    size = jnp.linalg.norm(truth)
    assert jnp.linalg.norm(biased - truth) > 0.3 * size
    assert jnp.linalg.norm(drawn - truth) < 0.03 * size


# --- Samplers on a chain of four states, all exact ------------------------------------------------

EARLY, LATE = 0.1, 2.0
DATA = np.array([0.55, 0.05, 0.1, 0.3])


def data():
    """The law of the data, in the precision of the moment."""
    return jnp.asarray(DATA.copy())


def exact_at(p):
    """The generative process of four states from the exact law of the data."""

    def at(tau):
        law = data() @ p.transitions(tau)
        return p.reverse(lambda x: jnp.log(law) - jnp.log(law[x]))

    return at


def times(steps):
    return jnp.exp(jnp.linspace(np.log(LATE), np.log(EARLY), steps + 1))


def error_of_kernels(kernel, steps):
    """Total variation at EARLY of the law that starts right at LATE and follows the kernels."""
    p, taus = matrix_chain(), times(steps)
    law = data() @ p.transitions(LATE)
    for tau, next_tau in itertools.pairwise(taus):
        law = law @ kernel(tau, next_tau)
    return 0.5 * float(jnp.sum(jnp.abs(law - data() @ p.transitions(EARLY))))


def kernel_by_quadrature(sampler, uniforms):
    """The sampler's transition matrix, its uniform numbers from a Sobol sequence: the sampler
    itself is run, and errors of the average are near 1e-5."""
    points = jnp.asarray(qmc.Sobol(uniforms, seed=0).random_base2(16))
    p = matrix_chain()
    at = exact_at(p)

    @jax.jit
    def kernel(tau, next_tau):
        def row(x):
            def one(u):
                with feeding(uniform=list(u)):
                    return sampler.step(jax.random.key(0), at, x, tau, next_tau)

            return jnp.mean(jax.nn.one_hot(jax.vmap(one)(points), 4), 0)

        return jnp.stack([row(jnp.asarray(x)) for x in range(4)])

    return kernel


@x64
@pytest.mark.parametrize(
    ("sampler", "uniforms", "order"),
    [
        (dmm.Euler(), 2, 1),
        (dmm.Trapezoidal(), 4, 2),
        (dmm.Trapezoidal(theta=0.3), 4, 2),
    ],
    ids=["euler", "trapezoidal", "trapezoidal-0.3"],
)
def test_order_of_a_sampler(sampler, uniforms, order):
    """Total variation at the end of 4, 8 and 16 steps."""
    steps = [4, 8, 16]
    kernel = kernel_by_quadrature(sampler, uniforms)
    errors = [error_of_kernels(kernel, n) for n in steps]
    assert -order - 0.5 < fitted_order(steps, errors) < -order + 0.25, errors
    assert errors[-1] > 1e-4, "below what the quadrature resolves"


def frequencies(sampler, process, at, start, steps, n, points):
    """How often each point is reached at EARLY by n draws that start from a law over points."""

    @jax.jit
    @jax.vmap
    def draws(key):
        start_key, key = jax.random.split(key)
        x = points[draw_states(start_key, start)]
        return dmm.simulate(key, sampler, at, x, times(steps))

    x = draws(jax.random.split(jax.random.key(3), n))
    hits = (x[:, None] == points[None]).reshape(n, len(points), -1).all(-1)
    return np.asarray(hits.mean(0))


def variation(sampler, steps, n):
    p = matrix_chain()
    start = data() @ p.transitions(LATE)
    end = data() @ p.transitions(EARLY)
    found = frequencies(sampler, p, exact_at(p), start, steps, n, jnp.arange(4))
    return 0.5 * np.sum(np.abs(found - np.asarray(end)))


@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("ordered", [False, True])
def test_tau_leaping_is_of_first_order(ordered):
    """Sixteen times the steps leave under a ninth of the error. 2¹⁵ draws leave 0.003 of total
    variation, and 4 steps err by ten times that."""
    p = dmm.MatrixChain(dmm.Finite((), 4, ordered=ordered), FOUR, horizon=10.0)
    start, end = (data() @ p.transitions(tau) for tau in (LATE, EARLY))
    errors = [
        0.5
        * np.sum(
            np.abs(
                frequencies(dmm.TauLeaping(), p, exact_at(p), start, n, 2**15, jnp.arange(4))
                - np.asarray(end)
            )
        )
        for n in (4, 64)
    ]
    assert errors[0] > 0.04
    assert errors[1] < errors[0] / 9 + 0.006


def test_uniformisation_is_exact():
    """With one step or three: 2¹⁴ draws, total variation under 0.016. Four frequencies have
    standard errors of at most 0.004 each, so that is four of them in each: once in 10⁴."""
    for steps in (1, 3):
        assert variation(dmm.Uniformisation(margin=4.0), steps, 2**14) < 0.016
    assert variation(dmm.Euler(), 3, 2**14) > 0.03


def test_uniformisation_says_when_its_bound_is_too_low():
    with pytest.raises(Exception, match="exceeds the bound of Uniformisation"):
        variation(dmm.Uniformisation(margin=0.5), 3, n=64)


@pytest.mark.parametrize("steps", [1, 7])
def test_bridge_is_exact_on_one_coordinate(steps):
    """Any number of steps, down to τ = 0: 2¹⁶ draws as above."""
    p = matrix_chain()

    class One(Denoiser):
        tau: jax.Array

        def __call__(self, x):
            return dmm.PriorLogits().score(p, jnp.log(data()), x, self.tau)

        def bridge(self, x, earlier):
            logits = jnp.log(data())
            return dmm.PriorLogits().bridge(p, logits, x, self.tau, earlier)

    taus = jnp.append(times(steps), 0.0)
    law = data() @ p.transitions(LATE)

    @jax.jit
    @jax.vmap
    def draws(key):
        start_key, key = jax.random.split(key)
        start = draw_states(start_key, law)
        return dmm.simulate(key, dmm.Bridge(), lambda tau: p.reverse(One(tau)), start, taus)

    x = draws(jax.random.split(jax.random.key(0), 2**16))
    found = np.bincount(x, minlength=4) / 2**16
    assert 0.5 * np.sum(np.abs(found - DATA)) < 0.008


@pytest.mark.parametrize("kind", ["absorbing", "uniform"])
def test_samplers_of_two_coordinates(kind):
    """With the exact score every sampler comes near the law of the data; for masks `FirstHitting`
    is exact in one step. Total variation over 9 points of 2¹⁵ draws: 0.005 by chance."""
    joint = Joint(KINDS[kind]())
    p, schedule = joint.p, dmm.default_schedule(joint.p)

    def draws(sampler, steps):
        @jax.jit
        @jax.vmap
        def many(key):
            start_key, key = jax.random.split(key)
            start = p.reference.sample(start_key)

            def at(tau):
                tau = jnp.maximum(tau, schedule.tau_min)
                return p.reverse(Exact(joint, dmm.PriorLogits(), tau))

            return dmm.simulate(key, sampler, at, start, schedule.grid(steps))

        x = many(jax.random.split(jax.random.key(1), 2**15))
        found = np.bincount(np.minimum(x[:, 0] * 3 + x[:, 1], 9), minlength=10)[:9] / 2**15
        return 0.5 * np.sum(np.abs(found - joint.law.ravel()))

    bounds = {dmm.Bridge(): 0.03, dmm.Trapezoidal(): 0.03, dmm.Euler(): 0.06}
    if kind == "absorbing":
        bounds[dmm.FirstHitting()] = 0.015
    for sampler, bound in bounds.items():
        steps = 1 if isinstance(sampler, dmm.FirstHitting) else 40
        assert draws(sampler, steps) < bound, sampler


# --- Bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: dmm.MatrixChain(dmm.Finite(3, 4), FOUR, horizon=-1.0),
        lambda: dmm.MatrixChain(dmm.Finite(3, 4), FOUR, horizon=0.0),
        lambda: dmm.OrdinalChain(dmm.Finite(3, 4), horizon=0.0),
        lambda: dmm.UniformChain(dmm.Finite(3, 4), horizon=-1.0),
        lambda: dmm.AbsorbingChain(dmm.Finite(3, 4), horizon=float("nan")),
    ],
)
def test_bad_horizon(make):
    with pytest.raises(ValueError, match=r"^horizon: "):
        make()


def test_bad_number_of_states():
    with pytest.raises(ValueError, match=r"^states: "):
        dmm.Finite(3, 1)
    # The suite's own check of types would be first; a user has none.
    space = object.__new__(dmm.Finite)
    object.__setattr__(space, "states", 2.5)
    with pytest.raises(ValueError, match=r"^states: a whole number"):
        dmm.Finite.__check_init__(space)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[0, 5]], "whole numbers from 0 to 4"),
        ([[-1, 0]], "whole numbers from 0 to 4"),
        ([[0.5, 1.0]], "whole numbers from 0 to 4"),
        ([[0, 1, 2]], "expected shape"),
    ],
)
def test_bad_states(data, message):
    with pytest.raises(ValueError, match=f"^data: .*{message}"):
        dmm.fit(np.array(data), space=dmm.Finite(2, 5), key=jax.random.key(0), steps=1)


def test_samplers_say_what_they_cannot_run():
    line = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
    at, x = lambda tau: line.reverse(lambda x: -x), jnp.zeros(1)
    for sampler in (dmm.TauLeaping(), dmm.Trapezoidal(), dmm.Uniformisation(), dmm.FirstHitting()):
        with pytest.raises(TypeError, match=r"^sampler: .*use Euler\(\)"):
            sampler.step(jax.random.key(0), at, x, jnp.asarray(1.0), jnp.asarray(0.5))
    at = exact_at(matrix_chain())
    with pytest.raises(TypeError, match="Bridge needs a model that predicts data"):
        dmm.Bridge().step(jax.random.key(0), at, jnp.asarray(0), jnp.ones(()), jnp.zeros(()))
    with pytest.raises(ValueError, match=r"^theta"):
        dmm.Trapezoidal(theta=1.0)
