"""Posteriors: of simulators whose posterior is known, in the form and the support of the prior."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import dmm
from dmm.networks.observations import Observations, Standardised

# On one worker, for one fit and what it compiles serve most of the tests.
pytestmark = pytest.mark.xdist_group("infer")

SMALL = {"width": 64, "depth": 2, "steps": 4000, "batch_size": 256, "learning_rate": 3e-3}
TINY = {"width": 16, "depth": 1, "steps": 10, "batch_size": 16, "progress": False}
KEY = jax.random.key(0)


def bounded(key, theta):
    """One number about each of two parameters."""
    return theta + 0.2 * jax.random.normal(key, (2,))


@pytest.fixture(scope="module")
def posterior():
    """Uniform on [0, 1] × [−1, 1], seen with noise of 0.2."""
    prior = dist.Uniform(jnp.array([0.0, -1.0]), 1.0)
    return dmm.infer(prior, bounded, key=KEY, progress=False, **SMALL)


def exact(x, low, high, noise=0.2):
    """Mean and deviation of a normal law cut to an interval, by quadrature."""
    grid = np.linspace(low, high, 4001)
    weight = np.exp(-0.5 * ((np.asarray(x) - grid) / noise) ** 2)
    mean = (grid * weight).sum() / weight.sum()
    return mean, ((grid - mean) ** 2 * weight).sum() ** 0.5 / weight.sum() ** 0.5


# --- What comes out ------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [(0.5, 0.0), (0.95, -0.9)])
def test_draws_have_the_law_of_the_posterior(posterior, x):
    theta = np.asarray(posterior.sample(KEY, 2000, given=jnp.array(x)))
    for i, low in enumerate((0.0, -1.0)):
        mean, deviation = exact(x[i], low, 1.0)
        # Two thousand draws: 0.0045 standard error of the mean; the rest is the fit's.
        assert abs(theta[:, i].mean() - mean) < 0.025
        assert abs(theta[:, i].std() - deviation) < 0.02
        assert theta[:, i].min() >= low
        assert theta[:, i].max() <= 1.0


def test_the_density_is_the_posterior(posterior):
    """In the user's units: mass 1 on a grid, and the exact density."""
    x = jnp.array([0.7, -0.2])
    a, b = np.linspace(0.05, 0.95, 10), np.linspace(-0.95, 0.95, 20)
    theta = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    found = np.exp(posterior.log_prob(theta, given=x, steps=30))
    assert abs(found.mean() * 2 - 1) < 0.1
    squares = np.sum((theta - np.asarray(x)) ** 2, 1)
    truth = np.exp(-0.5 * squares / 0.04)
    truth /= truth.mean() * 2
    # A small fit is off by a twentieth in total variation; without the slope of the map to the
    # line, by more than a third.
    assert np.abs(found - truth).mean() < 0.2 * truth.mean()


def test_the_mode_is_found(posterior):
    """Inside, and at the bound where the likelihood leads out."""
    mode, log_prob = posterior.map(KEY, given=jnp.array([0.4, 0.3]), draws=64, rounds=15, steps=20)
    assert np.allclose(mode, [0.4, 0.3], atol=0.06)
    assert abs(log_prob - np.log(1 / (2 * np.pi * 0.04))) < 0.3


def test_weights_mend_the_posterior(posterior):
    x = jnp.array([0.9, 0.5])

    def log_likelihood(theta, x):
        return jnp.sum(-0.5 * ((x - theta) / 0.2) ** 2 - jnp.log(0.2 * jnp.sqrt(2 * jnp.pi)))

    weighted = posterior.reweighted(KEY, 500, given=x, log_likelihood=log_likelihood, steps=40)
    assert weighted.effective_size > 300
    # The evidence in closed form: the mass of each normal law inside the bounds, over the width.
    normal = dist.Normal(jnp.array([0.9, 0.5]), 0.2)
    mass = normal.cdf(jnp.ones(2)) - normal.cdf(jnp.array([0.0, -1.0]))
    assert abs(weighted.log_evidence - float(jnp.log(mass).sum() - jnp.log(2.0))) < 0.1
    resampled = np.asarray(weighted.resample(jax.random.key(1), 4000))
    assert abs(resampled[:, 0].mean() - exact(0.9, 0.0, 1.0)[0]) < 0.03


