"""The linear guess of a posterior, and preconditioning around it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import dmm
from dmm.networks import Reader
from dmm.parameterisations.guessed import is_isotropic

KEY = jax.random.key(0)
TAUS = (1e-5, 1e-2, 0.3, 1.0, 10.0)
# x = Mθ + noise of deviation 0.3 with θ ~ N(0, I): Gaussian, and not along the axes.
MATRIX, NOISE = np.array([[1.0, 0.5], [-0.3, 2.0], [0.4, 0.1]]), 0.3
COVARIANCE = np.linalg.inv(np.eye(2) + MATRIX.T @ MATRIX / NOISE**2)
GAIN = COVARIANCE @ MATRIX.T / NOISE**2


def exact() -> dmm.Guessed:
    """The true posterior as a guess."""
    variances, basis = np.linalg.eigh(COVARIANCE)
    parts = GAIN.T @ basis, np.zeros(2), np.sqrt(variances), basis
    return dmm.Guessed(*(jnp.asarray(part) for part in parts))


def pairs(n):
    random = np.random.default_rng(0)
    theta = random.normal(size=(n, 2))
    return jnp.asarray(theta), jnp.asarray(theta @ MATRIX.T + NOISE * random.normal(size=(n, 3)))


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.usefixtures("x64")
def test_where_the_guess_is_right_nothing_is_left_to_learn(tau):
    """The score of N(m c, m² C + v I) at an output of 0."""
    process, xi = dmm.OrnsteinUhlenbeck(dmm.Euclidean(2)), jnp.array([0.7, -2.0, 0.3])
    x = jnp.array([0.4, -1.5])
    found = exact().given(xi, 1.0).score(process, jnp.zeros(2), x, jnp.asarray(tau))
    m, v = np.exp(-0.5 * tau), -np.expm1(-tau)
    covariance = m**2 * COVARIANCE + v * np.eye(2)
    wanted = -np.linalg.solve(covariance, np.asarray(x) - m * GAIN @ np.asarray(xi))
    assert np.allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("kind", [dmm.OrnsteinUhlenbeck, dmm.Brownian])
@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.usefixtures("x64")
def test_without_the_observation_it_is_preconditioned_as_ever(kind, tau):
    process, x = kind(dmm.Euclidean(2)), jnp.array([0.4, -1.5])
    turned = jnp.array([0.3, 0.2])
    head, plain = exact(), dmm.Preconditioned()
    found = head.given(jnp.ones(3), 0.0).score(process, turned, x, jnp.asarray(tau))
    wanted = plain.score(process, head.basis @ turned, x, jnp.asarray(tau))
    assert np.allclose(found, wanted, rtol=1e-10)
    inputs = head.given(jnp.ones(3), 0.0).inputs(process, x, jnp.asarray(tau))
    assert np.allclose(inputs[:2], plain.inputs(process, x, jnp.asarray(tau)), rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_a_product_is_treated_as_one_vector():
    one = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
    both, whole = dmm.ProductProcess(one, one), dmm.OrnsteinUhlenbeck(dmm.Euclidean(2))
    head, tau = exact().given({"a": jnp.ones(1), "b": jnp.ones(2)}, 1.0), jnp.asarray(0.2)
    x, output = jnp.array([0.4, -1.5]), jnp.array([1.0, 0.5])
    split = (x[:1], x[1:])
    wanted = head.score(whole, output, x, tau)
    assert np.allclose(jnp.concatenate(head.score(both, output, split, tau)), wanted)
    assert np.allclose(head.inputs(both, split, tau), head.inputs(whole, x, tau))
    assert head.outputs(both, split).shape == (2,)


@pytest.mark.parametrize(
    ("process", "fits"),
    [
        (dmm.OrnsteinUhlenbeck(dmm.Euclidean(2)), True),
        (dmm.Brownian(dmm.Euclidean((2, 2))), True),
        (dmm.CriticallyDamped(dmm.Euclidean(2)), False),
        (dmm.Jacobi(dmm.Box([0.0], [1.0])), False),
        (dmm.default_process(dmm.Product(dmm.Euclidean(1), dmm.Euclidean(3))), True),
        (dmm.default_process(dmm.Product(dmm.Euclidean(1), dmm.Torus(1))), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_it_knows_for_which_processes_it_is(process, fits):
    assert is_isotropic(process) == fits


def test_a_regression_finds_the_posterior_of_a_linear_simulator():
    """Twenty thousand pairs: slopes to 0.007 by theory, times the root of the slopes' number."""
    guess = dmm.linear_guess(KEY, *pairs(20_000))
    assert np.allclose(guess.slope @ guess.basis.T, GAIN.T, atol=0.03)
    found = guess.basis @ np.diag(guess.width**2) @ guess.basis.T
    assert np.allclose(found, COVARIANCE, atol=0.05 * COVARIANCE.max())
    assert np.allclose(guess.offset, 0, atol=0.01)


