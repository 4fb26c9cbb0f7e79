"""Samplers: fitted orders where moments are exact, and the time reversal over the whole table."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import dmm
from table import (
    DENSE,
    ROWS,
    THREE,
    assert_mean,
    feeding,
    fitted_order,
    line_process,
    matrix_chain,
    over,
)

x64 = pytest.mark.usefixtures("x64")


# --- Over the table -------------------------------------------------------------------------------


@over(DENSE)
def test_generative_process_undoes_the_noise(row):
    """From exact draws at τ, 64 steps with the exact score lead to the law at 0.4 τ: first and
    second moments of the features over 2¹³ points, 5 standard errors and 0.01 for the bias of a
    first-order sampler. Between the two times they move by three times that, or more."""
    p, log_q = row.process, row.log_mixture(0.3)
    taus = jnp.linspace(row.tau, 0.4 * row.tau, 65)
    # The bridge of chains asks for more than a score: `test_chains`.
    sampler = dmm.Euler() if isinstance(p, dmm.Chain) else dmm.default_sampler(p)

    def at(tau):
        return p.reverse(lambda x: p.score(lambda y: log_q(y, tau), x))

    def moments(x):
        u = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(p.space.features(x))])
        return jnp.concatenate([u, (u[:, None] * u[None, :]).ravel()])

    @jax.jit
    @jax.vmap
    def draws(key):
        data_key, noise_key, key = jax.random.split(key, 3)
        first = jax.random.bernoulli(data_key, 0.3)
        x0 = jax.tree.map(lambda a, b: jnp.where(first, a, b), *row.starts)
        start = p.noise(noise_key, x0, row.tau).x
        return moments(start), moments(dmm.simulate(key, sampler, at, start, taus))

    start, end = draws(jax.random.split(jax.random.key(2), 2**13))
    with jax.enable_x64(True):
        exact = jax.jit(lambda tau: row.integrate_vector(lambda x: jnp.exp(log_q(x, tau)), moments))
        before, after = exact(row.tau), exact(0.4 * row.tau)
    assert_mean(start, before)
    assert_mean(end, after, rounding=0.01)
    with pytest.raises(AssertionError, match="off by"):
        assert_mean(end, before, sigmas=15.0, rounding=0.03)


# --- Orders on the line --------------------------------------------------------------------------

MEAN, VARIANCE = 0.5, 0.09  # of the data; all laws are then Gaussian
EARLY, LATE = 0.1, 2.0


def marginal(tau):
    """Mean and variance of the noised data."""
    return jnp.exp(-0.5 * tau) * MEAN, jnp.exp(-tau) * VARIANCE - jnp.expm1(-tau)


def exact_score(x, tau):
    mean, variance = marginal(tau)
    return -(x - mean) / variance


PROCESS = line_process()


def noising(tau):
    return PROCESS


def generative(tau):
    return PROCESS.reverse(lambda x: exact_score(x, tau))


def auxiliary(tau):
    process = generative(tau)
    return process.reverse(dmm.Zero(process))


def propagate(sampler, at, taus, start, normals):
    """Mean and variance after the steps, exactly: a step is x' = Ax + c + Σ B_i z_i."""

    def step(x, z, tau, next_tau):
        with feeding(normal=list(z)):
            return sampler.step(jax.random.key(0), at, x.reshape(1), tau, next_tau)[0]

    @jax.jit
    @jax.vmap
    def coefficients(tau, next_tau):
        zero, z = jnp.zeros(()), jnp.zeros(normals)
        slopes = jax.jacfwd(step, (0, 1))(zero, z, tau, next_tau)
        return step(zero, z, tau, next_tau), *slopes

    mean, variance = map(float, start)
    rows = zip(*map(np.asarray, coefficients(taus[:-1], taus[1:])), strict=True)
    for shift, slope, roots in rows:
        mean, variance = slope * mean + shift, slope**2 * variance + np.sum(roots**2)
    return mean, variance


def exact_auxiliary(start):
    """Moments of dZ = (−Z/2 − s(Z, τ)) dτ + dB from EARLY to LATE, by an ODE to 1e-12."""

    def slope(tau, state):
        mean, variance = marginal(tau)
        return [
            -0.5 * state[0] + (state[0] - float(mean)) / float(variance),
            2 * (-0.5 + 1 / float(variance)) * state[1] + 1,
        ]

    return solve_ivp(slope, (EARLY, LATE), start, rtol=1e-12, atol=1e-12).y[:, -1]


@functools.cache
def case(name):
    """A time-inhomogeneous process, its start, its exact end, and which way time runs."""
    if name == "generative":
        return generative, marginal(LATE), marginal(EARLY), (LATE, EARLY)
    if name == "noising":
        return noising, marginal(EARLY), marginal(LATE), (EARLY, LATE)
    start = (0.2, 0.3)
    return auxiliary, start, exact_auxiliary(start), (EARLY, LATE)