def test_an_observation_out_of_range_is_warned_of(posterior):
    with pytest.warns(dmm.MisspecificationWarning, match="number 1"):
        posterior.sample(KEY, 10, given=jnp.array([0.5, 9.0]), steps=5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior.sample(KEY, 10, given=jnp.array([[0.5, 0.5], [1.1, -1.2]]), steps=5)


def test_a_posterior_is_saved_whole(posterior, tmp_path):
    posterior.save(tmp_path / "p.dmm")
    loaded = dmm.load_posterior(tmp_path / "p.dmm")
    x = jnp.array([0.5, 0.5])
    one, other = (p.sample(KEY, 20, given=x, steps=10) for p in (posterior, loaded))
    assert np.array_equal(one, other)
    assert loaded.names == ["theta[0]", "theta[1]"]
    with pytest.raises(ValueError, match="this posterior has none"):
        loaded.reweighted(KEY, 10, given=x, log_likelihood=lambda t, x: 0.0)


def test_draws_go_to_arviz(posterior):
    pytest.importorskip("arviz", reason="an extra: pip install '.[arviz]'")
    data = posterior.to_arviz(KEY, 50, given=jnp.array([0.5, 0.5]), steps=5)
    assert data.posterior["theta"].shape == (1, 50, 2)
    assert np.allclose(data.observed_data["x"], [0.5, 0.5])


# --- Several observations ------------------------------------------------------------------------


def test_observations_compose_under_a_uniform_prior(posterior):
    """The prior is the reference, whose score is known: nothing is NaN, nothing outside."""
    xs = jnp.array([[0.6, 0.2], [0.5, 0.1], [0.9, -0.1], [0.7, 0.3]])
    theta = np.asarray(posterior.sample(KEY, 1000, given=xs, independent=True))
    assert np.all(np.isfinite(theta))
    assert theta[:, 0].min() >= 0
    assert theta[:, 0].max() <= 1
    for i, low in enumerate((0.0, -1.0)):
        mean, _ = exact(xs[:, i].mean(), low, 1.0, noise=0.1)
        assert abs(theta[:, i].mean() - mean) < 0.05
        # Half as wide as given one, 0.2, but for the fit's errors, which add up.
        assert 0.08 < theta[:, i].std() < 0.15


class Conjugate(eqx.Module):
    """The very score of θ ~ N(0, 1) seen with noise of variance v, under Ornstein–Uhlenbeck."""

    variance: float

    def __call__(self, x, tau, given=None, present=1.0):
        shrunk = 1 / (1 + self.variance)
        mean = present * shrunk * given
        spread = jnp.where(present > 0, self.variance * shrunk, 1.0)
        kept = jnp.exp(-tau)
        return -(x - jnp.sqrt(kept) * mean) / (spread * kept + 1 - kept)


def test_composed_draws_are_exact_where_scores_are():
    process = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
    schedule = dmm.default_schedule(process)
    model = dmm.Model(
        process, schedule, schedule, dmm.PredictScore(), Conjugate(0.5), dmm.Identity(),
        Observations(Standardised(jnp.zeros(1), jnp.ones(1))),
        jax.ShapeDtypeStruct((1,), jnp.float32), 0.1,
    )  # fmt: skip
    xs = jnp.array([0.3, 1.2, -0.4, 0.8, 2.0, 1.1, 0.1, 0.9])[:, None]
    theta = np.asarray(dmm.sample_composed(model, KEY, 4000, given=xs))
    precision = 1 + 8 / 0.5
    # Five standard errors, 0.0038 each, and a hundredth of the deviation for the steps.
    assert abs(theta.mean() - float(xs.sum()) / 0.5 / precision) < 5 * 0.0038 + 0.0025
    assert abs(theta.std() * precision**0.5 - 1) < 5 * 0.0112 + 0.01


def test_composition_says_what_it_needs(posterior):
    prior = dist.Normal(jnp.zeros(2), 1.0)
    plain = dmm.infer(prior, bounded, key=KEY, simulations=100, **TINY)
    with pytest.raises(ValueError, match=r"drop_given=0\.1"):
        plain.sample(KEY, 10, given=jnp.zeros((2, 2)), independent=True)
    with pytest.raises(ValueError, match="stacked"):
        posterior.sample(KEY, 10, given=jnp.zeros(2), independent=True)


# --- Priors --------------------------------------------------------------------------------------

SUPPORTS = {
    "real": (dist.Normal(jnp.zeros(2), 1.0), dmm.Euclidean(2)),
    "scalar": (dist.Normal(0.0, 1.0), dmm.Euclidean(1)),
    "correlated": (dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)), dmm.Euclidean(3)),
    "positive": (dist.LogNormal(jnp.zeros(2), 1.0), dmm.PositiveReals(2)),
    "interval": (dist.Uniform(-1.0, 3.0), dmm.Box(-1.0, 3.0)),
    "unit interval": (dist.Beta(2.0, 3.0), dmm.Box(0.0, 1.0)),
    "truncated": (dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0), dmm.Box(-1.0, 2.0)),
    "simplex": (dist.Dirichlet(jnp.ones(4)), dmm.Simplex(4)),
    "circle": (dist.VonMises(0.0, 1.0), dmm.Torus(1)),
    "counts": (dist.Poisson(4.0), dmm.Counts(1)),
    "levels": (dist.Binomial(5, 0.3), dmm.Finite(1, 6, ordered=True)),
    "labels": (dist.Categorical(jnp.ones(3) / 3), dmm.Finite(1, 3)),
    "switch": (dist.Bernoulli(0.3), dmm.Finite(1, 2)),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_the_space_follows_from_the_support(name):
    law, space = SUPPORTS[name]
    for warp in (True, False):
        prior = dmm.Prior(law, warp=warp)
        assert prior.support == space
        theta = prior.sample(KEY, 50)
        checked = prior.parameters.check(theta)
        assert np.array_equal(checked, theta)
        points = jax.vmap(prior.parameters.point)(theta)
        assert bool(jnp.all(jax.vmap(prior.space.contains)(points)))
        back = jax.vmap(prior.parameters.value)(points)
        assert np.allclose(back, theta, atol=2e-6)
        assert back.shape == theta.shape
    assert prior.space == space


