"""Training end to end: known laws are learned, in the user's units, and by every objective.

Statistical tests have fixed keys. Their margins are about three times the errors met when they
were written, so a right change of numerics passes and a wrong formula does not.
"""

import re
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.random import key
from jax.scipy.stats import norm

import dmm
from dmm.training.data import Arrays
from dmm.training.fitting import adam
from dmm.training.loop import Losses, Settings, train


def network(*shapes):
    return dmm.MLP(*shapes, width=32, depth=2)


def tiny(*shapes):
    return dmm.MLP(*shapes, width=4, depth=1)


def fit(data, space=None, *, steps=2000, **settings):
    """`dmm.fit` with the sizes of these tests."""
    chosen = {"network": network, "batch_size": 256, "learning_rate": 5e-3, "validation": 0.0}
    chosen |= {"key": key(0)} | settings
    return dmm.fit(data, space=space, steps=steps, **chosen)


def tiny_fit(data, space=None, *, steps=1, **settings):
    """A fit that only has to run."""
    chosen = {"network": tiny, "batch_size": 4, "block": steps, "ema": 0.0} | settings
    return fit(data, space, steps=steps, **chosen)


def weights(model):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(model.network, eqx.is_array))]


def same_bits(model, other):
    pairs = zip(weights(model), weights(other), strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


# Laws to learn: draws of shape (n, d), and the log-density at stacked points.

LINE, PLANE = dmm.Euclidean(1), dmm.Euclidean(2)
MEAN, COVARIANCE = jnp.array([1.0, -2.0]), jnp.array([[1.0, 0.8], [0.8, 1.0]])


def draw_gaussian(key, n):
    return jax.random.multivariate_normal(key, MEAN, COVARIANCE, (n,))


def log_gaussian(x):
    z = jnp.linalg.solve(jnp.linalg.cholesky(COVARIANCE), (x - MEAN[None, :]).T)
    return norm.logpdf(z).sum(0) - 0.5 * jnp.linalg.slogdet(COVARIANCE)[1]


WEIGHTS, CENTRES, WIDTH = jnp.array([0.7, 0.3]), jnp.array([-1.0, 1.5]), 0.4


def draw_mixture(key, n):
    which_key, noise_key = jax.random.split(key)
    which = jax.random.choice(which_key, 2, (n,), p=WEIGHTS)
    return (CENTRES[which] + WIDTH * jax.random.normal(noise_key, (n,)))[:, None]


def log_mixture(x):
    parts = norm.logpdf(x, CENTRES[None, :], WIDTH) + jnp.log(WEIGHTS)[None, :]
    return jax.nn.logsumexp(parts, axis=1)


def assert_learned(model, log_density, test, *, margin=0.06, bound_margin=0.1, **flow):
    """Mean log-likelihood and evidence bound at test points, against the truth in nats."""
    truth = log_density(test)
    flow = {"steps": 60} | flow
    log_likelihood = model.log_likelihood(test, **flow)
    assert log_likelihood.shape == truth.shape
    assert abs(jnp.mean(log_likelihood - truth)) < margin
    if isinstance(model.process, dmm.Tractable):
        bound = model.elbo(key(7), test, draws=64)
        assert abs(jnp.mean(bound - truth)) < bound_margin


def assert_moments(samples, truth, *, margin):
    """Means within a margin in standard deviations, standard deviations by that share."""
    samples, truth = np.asarray(samples), np.asarray(truth)
    spread = truth.std(0)
    np.testing.assert_allclose(samples.mean(0) / spread, truth.mean(0) / spread, atol=margin)
    np.testing.assert_allclose(samples.std(0) / spread, 1.0, atol=margin)


def assert_mixture(samples, *, margin=0.06):
    assert_moments(samples, draw_mixture(key(50), 100_000), margin=2 * margin)
    assert abs(np.mean(np.asarray(samples) > 0.25) - WEIGHTS[1]) < margin


def grouped(name):
    """Tests of one group run on one worker: what one compiles serves the others."""
    return pytest.param(name, marks=pytest.mark.xdist_group(name))


CASES = {
    "gaussian": (PLANE, draw_gaussian, log_gaussian, None, {}),
    "mixture": (LINE, draw_mixture, log_mixture, None, {}),
    "brownian": (LINE, draw_mixture, log_mixture, dmm.Brownian(LINE), {}),
    "critically damped": (
        LINE, draw_mixture, log_mixture, dmm.CriticallyDamped(LINE),
        {"steps": 200, "key": key(8), "draws": 4, "bound_margin": 0.2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", [grouped(name) for name in CASES])
def test_known_law(case):
    space, draw, log_density, process, options = CASES[case]
    model = fit(draw(key(1), 4096), space, process=process)
    assert_learned(model, log_density, draw(key(2), 256), **options)
    samples = model.sample(key(3), 2000, steps=60)
    assert_moments(samples, draw(key(4), 100_000), margin=0.1)
    if space == PLANE:
        assert abs(np.corrcoef(samples.T)[0, 1] - 0.8) < 0.05
    else:
        assert_mixture(samples)


def test_linear_gaussian_posterior():
    """θ ~ N(0, 1), y = θ + ε/2: the posterior is N(0.8 y, 0.2)."""
    theta, noise = jax.random.normal(key(1), (2, 8192))
    y = theta + 0.5 * noise
    model = fit(theta[:, None], LINE, given=y)
    observed = jnp.array([-1.5, 0.0, 1.0])
    samples = model.sample(key(2), 2000, given=observed, steps=60)[..., 0]
    assert samples.shape == (3, 2000)
    np.testing.assert_allclose(samples.mean(1), 0.8 * observed, atol=0.08)
    np.testing.assert_allclose(samples.var(1), 0.2, atol=0.04)
    truth = norm.logpdf(theta[:256], 0.8 * y[:256], 0.2**0.5)
    log_likelihood = model.log_likelihood(theta[:256, None], given=y[:256], steps=60)
    assert abs(jnp.mean(log_likelihood - truth)) < 0.05
    bound = model.elbo(key(3), theta[:256, None], given=y[:256])
    assert abs(jnp.mean(bound - truth)) < 0.08


@pytest.fixture(scope="module")
def classes():
    """Three classes at −2, 0 and 2 with spread 0.5, their labels hidden in part."""
    labels = np.random.default_rng(0).integers(0, 3, 4096)
    x = 2.0 * labels - 2 + 0.5 * np.random.default_rng(1).normal(size=4096)
    return fit(x[:, None], LINE, given=labels, drop_given=0.3)


@pytest.mark.xdist_group("classes")
def test_class_labels(classes):
    samples = classes.sample(key(1), 1000, given=np.array([0, 1, 2]), steps=60)[..., 0]
    np.testing.assert_allclose(samples.mean(1), [-2, 0, 2], atol=0.15)
    np.testing.assert_allclose(samples.std(1), 0.5, atol=0.1)
    one = classes.sample(key(1), 10, given=2, steps=60)
    assert one.shape == (10, 1)
    assert jnp.all(one > 0)


@pytest.mark.xdist_group("classes")
def test_guidance(classes):
    def sample(given, guidance):
        return classes.sample(key(2), 1000, given=given, guidance=guidance, steps=60)

    # Weight 0: the label has no say, and the law is that of all classes.
    unconditional = sample(0, 0.0)
    np.testing.assert_array_equal(unconditional, sample(2, 0.0))
    assert abs(unconditional.mean()) < 0.3
    assert abs(unconditional.std() - (8 / 3 + 0.25) ** 0.5) < 0.2
    # Weight 1, by the formula or by the shortcut: the conditional law.
    np.testing.assert_allclose(sample(2, 1.0), sample(2, 1 + 1e-6), atol=1e-3)
    # Beyond 1: away from the other classes.
    assert sample(2, 3.0).mean() > sample(2, 1.0).mean() + 0.1


@pytest.mark.xdist_group("classes")
def test_score_without_the_label(classes):
    x, tau = jnp.zeros(1), jnp.asarray(0.5)
    free = [classes.score(x, tau, jnp.asarray(label), 0.0) for label in range(3)]
    held = [classes.score(x, tau, jnp.asarray(label), 1.0) for label in range(3)]
    assert all(jnp.array_equal(free[0], score) for score in free)
    assert held[0] < held[1] < held[2]


def test_product_space():
    """A pair (a, b) with a ~ N(3, 4) and b = (a − 3)/2 + N(0, 1/4), in a line times a line."""

    def draw(key, n):
        a, noise = jax.random.normal(key, (2, n, 1))
        return 3 + 2 * a, a + 0.5 * noise

    def log_density(x):
        a, b = x
        return (norm.logpdf(a, 3, 2) + norm.logpdf(b, (a - 3) / 2, 0.5))[:, 0]

    model = fit(draw(key(1), 4096), dmm.Product(LINE, LINE))
    assert_learned(model, log_density, draw(key(2), 256))
    a, b = model.sample(key(3), 2000, steps=60)
    assert a.shape == b.shape == (2000, 1)
    assert_moments(a, draw(key(4), 100_000)[0], margin=0.1)
    assert_moments(b, draw(key(4), 100_000)[1], margin=0.1)
    assert abs(np.corrcoef(a[:, 0], b[:, 0])[0, 1] - 1 / 1.25**0.5) < 0.05


def stream_of(draw, n=256):
    def batches(step):
        while True:
            yield np.asarray(draw(key(step), n))
            step += 1

    return dmm.Stream(batches)


@pytest.mark.xdist_group("mixture")
@pytest.mark.parametrize("source", ["simulator", "stream"])
def test_other_sources_of_data(source):
    data = {
        "simulator": dmm.Simulator(lambda key: draw_mixture(key, 1)[0]),
        "stream": stream_of(draw_mixture),
    }[source]
    model = fit(data, LINE, steps=1000)
    test = draw_mixture(key(2), 256)
    assert abs(jnp.mean(model.log_likelihood(test, steps=60) - log_mixture(test))) < 0.06
    assert_mixture(model.sample(key(3), 2000, steps=60))


# Objectives, on a process whose units are the user's: the marginals are then known.


def log_noised_mixture(x, tau):
    """The law at τ of the mixture under Ornstein–Uhlenbeck."""
    decay = jnp.exp(-tau / 2)
    spread = jnp.sqrt(decay**2 * WIDTH**2 - jnp.expm1(-tau))
    return jax.nn.logsumexp(norm.logpdf(x[0], decay * CENTRES, spread) + jnp.log(WEIGHTS))


def inverse_weighting(process, schedule, tau):
    """λ = 1/τ, which makes of the autoencoder's loss under Brownian motion the denoising one."""
    return 1 / tau


OU = dmm.OrnsteinUhlenbeck(LINE)
OBJECTIVES = {
    "implicit": (OU, dmm.implicit, dmm.likelihood_weighting),
    "explicit": (OU, dmm.Explicit(log_noised_mixture), dmm.likelihood_weighting),
    "discrete time": (OU, dmm.DiscreteTime(ratio=0.05), dmm.likelihood_weighting),
    "autoencoder": (dmm.Brownian(LINE, 25.0), dmm.autoencoder, inverse_weighting),
    "variance weighting": (OU, dmm.denoising, dmm.variance_weighting),
}


def risk(model, objective, weighting):
    """The training loss on fresh points, with the same noise for every model."""
    n = 4096
    tau, weight = model.times.draw(key(1), n)
    keys, x = jax.random.split(key(2), n), draw_mixture(key(3), n)

    def loss(key, x, tau):
        value = objective(model.process, model.score, key, model.units.forward(x), tau)
        return weighting(model.process, model.schedule, tau) * value

    return jnp.mean(weight * jax.vmap(loss)(keys, x, tau))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objective(name):
    process, objective, weighting = OBJECTIVES[name]
    model = fit(
        draw_mixture(key(1), 8192),
        process=process,
        objective=objective,
        weighting=weighting,
        schedule=dmm.Geometric(1e-2, process.horizon),
        units=dmm.Identity(),
        batch_size=512,
    )
    untrained = eqx.tree_at(lambda m: m.network, model, jax.tree.map(jnp.zeros_like, model.network))
    measure = eqx.filter_jit(lambda m: risk(m, objective, weighting))
    assert measure(model) < measure(untrained) - 0.01
    assert_mixture(model.sample(key(3), 2000, steps=100), margin=0.08)


class Spiral(dmm.Diffusion, dmm.Simulated):
    """A user's own process: a drift that turns as it falls. Its reference is N(0, I)."""

    space: dmm.Euclidean = PLANE
    data: dmm.Euclidean = PLANE
    reference: dmm.Law = dmm.Gaussian((2,))
    horizon: float = eqx.field(static=True, default=6.0)
    substeps: int = eqx.field(static=True, default=50)

    def drift(self, x):
        return jnp.stack([-0.5 * x[0] + 0.3 * x[1], -0.5 * x[1] - 0.3 * x[0]])

    def covariance(self, x):
        return jnp.eye(2)


def test_process_of_ones_own():
    model = fit(
        draw_gaussian(key(1), 4096),
        process=Spiral(),
        schedule=dmm.Geometric(1e-2, 6.0),
        steps=1000,
    )
    assert_learned(model, log_gaussian, draw_gaussian(key(2), 256), margin=0.1, steps=100)
    samples = model.sample(key(3), 2000, steps=100)
    assert_moments(samples, draw_gaussian(key(4), 100_000), margin=0.15)
    assert abs(np.corrcoef(samples.T)[0, 1] - 0.8) < 0.08


# Units.


@pytest.mark.xdist_group("mixture")
def test_units_are_undone_everywhere():
    """A power of two changes no digits: the same bits, but for the logarithm of the volume."""
    x, test = np.asarray(draw_mixture(key(1), 1024)), np.asarray(draw_mixture(key(2), 256))

    def described(scale):
        model = fit(scale * x, LINE, steps=100)
        samples = model.sample(key(4), 2000, steps=60)
        log_likelihood = model.log_likelihood(scale * test, steps=60)
        return model, samples, log_likelihood, model.elbo(key(3), scale * test, draws=64)

    model, samples, log_likelihood, bound = described(1)
    other, *scaled = described(1024)
    assert same_bits(model, other)
    np.testing.assert_array_equal(scaled[0], 1024 * samples)
    np.testing.assert_allclose(scaled[1], log_likelihood - np.log(1024), atol=1e-5)
    np.testing.assert_allclose(scaled[2], bound - np.log(1024), atol=1e-5)


@pytest.mark.xdist_group("gaussian")
def test_units_of_far_and_narrow_data():
    """Each coordinate has its own: 100 ± 0.01 beside −3 ± 1000."""
    centre, spread = np.array([100.0, -3.0]), np.array([0.01, 1000.0])
    z = np.random.default_rng(0).normal(size=(4096, 2))
    model = fit(centre + spread * z, PLANE, steps=200)
    samples = model.sample(key(1), 2000, steps=60)
    np.testing.assert_allclose((samples.mean(0) - centre) / spread, 0.0, atol=0.08)
    np.testing.assert_allclose(samples.std(0) / spread, 1.0, atol=0.06)
    test = centre + spread * z[:256]
    truth = norm.logpdf(z[:256]).sum(1) - np.log(spread).sum()
    assert abs(np.mean(model.log_likelihood(test, steps=60) - truth)) < 0.05


# What the loop promises.


def test_average_of_weights_is_returned():
    """One step from known weights p₀: the average is p₀ + 0.9 (p₁ − p₀)."""
    start = tiny(key(5), jnp.zeros(1), jnp.zeros(1))
    settings = {"network": start, "optimiser": optax.sgd(0.1)}
    stepped, averaged = (
        tiny_fit(draw_mixture(key(1), 64), LINE, ema=ema, **settings) for ema in (0.0, 0.99)
    )
    leaves = zip(jax.tree.leaves(start), weights(stepped), weights(averaged), strict=True)
    for p0, p1, average in leaves:
        np.testing.assert_allclose(average, p0 + 0.9 * (p1 - p0), atol=1e-6)
    assert not same_bits(stepped, averaged)


def quadratic(params, key, batch):
    """½ (w − x)² at each example."""
    each = 0.5 * jnp.square(params["w"] - batch.x[:, 0])
    return Losses(jnp.mean(each), each, jnp.ones_like(each))


def constant(value):
    return Arrays(dmm.Example(jnp.full((8, 1), value)))


def test_average_over_steps():
    """w_{k+1} = w_k + 0.1 (2 − w_k), averaged by hand."""
    settings = Settings(steps=7, batch_size=4, optimiser=optax.sgd(0.1), ema=0.5, block=3)
    result = train({"w": jnp.zeros(())}, quadratic, constant(2.0), key(0), settings)
    w = average = 0.0
    for step in range(7):
        w += 0.1 * (2 - w)
        average += (1 - min(0.5, (1 + step) / (10 + step))) * (w - average)
    np.testing.assert_allclose(result["w"], average, rtol=1e-6)


def test_early_stopping_returns_the_best():
    """Training leads w from 0 to 2; the held-out data are best fitted at 1, on the way."""
    settings = Settings(
        steps=1000, batch_size=4, optimiser=optax.sgd(0.1), ema=0.0, block=1, early_stopping=3,
        validations=1000,
    )  # fmt: skip
    read = []

    def watched(params, key, batch):
        jax.debug.callback(lambda w: read.append(float(w)), params["w"])
        return quadratic(params, key, batch)

    result = train(
        {"w": jnp.zeros(())},
        watched,
        constant(2.0),
        key(0),
        settings,
        validation=(watched, constant(1.0)),
    )
    path = 2 * (1 - 0.9 ** np.arange(1001))
    best = np.argmin(abs(path - 1))
    np.testing.assert_allclose(result["w"], path[best], rtol=1e-5)
    jax.effects_barrier()
    np.testing.assert_allclose(max(read), path[best + 3], rtol=1e-5)


def test_weights_in_one_vector_train_as_in_leaves():
    """Adam and clipping do the same to both, up to the order of sums."""
    start = {"w": jnp.asarray(0.5), "v": jnp.arange(3.0)}

    def loss(params, key, batch):
        each = jnp.sum((batch.x - params["w"] - params["v"][None]) ** 2, -1)
        return Losses(jnp.mean(each), each, each)

    def trained(flat):
        settings = Settings(30, 4, adam(0.1, 3, 1.0, 30), ema=0.5, block=10, flat=flat)
        return train(start, loss, constant(2.0), key(0), settings)

    in_leaves, in_one = trained(False), trained(True)
    for name in start:
        np.testing.assert_allclose(in_one[name], in_leaves[name], rtol=1e-5)


def test_monitor_sees_the_model_as_it_goes():
    """At the validations' times, with the averaged weights; the last is the model returned."""
    seen = []
    values = np.random.default_rng(0).normal(size=(64, 2))
    model = tiny_fit(
        values, PLANE, steps=20, block=5, monitor=lambda step, model: seen.append((step, model))
    )
    assert [step for step, _ in seen] == [5, 10, 15, 20]
    x = jnp.ones(2)
    scores = [m.score(x, 0.5) for _, m in seen]
    np.testing.assert_array_equal(scores[-1], model.score(x, 0.5))
    assert np.any(scores[0] != scores[-1])


def test_without_early_stopping_the_last_weights_are_returned():
    settings = Settings(steps=50, batch_size=4, optimiser=optax.sgd(0.1), ema=0.0, block=10)
    start = {"w": jnp.zeros(())}
    validation = (quadratic, constant(1.0))
    result = train(start, quadratic, constant(2.0), key(0), settings, validation=validation)
    np.testing.assert_allclose(result["w"], 2 * (1 - 0.9**50), rtol=1e-5)


def test_same_key_same_bits(capfd):
    """Whether the data are lists of integers or an array of double precision, and in silence."""
    values = [[1, -2], [0, 3], [4, 4], [-1, 0]]
    first = tiny_fit(values, PLANE, steps=10, block=5)
    second = tiny_fit(np.array(values, np.float64), PLANE, steps=10, block=5)
    assert capfd.readouterr() == ("", "")
    other = tiny_fit(values, PLANE, steps=10, block=5, key=key(1), progress=True)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "loss" in printed.err
    assert same_bits(first, second)
    assert not same_bits(first, other)


def test_images_and_tiny_data():
    """Arrays of any shape, a single point (so constant), and a batch larger than the data."""
    model = tiny_fit(np.ones((1, 2, 3)), dmm.Euclidean((2, 3)), validation=0.1)
    samples = model.sample(key(1), 2, steps=2)
    assert samples.shape == (2, 2, 3)
    assert jnp.all(jnp.isfinite(samples))


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_both_parts_of_a_split_hold_something(share):
    x = np.arange(4.0)[:, None]
    parts = Arrays(dmm.Example(x)).split(key(0), share)
    assert [len(part) for part in parts] == {0.01: [3, 1], 0.5: [2, 2], 0.99: [1, 3]}[share]
    assert sorted(np.concatenate([part.examples.x for part in parts])) == sorted(x)


def test_given_is_any_pytree():
    """Dicts and tuples of arrays; a list is one array."""
    x = np.random.default_rng(0).normal(size=(8, 1))
    given = {"a": list(range(8)), "b": (np.arange(8.0), np.ones((8, 2, 2)), x > 0)}
    model = tiny_fit(x, LINE, given=given)
    one = {"a": 3, "b": tuple(leaf[3] for leaf in given["b"])}
    assert model.sample(key(1), 3, given=one, steps=2).shape == (3, 1)
    assert model.sample(key(1), 3, given=given, steps=2).shape == (8, 3, 1)


# Not finite.


def reported(error):
    """Step and τ from the message."""
    found = re.search(r"at step (\d+), worst at τ = (\S+)\. ", str(error))
    return int(found[1]), float(found[2])


def poisoned(at):
    """A stream of ones, whose batch at a step and every one after it holds a two."""

    def batches(step):
        while True:
            yield np.array([[1.0], [1.0], [2.0 if step >= at else 1.0], [1.0]])
            step += 1

    return dmm.Stream(batches)


def fails_at_two(process, score_fn, key, x0, tau):
    """NaN at the value 2, at late times only, and from step k on where the stream says so."""
    loss = dmm.denoising(process, score_fn, key, x0, tau)
    return jnp.where((x0[0] == 2.0) & (tau > 1e-2), jnp.nan, loss)


NONFINITE = {"objective": fails_at_two, "units": dmm.Identity(), "steps": 40, "block": 5}


def test_non_finite_loss_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    # Stratified times: the third of four examples is always at a late one.
    run = {"run": tmp_path, "checkpoint_seconds": 0.0}
    with pytest.raises(dmm.NonFiniteError, match="the loss is not finite") as caught:
        tiny_fit(poisoned(at=17), LINE, **NONFINITE, **run)
    assert "\n" not in str(caught.value)
    step, tau = reported(caught.value)
    assert step == 17
    assert 1e-2 < tau <= 10
    kept = sorted(int(folder.name) for folder in (tmp_path / "checkpoints").iterdir())
    assert kept[-1] == 15
    assert not (tmp_path / "model.dmm").exists()
    # The checkpoint is whole and finite: with the data repaired, the run ends as if unharmed.
    mended = tiny_fit(poisoned(at=99), LINE, **NONFINITE, **run)
    assert same_bits(mended, tiny_fit(poisoned(at=99), LINE, **NONFINITE))


def breaks_at(step):
    """Gradient descent whose update after a step of finite loss and gradient is NaN."""

    def update(updates, count, params=None):
        rate = jnp.where(count == step, jnp.nan, -1e-4)
        return jax.tree.map(lambda u: rate * u, updates), count + 1

    return optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), update)


def test_weights_that_are_not_finite_are_not_kept(tmp_path):
    """Step 9 is the last of its block: the checkpoint after it would hold NaN."""
    settings = {"steps": 20, "block": 5, "run": tmp_path, "checkpoint_seconds": 0.0}
    x = draw_mixture(key(1), 8)
    with pytest.raises(dmm.NonFiniteError, match=r"not finite at step (9|10)\b"):
        tiny_fit(x, LINE, optimiser=breaks_at(9), **settings)
    mended = tiny_fit(x, LINE, optimiser=breaks_at(99), **settings)
    assert all(np.all(np.isfinite(leaf)) for leaf in weights(mended))


def test_non_finite_gradient():
    """A loss that is finite with a gradient that is not: √(s − s) has slope ∞ · 0."""

    def objective(process, score_fn, key, x0, tau):
        score = score_fn(x0, tau)
        return jnp.sum(jnp.sqrt(score - score))

    with pytest.raises(dmm.NonFiniteError, match="the gradient is not finite at step 0"):
        tiny_fit(draw_mixture(key(1), 8), LINE, objective=objective, steps=2)


# Compilation.

TRACES = []


class Counting(eqx.Module):
    """A network that notes when it is traced."""

    inner: Callable

    def __call__(self, inputs, tau, given, present):
        TRACES.append(1)
        return self.inner(inputs, tau, given, present)


def traces(f):
    before = len(TRACES)
    f()
    return len(TRACES) - before


def counting(*shapes):
    return Counting(tiny(*shapes))


def test_the_same_shapes_are_not_compiled_again():
    x = draw_mixture(key(1), 16)
    model = tiny_fit(x, LINE, network=counting, given=x, drop_given=0.1)
    calls = [
        lambda seed: model.sample(key(seed), 7, given=x[seed], steps=3),
        lambda seed: model.elbo(key(seed), x + seed, given=x, draws=3),
    ]
    for call in calls:
        assert traces(lambda call=call: call(1)) > 0
        assert traces(lambda call=call: call(2)) == 0
    # The default by its name is the default.
    named = {"sampler": dmm.Heun(), "grid": dmm.ScheduleGrid(), "guidance": 1.0}
    assert traces(lambda: model.sample(key(3), 7, given=x[0], steps=3, **named)) == 0


def test_training_is_compiled_once():
    x = draw_mixture(key(1), 16)

    def fitted(steps):
        options = {"network": counting, "block": 2, "validation": 0.5}
        return lambda: tiny_fit(x, LINE, steps=steps, **options)

    assert traces(fitted(2)) == traces(fitted(10)) > 0