ORDERS = [
    (dmm.Euler(), 1, 1, "noising"),
    (dmm.Euler(), 1, 1, "generative"),
    (dmm.Euler(), 1, 1, "auxiliary"),
    (dmm.Heun(), 2, 1, "noising"),
    (dmm.Heun(), 2, 1, "generative"),
    (dmm.Heun(), 2, 1, "auxiliary"),
    (dmm.ProbabilityFlow(), 2, 0, "generative"),
]


@pytest.mark.parametrize(
    ("sampler", "order", "normals", "name"),
    ORDERS,
    ids=[f"{type(sampler).__name__}-{name}" for sampler, _, _, name in ORDERS],
)
@x64
def test_weak_order(sampler, order, normals, name):
    """Mean and variance converge at the sampler's order, fitted over 32 to 256 even steps."""
    at, start, truth, ends = case(name)
    sizes, errors = [32, 64, 128, 256], []
    for n in sizes:
        moments = propagate(sampler, at, jnp.linspace(*ends, n + 1), start, normals)
        errors.append(np.abs(np.subtract(moments, np.asarray(truth, np.float64))))
    for error in np.transpose(errors):
        assert order - 0.15 < -fitted_order(sizes, error) < order + 0.35, error


@pytest.mark.parametrize(
    ("sampler", "order"), [(dmm.Euler(), 2), (dmm.Heun(), 3)], ids=["Euler", "Heun"]
)
@pytest.mark.parametrize("name", ["ou", "damped"])
@x64
def test_local_weak_order_with_a_nonlinear_score(sampler, order, name):
    """One step from a point against f + hLf + ½h²L²f, by Gauss–Hermite over its normals: the error
    is O(h^{p+1}) for any smooth f, which moments of linear processes do not show."""
    row = next(row for row in ROWS if row.name == name)
    process, x, f = row.directions()["generative"], row.one_point(), row.wave(row.theta(25))
    size = x.size
    nodes, weights = np.polynomial.hermite_e.hermegauss(24)
    z = jnp.asarray(list(itertools.product(nodes, repeat=size)))
    weight = np.prod(list(itertools.product(weights / weights.sum(), repeat=size)), axis=1)

    @jax.jit
    def error(h):
        def end(z):
            with feeding(normal=[z]):
                return f(sampler.step(jax.random.key(0), lambda tau: process, x, 0.0, h))

        def once(y):
            return process.generator(f, y)

        truth = f(x) + h * once(x) + 0.5 * h**2 * process.generator(once, x)
        return jnp.sum(weight * jax.vmap(end)(z)) - truth

    sizes = [0.02, 0.01, 0.005]
    errors = [float(error(jnp.asarray(h))) for h in sizes]
    assert order - 0.2 < fitted_order(sizes, errors) < order + 0.5


class Rest(dmm.Sampler):
    """A predictor that does not move: what remains of a predictor–corrector is the corrector."""

    def step(self, key, at, x, tau, next_tau):
        return x


@x64
def test_corrector_leaves_the_law_invariant_on_the_line():
    """The error of a correction of length h in the variance is O(h²), so none a unit of time."""
    at, tau, sizes, errors = generative, 0.5, [0.1, 0.05, 0.025], []
    for size in sizes:
        corrector = dmm.PredictorCorrector(predictor=Rest(), size=size)
        moments = propagate(corrector, at, jnp.array([tau + 1, tau]), marginal(tau), 2)
        errors.append(abs(moments[1] - float(marginal(tau)[1])))
    assert 1.8 < fitted_order(sizes, errors) < 2.2


@x64
def test_predictor_corrector_converges():
    """With Heun for predictor, the corrector's own first order is what remains."""
    _, start, truth, ends = case("generative")
    sizes, errors, sampler = [32, 64, 128], [], dmm.PredictorCorrector(size=1.0)
    for n in sizes:
        _, variance = propagate(sampler, generative, jnp.linspace(*ends, n + 1), start, 3)
        errors.append(abs(variance - float(truth[1])))
    assert 0.8 < -fitted_order(sizes, errors) < 1.5
    assert errors[-1] < 0.01


@x64
def test_corrector_mixes():
    """And it does move points: a start in the wrong place ends nearer to the law."""
    tau, start = 0.5, (1.5, 0.2)
    corrector = dmm.PredictorCorrector(predictor=Rest(), corrections=4, size=0.1)
    mean, _ = propagate(corrector, generative, jnp.array([tau + 1, tau]), start, 8)
    target = float(marginal(tau)[0])
    assert abs(mean - target) < 0.6 * abs(start[0] - target)


# --- Chains --------------------------------------------------------------------------------------