@pytest.mark.parametrize(
    "law", [dist.Gamma(2.0, 1.0), dist.Uniform(-1.0, 3.0), dist.Beta(2.0, 3.0)]
)
def test_warps_keep_densities_and_bounds(law):
    """∂z/∂θ by differentiation; and no number on the line, however far, is outside."""
    parameters = dmm.Prior(law).parameters
    theta = law.sample(KEY, (20,))
    points = jax.vmap(parameters.point)(theta)
    slopes = jax.vmap(jax.jacfwd(parameters.point))(theta)[:, 0]
    assert np.allclose(jax.vmap(parameters.log_slope)(points), np.log(slopes), atol=1e-3)
    far = jax.vmap(parameters.value)(jnp.array([[-1e6], [-30.0], [30.0], [1e6]]))
    assert bool(jnp.all(law.support(far)))
    assert bool(jnp.all(jnp.isfinite(jax.vmap(law.log_prob)(far))))


def test_bounds_on_one_side_are_kept():
    """A support with an upper bound alone is that of positive numbers, turned over."""
    turned = dist.transforms.AffineTransform(3.0, -1.0, domain=dist.constraints.positive)
    below = dist.TransformedDistribution(dist.Gamma(2.0, 1.0), [turned])
    above = dist.Pareto(2.0, 3.0)
    for law in (below, above):
        prior = dmm.Prior(law, warp=False)
        theta = prior.sample(KEY, 50)
        points = jax.vmap(prior.parameters.point)(theta)
        assert prior.space == dmm.PositiveReals(1)
        assert float(points.min()) > 0
        warped = dmm.Prior(law).parameters
        back = jax.vmap(warped.value)(jax.vmap(warped.point)(theta))
        assert np.allclose(back, theta, rtol=1e-5)
        assert np.allclose(jax.vmap(prior.parameters.value)(points), theta, rtol=1e-5)