def test_useless_observations_give_the_prior():
    """Forty regressors of noise and fifty pairs: the ridge keeps what is predicted near 0."""
    random = np.random.default_rng(1)
    theta, x = random.normal(size=(50, 1)), random.normal(size=(50, 40))
    guess = dmm.linear_guess(KEY, jnp.asarray(theta), jnp.asarray(x))
    predicted = random.normal(size=(1000, 40)) @ np.asarray(guess.slope)
    assert predicted.std() < 0.5  # least squares: 1.9
    assert 0.75 < float(guess.width[0]) < 1.3
    wide = dmm.linear_guess(KEY, jnp.asarray(theta), jnp.asarray(random.normal(size=(50, 1001))))
    assert np.all(np.asarray(wide.slope) == 0)
    one = dmm.linear_guess(KEY, jnp.zeros((1, 2)), jnp.zeros((1, 3)))
    assert np.allclose(one.width, 1)
    assert np.all(np.asarray(one.slope) == 0)
    for seed in range(5):  # of three pairs and two regressors, a plane goes through all
        random = np.random.default_rng(seed)
        few = dmm.linear_guess(KEY, *(jnp.asarray(random.normal(size=(3, 2))) for _ in range(2)))
        assert np.all(np.asarray(few.width) > 0.02)
    with pytest.raises(ValueError, match="points: are empty"):
        dmm.linear_guess(KEY, jnp.zeros((0, 2)), jnp.zeros((0, 3)))


TINY = {"steps": 2, "batch_size": 16, "width": 8, "depth": 1, "progress": False, "key": KEY}


def test_a_posterior_starts_from_its_guess():
    """After two steps of training: the very posterior, where it is Gaussian."""
    prior = dist.Normal(jnp.zeros(2), 1.0).to_event(1)
    posterior = dmm.infer(prior, simulations=pairs(5_000), **TINY)
    assert isinstance(posterior.model.parameterisation, dmm.Guessed)
    xi = jnp.array([0.7, -2.0, 0.3])
    drawn = np.asarray(posterior.sample(KEY, 4_000, given=xi, steps=50))
    deviations = np.sqrt(np.diag(COVARIANCE))
    # Standard errors: 0.016 deviations of a mean of draws, 0.02 to 0.04 of the regression.
    assert np.all(np.abs(drawn.mean(0) - GAIN @ np.asarray(xi)) < 0.2 * deviations)
    assert np.allclose(drawn.std(0), deviations, rtol=0.1)


def test_dicts_and_hidden_observations_have_it_too():
    prior = {"a": dist.Normal(0.0, 1.0), "b": dist.Gamma(2.0, 1.0)}

    def simulate(key, theta):
        return jnp.stack([theta["a"], theta["b"]]) + 0.1 * jax.random.normal(key, (2,))

    posterior = dmm.infer(prior, simulate, simulations=200, drop_given=0.5, **TINY)
    assert isinstance(posterior.model.parameterisation, dmm.Guessed)
    drawn = posterior.sample(KEY, 20, given=jnp.ones(2), steps=5, guidance=1.5)
    assert all(bool(jnp.isfinite(values).all()) for values in drawn.values())
    fresh = dmm.infer(prior, simulate, **TINY)
    assert isinstance(fresh.model.parameterisation, dmm.Guessed)


@pytest.mark.parametrize(
    "settings",
    [
        {"parameterisation": dmm.Preconditioned()},
        {"network": dmm.MLP(KEY, jnp.zeros(2), jnp.zeros(2), jnp.zeros(3), width=8, depth=1)},
        {"network": lambda *shapes: dmm.MLP(*shapes, width=8, depth=1)},
    ],
    ids=["parameterisation", "network", "maker of a network"],
)
def test_what_is_chosen_stays(settings):
    prior = dist.Normal(jnp.zeros(2), 1.0).to_event(1)
    posterior = dmm.infer(prior, simulations=pairs(100), **(TINY | settings))
    assert isinstance(posterior.model.parameterisation, dmm.Preconditioned)


def test_a_network_reads_an_observation_once():
    """What it has read stands for it, whether alone or behind an embedding."""
    x, given = jnp.ones(2), jnp.ones(3)
    alone = dmm.Centred(KEY, x, x, given, width=8, depth=1)
    behind = dmm.Embedded(
        KEY, x, x, given, embedding=lambda key, given: Doubled(), network=dmm.Centred
    )
    for network in (alone, behind):
        assert isinstance(network, Reader)
        assert network(x, jnp.asarray(0.1), network.read(given)).shape == (2,)
    assert np.array_equal(behind.read(given)[0], 2 * given)


class Doubled(dmm.networks.Reader):
    """Not a network: it stands for an embedding."""

    def read(self, given):
        return given

    def __call__(self, given):
        return 2 * given


def test_products_are_exact_unless_the_user_says_otherwise():
    """The precision asked of the products in what an accelerator would run."""

    @dmm.inference.precision.in_full_precision
    def traced():
        return str(jax.make_jaxpr(jnp.matmul)(jnp.eye(2), jnp.eye(2)))

    assert "HIGHEST" in traced()
    with jax.default_matmul_precision("bfloat16"):
        assert "HIGHEST" not in traced()


def test_a_guess_needs_observations():
    with pytest.raises(ValueError, match="parameterisation: Guessed looks at observations"):
        dmm.fit(
            jnp.zeros((10, 2)), space=dmm.Euclidean(2), key=KEY, steps=1, parameterisation=exact()
        )


def test_a_posterior_with_a_guess_is_saved_and_composes(tmp_path):
    prior = dist.Normal(jnp.zeros(2), 1.0).to_event(1)
    posterior = dmm.infer(prior, simulations=pairs(500), drop_given=0.3, **TINY)
    posterior.save(tmp_path / "p.dmm")
    loaded, xi = dmm.load_posterior(tmp_path / "p.dmm"), jnp.ones((2, 3))
    drawn = [p.sample(KEY, 5, given=xi, independent=True, steps=20) for p in (posterior, loaded)]
    assert np.array_equal(*drawn)
    assert np.all(np.isfinite(drawn[0]))