def step_matrix(process, states, h):
    """P(x → y) of one first-order step, from `log_step`."""

    def row(x):
        return jax.vmap(lambda y: jnp.exp(process.log_step(x, y, h)))(states)

    return jax.vmap(row)(states)


def chain():
    return _chain(jax.config.jax_enable_x64)


@functools.cache
def _chain(double):
    """A chain on 2 coordinates of 3 states, its points, its law at τ and its generative process."""
    p = matrix_chain((2,), THREE)
    states = jnp.asarray(list(itertools.product(range(3), repeat=2)), jnp.int32)
    data = np.array([0.3, 0.7])
    starts = jnp.array([[0, 1], [2, 2]], jnp.int32)

    def log_law(x, tau):
        logs = jnp.stack([p.log_transition(x, x0, tau) for x0 in starts])
        return jax.nn.logsumexp(logs + np.log(data))

    def at(tau):
        return p.reverse(lambda x: p.score(lambda y: log_law(y, tau), x))

    law = jax.jit(lambda tau: jax.vmap(lambda x: jnp.exp(log_law(x, tau)))(states))
    return p, states, law, at


@x64
def test_euler_on_a_chain_has_order_one():
    """The law after n generative steps, by products of exact step matrices."""
    _, states, law, at = chain()
    matrix = jax.jit(lambda tau, h: step_matrix(at(tau), states, h))
    sizes, errors = [16, 32, 64], []
    for n in sizes:
        taus = np.linspace(1.5, 0.2, n + 1)
        probabilities = np.asarray(law(1.5))
        for tau, next_tau in itertools.pairwise(taus):
            probabilities = probabilities @ np.asarray(matrix(tau, tau - next_tau))
        errors.append(0.5 * np.sum(np.abs(probabilities - np.asarray(law(0.2)))))
    assert 0.85 < -fitted_order(sizes, errors) < 1.3
    assert errors[-1] < 0.02


@x64
def test_corrector_leaves_the_law_invariant_on_a_chain():
    """A step of the generative process and one of the noising, as on the line: O(h²)."""
    p, states, law, at = chain()
    probabilities = np.asarray(law(0.5))

    @jax.jit
    def corrected(h):
        return step_matrix(at(0.5), states, h) @ step_matrix(p, states, h)

    sizes = [0.1, 0.05, 0.025]
    errors = [
        np.sum(np.abs(probabilities @ np.asarray(corrected(h)) - probabilities)) for h in sizes
    ]
    assert 1.7 < fitted_order(sizes, errors) < 2.2


def test_predictor_corrector_runs_on_a_chain():
    """With Euler for predictor, points stay states and the law is near the exact one: total
    variation under 0.06, where Monte Carlo over 4,096 points leaves 0.02."""
    _, states, law, at = chain()
    sampler = dmm.PredictorCorrector(predictor=dmm.Euler(), corrections=2, size=0.5)
    taus = jnp.linspace(1.5, 0.2, 33)

    @jax.jit
    @jax.vmap
    def draws(key):
        start_key, key = jax.random.split(key)
        start = states[jax.random.categorical(start_key, jnp.log(law(1.5)))]
        return dmm.simulate(key, sampler, at, start, taus)

    x = np.asarray(draws(jax.random.split(jax.random.key(3), 4096)))
    counts = np.bincount(x[:, 0] * 3 + x[:, 1], minlength=9) / len(x)
    assert 0.5 * np.sum(np.abs(counts - np.asarray(law(0.2)))) < 0.06


# --- Probability flow ----------------------------------------------------------------------------


def flow_map(x, tau, next_tau):
    """The exact flow of Gaussian laws: standardise at one time, restore at the other."""
    (mean, variance), (next_mean, next_variance) = marginal(tau), marginal(next_tau)
    return next_mean + (x - mean) * jnp.sqrt(next_variance / variance)


@x64
def test_adaptive_flow_is_the_exact_flow_map():
    """In two grid steps, within ten times the tolerance."""
    x = jnp.array([1.7])
    taus = jnp.array([LATE, 0.7, EARLY])
    sampler = dmm.AdaptiveFlow(rtol=1e-8, atol=1e-8)
    end = jax.jit(lambda x: dmm.simulate(jax.random.key(0), sampler, generative, x, taus))(x)
    np.testing.assert_allclose(end, flow_map(x, LATE, EARLY), rtol=1e-7)