def test_a_mixed_prior_has_draws_of_its_form_and_support():
    """Leakage is impossible, trained or not: continuous, bounded, counted, labelled, at once."""
    prior = {
        "rate": dist.Gamma(2.0, 1.0),
        "share": dist.Uniform(0.0, 1.0),
        "parts": dist.Dirichlet(jnp.ones(3)),
        "number": dist.Poisson(3.0),
        "kind": dist.Categorical(jnp.ones(4) / 4),
    }

    def simulator(key, theta):
        return jnp.stack([theta["rate"], theta["share"], theta["number"] + theta["kind"] + 0.0])

    posterior = dmm.infer(prior, simulator, key=KEY, simulations=300, **TINY)
    assert posterior.names == [
        "rate",
        "share",
        "parts[0]",
        "parts[1]",
        "parts[2]",
        "number",
        "kind",
    ]
    theta = posterior.sample(KEY, 200, given=jnp.array([1.0, 0.5, 3.0]), steps=20)
    assert set(theta) == set(prior)
    assert float(theta["rate"].min()) > 0
    assert 0 <= float(theta["share"].min()) <= float(theta["share"].max()) <= 1
    assert np.allclose(theta["parts"].sum(1), 1, atol=1e-5)
    assert theta["number"].dtype == jnp.int32
    assert int(theta["number"].min()) >= 0
    assert set(np.unique(theta["kind"])) <= {0, 1, 2, 3}
    several = posterior.sample(KEY, 5, given=jnp.ones((3, 3)), steps=5)
    assert several["parts"].shape == (3, 5, 3)
    assert posterior.parameters.flat(several).shape == (3, 5, 7)


def test_a_model_fitted_to_pairs_is_the_same_posterior():
    theta = jax.random.uniform(KEY, (200, 2))
    model = dmm.fit(theta, given=theta, space=dmm.Box([0.0, 0.0], 1.0), key=KEY, steps=5)
    posterior = dmm.Posterior(model)
    x = jnp.array([0.5, 0.5])
    assert np.array_equal(
        posterior.sample(KEY, 10, given=x, steps=5), model.sample(KEY, 10, given=x, steps=5)
    )
    assert posterior.log_prob(theta[:3], given=x, steps=5).shape == (3,)
    pairs = dmm.infer(dist.Uniform(jnp.zeros(2), 1.0), simulations=(theta, theta), key=KEY, **TINY)
    assert pairs.sample(KEY, 10, given=x, steps=5).shape == (10, 2)


def test_pairs_that_are_not_finite_are_left_out():
    theta = np.linspace(0.1, 0.9, 40)[:, None]
    x = np.where(theta > 0.8, np.nan, theta)
    with pytest.warns(UserWarning, match="5 of 40 hold NaN"):
        dmm.infer(dist.Uniform(jnp.zeros(1), 1.0), simulations=(theta, x), key=KEY, **TINY)


def test_a_prior_beside_a_model_on_its_support_leaves_points_as_they_are():
    theta = jax.random.uniform(KEY, (100, 1))
    model = dmm.fit(theta, given=theta, space=dmm.Box(0.0, 1.0), key=KEY, steps=3)
    posterior = dmm.Posterior(model, prior=dist.Uniform(jnp.zeros(1), 1.0))
    x = jnp.array([0.5])
    assert np.array_equal(
        posterior.sample(KEY, 9, given=x, steps=3), model.sample(KEY, 9, given=x, steps=3)
    )
    with pytest.raises(ValueError, match="prior"):
        dmm.Posterior(model, prior=dist.Gamma(jnp.ones(1), 1.0))


@pytest.mark.parametrize("bad", [[np.nan], [2.5]])
def test_counts_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match="theta"):
        dmm.Prior(dist.Poisson(jnp.ones(1))).parameters.check(np.array([bad]))


def test_one_draw_without_a_density_does_not_spoil_the_weights():
    from dmm.inference.reweighting import reweighted

    weighted = reweighted(
        jnp.arange(3.0)[:, None], None, log_prior=lambda t: jnp.zeros(()),
        log_likelihood=lambda t, x: jnp.zeros(()), log_proposal=jnp.array([0.0, jnp.nan, 0.0]),
    )  # fmt: skip
    assert np.allclose(weighted.weights, [0.5, 0.0, 0.5])


# --- Bad input -----------------------------------------------------------------------------------


def refused(match, *args, error=ValueError, **kwargs):
    with pytest.raises(error, match=match):
        dmm.infer(*args, key=KEY, **(TINY | kwargs))


def test_what_cannot_be_inferred_is_named():
    prior = dist.Normal(jnp.zeros(2), 1.0)
    refused("simulations: how many", prior, lambda theta: theta)
    refused("simulator: is needed", prior, simulations=100)
    refused("no simulator beside", prior, bounded, simulations=(np.zeros((9, 2)), np.zeros((9, 2))))
    refused(r"theta: expected shape \(n, 2\)", prior, simulations=(np.zeros((9, 3)), np.zeros(9)))
    refused("NumPyro distribution", 3.0, bounded)
    refused("no space is known", dist.LKJCholesky(3), bounded)
    jacobi = dmm.Jacobi(dmm.Box([0.0], [1.0]))
    refused("warp=False", dist.Uniform(jnp.zeros(1), 1.0), bounded, process=jacobi)
    refused("need an `observation`", prior, bounded, rounds=2, simulations=100)
    refused("embedding: choose from set, series, image", prior, bounded, embedding="sets")
    refused("reshape m numbers", prior, bounded, simulations=50, embedding="set")
    refused("hold NaN", prior, lambda key, theta: theta / 0, error=dmm.SimulationError)
    outside = (np.full((9, 1), 2.0), np.zeros((9, 1)))
    refused(
        "theta: row 0 and 8 others lie outside the prior's support",
        dist.Uniform(jnp.zeros(1), 1.0),
        simulations=outside,
    )


def test_a_wrong_observation_is_named(posterior):
    with pytest.raises(ValueError, match="given: expected one observation of shape"):
        posterior.sample(KEY, 10, given=jnp.zeros(3))
    with pytest.raises(ValueError, match="given: holds NaN"):
        posterior.sample(KEY, 10, given=jnp.array([0.0, jnp.nan]))
    with pytest.raises(ValueError, match="theta"):
        posterior.log_prob(jnp.array([[2.0, 0.0]]), given=jnp.zeros(2))
    with pytest.raises(ValueError, match="fitted without observations"):
        dmm.Posterior(
            dmm.fit(
                jnp.ones((9, 1)) * jnp.arange(9.0)[:, None],
                space=dmm.Euclidean(1),
                key=KEY,
                steps=1,
            )
        )


def test_a_run_goes_on_with_more_simulations(tmp_path):
    """The first are not simulated again; and the same call gives the finished posterior."""

    def simulator(theta, rng):
        (tmp_path / f"called_{len(list(tmp_path.glob('called_*')))}").touch()
        return theta + rng.normal(size=1)

    prior = dist.Normal(jnp.zeros(1), 1.0)
    settings = TINY | {"workers": 1, "run": tmp_path / "run", "key": KEY}
    for n in (40, 60, 60):
        last = dmm.infer(prior, simulator, simulations=n, **settings)
    assert len(list(tmp_path.glob("called_*"))) == 60
    again = dmm.infer(prior, simulator, simulations=60, **settings)
    x = jnp.zeros(1)
    assert np.array_equal(last.sample(KEY, 5, given=x), again.sample(KEY, 5, given=x))


# --- Rounds and references -----------------------------------------------------------------------


def test_rounds_look_where_the_posterior_is(tmp_path):
    """A parameter of N(0, 3²) seen with noise of 0.1: few simulations of the prior come near."""
    prior = dist.Normal(jnp.zeros(1), 3.0)

    def simulator(theta, rng):
        return theta + 0.1 * rng.normal(size=1)

    x = np.array([2.0])
    posterior = dmm.infer(
        prior, simulator, key=KEY, simulations=900, rounds=3, observation=x, run=tmp_path,
        width=32, depth=2, steps=600, batch_size=64, learning_rate=3e-3, progress=False,
    )  # fmt: skip
    last = np.load(tmp_path / "round_3" / "simulations" / "theta.npz")["theta_0"]
    assert len(last) == 300
    assert np.all(np.abs(last - 2.0) < 2.0)
    theta = np.asarray(posterior.sample(KEY, 1000, given=x))
    assert abs(theta.mean() - 2.0) < 0.1
    assert theta.std() < 0.3


def test_nuts_draws_the_posterior():
    """A conjugate one, of a dict of parameters: ten standard errors of 2000 draws at most."""
    prior = {"mean": dist.Normal(0.0, 1.0), "scale": dist.Gamma(3.0, 2.0)}
    x = jnp.array([0.5, 1.5, 1.0])

    def log_likelihood(theta, x):
        return jnp.sum(-0.5 * (x - theta["mean"]) ** 2)

    theta = dmm.nuts(prior, log_likelihood, x, key=KEY, n=2000, warmup=300)
    assert abs(float(theta["mean"].mean()) - 0.75) < 10 * 0.5 / 2000**0.5
    assert abs(float(theta["mean"].std()) - 0.5) < 0.05
    assert abs(float(theta["scale"].mean()) - 1.5) < 10 * 0.87 / 2000**0.5