@pytest.mark.parametrize(
    "sampler", [dmm.ProbabilityFlow(), dmm.AdaptiveFlow()], ids=lambda s: type(s).__name__
)
def test_flow_of_a_product_is_the_factors_flows(sampler):
    """In float32, each factor at its own speed."""
    slow, fast = line_process(), line_process(horizon=5.0)
    pair = dmm.ProductProcess(slow, fast)

    def at(tau):
        return pair.reverse(lambda x: (exact_score(x[0], tau), exact_score(x[1], tau / 2)))

    x = (jnp.array([1.7]), jnp.array([-0.4]))
    taus = jnp.linspace(LATE, 2 * EARLY, 200)
    ends = jax.jit(lambda x: dmm.simulate(jax.random.key(0), sampler, at, x, taus))(x)
    np.testing.assert_allclose(ends[0], flow_map(x[0], LATE, 2 * EARLY), rtol=1e-3)
    np.testing.assert_allclose(ends[1], flow_map(x[1], LATE / 2, EARLY), rtol=1e-3)


@pytest.mark.parametrize("sampler", [dmm.Euler(), dmm.Heun()], ids=["Euler", "Heun"])
def test_step_of_a_product_is_its_factors_steps(sampler):
    """From the same normals, each factor at its own speed."""
    slow, fast = line_process(), line_process(dmm.CriticallyDamped, horizon=5.0)
    pair, x = dmm.ProductProcess(slow, fast), (jnp.array([1.7]), jnp.array([[0.4], [-0.9]]))
    z, h = (jnp.array([0.6]), jnp.array([[-1.1], [0.3]])), 0.2

    def step(process, x, z, h):
        with feeding(normal=z):
            return sampler.step(jax.random.key(0), lambda tau: process, x, 0.0, h)

    together = step(pair, x, z, h)
    np.testing.assert_allclose(together[0], step(slow, x[0], z[:1], h), rtol=1e-6)
    np.testing.assert_allclose(together[1], step(fast, x[1], z[1:], 0.5 * h), rtol=1e-6)


def test_flow_ignores_the_key():
    x, taus = jnp.array([1.7]), jnp.linspace(LATE, EARLY, 10)
    one, two = (
        dmm.simulate(jax.random.key(seed), dmm.ProbabilityFlow(), generative, x, taus)
        for seed in (0, 1)
    )
    np.testing.assert_array_equal(one, two)


# --- simulate ------------------------------------------------------------------------------------


@over([row for row in DENSE if row.name in ("ou", "chain", "ou-damped")])
def test_path_starts_at_the_start_and_ends_at_the_end(row):
    p, x, taus = row.process, row.one_point(), jnp.linspace(0.1, 1.0, 6)
    simulate = functools.partial(
        dmm.simulate, jax.random.key(4), dmm.Euler(), lambda tau: p, x, taus
    )
    path, end = simulate(path=True), simulate()
    for states, start, last in zip(
        jax.tree.leaves(path), jax.tree.leaves(x), jax.tree.leaves(end), strict=True
    ):
        assert states.shape == (6, *start.shape)
        assert states.dtype == start.dtype
        np.testing.assert_array_equal(states[0], start)
        np.testing.assert_array_equal(states[-1], last)
        assert np.any(np.asarray(states[0] != states[-1])) or states.dtype == jnp.int32


def test_sampler_sees_every_interval_of_the_grid():
    """A sampler of a user's own: one that writes down the times it is given."""

    class Clock(dmm.Sampler):
        def step(self, key, at, x, tau, next_tau):
            return jnp.stack([tau, next_tau])

    taus = jnp.array([3.0, 1.0, 0.5, 0.0])
    path = dmm.simulate(jax.random.key(0), Clock(), noising, jnp.zeros(2), taus, path=True)
    np.testing.assert_array_equal(path[1:], [[3, 1], [1, 0.5], [0.5, 0]])


@pytest.mark.parametrize(
    ("sampler", "at", "message"),
    [
        (dmm.Heun(), lambda tau: matrix_chain(), "use Euler"),
        (dmm.ProbabilityFlow(), noising, "generative processes only"),
        (dmm.AdaptiveFlow(), noising, "generative processes only"),
        (dmm.PredictorCorrector(predictor=dmm.Euler()), noising, "generative processes only"),
    ],
    ids=["heun", "flow", "adaptive", "corrector"],
)
def test_a_sampler_refuses_what_it_cannot_simulate(sampler, at, message):
    process = at(1.0)
    x = jnp.zeros((), jnp.int32) if isinstance(process, dmm.Jump) else jnp.zeros(1)
    with pytest.raises(TypeError, match=message):
        dmm.simulate(jax.random.key(0), sampler, at, x, jnp.array([1.0, 0.5]))


def test_default_samplers():
    """Second order for diffusions, the bridge for chains, the first-order step for all else."""
    line = line_process()
    assert isinstance(dmm.default_sampler(line), dmm.Heun)
    assert isinstance(dmm.default_sampler(matrix_chain()), dmm.Bridge)
    assert isinstance(dmm.default_sampler(dmm.ProductProcess(line, line)), dmm.Euler)
