"""A fitted model: sampling in all its forms, and a file that holds it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.random import key

import dmm
from dmm.storage import StorageError

PLANE = dmm.Euclidean(2)

# On one worker: what one test compiles serves the others.
pytestmark = pytest.mark.xdist_group("model")


def network(*shapes):
    return dmm.MLP(*shapes, width=8, depth=1)


def fit(data, space=PLANE, **settings):
    chosen = {"network": network, "batch_size": 16, "steps": 20, "block": 20, "validation": 0.0}
    return dmm.fit(data, space=space, **(chosen | {"key": key(0), "ema": 0.0} | settings))


def points(n=64):
    return np.random.default_rng(0).normal([1.0, -3.0], [0.5, 2.0], (n, 2))


@pytest.fixture(scope="module")
def model():
    return fit(points())


@pytest.fixture(scope="module")
def conditional():
    """Given a vector and a class."""
    x = points()
    return fit(x, given={"noisy": x + 1, "class": np.arange(64) % 3}, drop_given=0.1)


@pytest.fixture(scope="module")
def product():
    """The first factor carries a velocity."""
    x, line = points(), dmm.Euclidean(1)
    process = dmm.ProductProcess(dmm.CriticallyDamped(PLANE), dmm.OrnsteinUhlenbeck(line))
    return fit((x, x[:, :1]), dmm.Product(PLANE, line), process=process)


OBSERVED = {"noisy": np.array([2.0, -2.0]), "class": 1}
SEVERAL = {"noisy": np.array([[2.0, -2.0], [1.0, 0.0], [0.0, 0.0]]), "class": np.array([1, 0, 2])}

SAMPLERS = {
    "default": None,
    "euler": dmm.Euler(),
    "heun": dmm.Heun(),
    "corrector": dmm.PredictorCorrector(),
    "flow": dmm.ProbabilityFlow(),
    "adaptive": dmm.AdaptiveFlow(),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(name, model):
    samples = model.sample(key(1), 4, sampler=SAMPLERS[name], steps=20)
    assert samples.shape == (4, 2)
    assert jnp.all(jnp.isfinite(samples))
    # In the user's units: the data's centre and spread, hardly trained as this model is.
    assert jnp.all(jnp.abs(samples - jnp.array([[1.0, -3.0]])) < 6 * jnp.array([[0.5, 2.0]]))
    assert len(np.unique(samples)) == 8


@pytest.mark.parametrize("name", ["corrector", "adaptive"])
def test_samplers_on_a_product(name, product):
    first, second = product.sample(key(1), 3, sampler=SAMPLERS[name], steps=3)
    assert (first.shape, second.shape) == ((3, 2), (3, 1))
    assert jnp.all(jnp.isfinite(first))
    assert jnp.all(jnp.isfinite(second))


def test_grids(model):
    power = model.sample(key(1), 4, steps=20, grid=dmm.PowerGrid())
    own = model.sample(key(1), 4, steps=20, grid=dmm.ScheduleGrid())
    assert power.shape == (4, 2)
    np.testing.assert_array_equal(own, model.sample(key(1), 4, steps=20))
    assert not np.allclose(own, power)


def test_path(model):
    path = model.sample(key(1), 4, steps=20, path=True)
    assert path.shape == (4, 22, 2)  # the grid's ends, and τ = 0 after τ_min
    np.testing.assert_allclose(path[:, -1], model.sample(key(1), 4, steps=20), rtol=1e-5)
    # It starts from the reference, N(0, I), in the user's units.
    starts = [model.sample(key(seed), 4, steps=20, path=True)[:, 0] for seed in range(250)]
    start = jax.vmap(model.units.forward)(jnp.concatenate(starts))
    np.testing.assert_allclose(start.mean(0), 0.0, atol=0.1)
    np.testing.assert_allclose(start.std(0), 1.0, atol=0.1)


def test_path_of_a_product(product):
    """Velocities stay hidden."""
    first, second = product.sample(key(1), 4, steps=3, path=True)
    assert (first.shape, second.shape) == ((4, 5, 2), (4, 5, 1))


def test_observations(conditional):
    one = conditional.sample(key(1), 4, given=OBSERVED, steps=3)
    several = conditional.sample(key(1), 4, given=SEVERAL, steps=3)
    assert one.shape == (4, 2)
    assert several.shape == (3, 4, 2)
    single = jax.tree.map(lambda leaf: np.asarray(leaf)[None], OBSERVED)
    np.testing.assert_allclose(conditional.sample(key(1), 4, given=single, steps=3)[0], one)


def test_each_observation_has_its_own_draws(conditional):
    """Draw (i, j) is that of observation i: with it alone, and the same key, it is the same."""
    several = conditional.sample(key(1), 4, given=SEVERAL, steps=3)
    for i in range(3):
        same = jax.tree.map(lambda leaf, i=i: np.stack([leaf[i]] * 3), SEVERAL)
        alone = conditional.sample(key(1), 4, given=same, steps=3)
        np.testing.assert_allclose(several[i], alone[i], rtol=1e-5)
    swapped = jax.tree.map(lambda leaf: leaf[::-1], SEVERAL)
    assert not np.allclose(several[0], conditional.sample(key(1), 4, given=swapped, steps=3)[0])


def test_given_for_each_point(conditional):
    """One observation a point, or one for all."""
    x = points(3)
    same = jax.tree.map(lambda leaf: np.stack([leaf] * 3), OBSERVED)
    for value in (
        lambda given: conditional.elbo(key(1), x, given=given, draws=4),
        lambda given: conditional.log_likelihood(x, given=given, steps=3),
    ):
        np.testing.assert_allclose(value(OBSERVED), value(same), rtol=1e-5)
        assert not np.allclose(value(same), value(SEVERAL))


def test_smallest_calls(model):
    assert model.sample(key(1), 1, steps=1).shape == (1, 2)
    assert model.elbo(key(1), points(1), draws=1).shape == (1,)


def test_chunks_change_nothing(conditional):
    """Three chunks, the last one shorter, and an observation cut in two."""
    close = {"rtol": 1e-4, "atol": 1e-4}
    whole = conditional.sample(key(1), 4, given=SEVERAL, steps=3)
    chunks = conditional.sample(key(1), 4, given=SEVERAL, steps=3, batch_size=5)
    np.testing.assert_allclose(chunks, whole, **close)
    x = points(3)
    for value in (
        lambda **chunk: conditional.elbo(key(1), x, given=SEVERAL, draws=4, **chunk),
        lambda **chunk: conditional.log_likelihood(x, given=SEVERAL, steps=3, **chunk),
    ):
        np.testing.assert_allclose(value(batch_size=2), value(), **close)


def test_keys(model):
    """New style or old, the same key gives the same draws, and another one others."""
    draws = model.sample(key(1), 4, steps=20)
    np.testing.assert_array_equal(draws, model.sample(key(1), 4, steps=20))
    np.testing.assert_array_equal(draws, model.sample(jax.random.PRNGKey(1), 4, steps=20))
    assert not np.any(draws == model.sample(key(2), 4, steps=20))
    bounds = [model.elbo(k, points(3), draws=4) for k in (key(1), jax.random.PRNGKey(1), key(2))]
    np.testing.assert_array_equal(bounds[0], bounds[1])
    assert not np.any(bounds[0] == bounds[2])


def test_likelihood_needs_a_key_only_where_it_is_random(model):
    x = points(4)
    exact = model.log_likelihood(x, steps=20)
    np.testing.assert_array_equal(exact, model.log_likelihood(x, steps=20, key=key(5)))
    estimates = jnp.stack(
        [model.log_likelihood(x, steps=20, key=key(seed), probe=True) for seed in range(50)]
    )
    assert np.all(estimates.std(0) > 0)
    error = estimates.std(0) / 50**0.5
    assert np.all(np.abs(estimates.mean(0) - exact) < 4 * error + 1e-3)


# Files.


class Doubled(eqx.Module):
    """A network of the user's own."""

    inner: Any
    factor: float = eqx.field(static=True, default=2.0)

    def __call__(self, inputs, tau, given, present):
        return self.factor * self.inner(inputs, tau, given, present)


class Slow(dmm.Diffusion, dmm.Simulated):
    """A process of the user's own."""

    space: dmm.Euclidean = PLANE
    data: dmm.Euclidean = PLANE
    reference: dmm.Law = dmm.Gaussian((2,))
    horizon: float = eqx.field(static=True, default=5.0)
    substeps: int = eqx.field(static=True, default=2)

    def drift(self, x):
        return -0.5 * x

    def covariance(self, x):
        return jnp.eye(2)


@pytest.mark.parametrize("kind", ["model", "conditional", "product"])
def test_what_is_saved_comes_back(kind, request, tmp_path):
    model = request.getfixturevalue(kind)
    model.save(tmp_path / "model.dmm")
    loaded = dmm.load(tmp_path / "model.dmm")
    assert eqx.tree_equal(model, loaded)
    given = {"given": OBSERVED} if kind == "conditional" else {}
    x = (points(3), points(3)[:, :1]) if kind == "product" else points(3)
    steps = 20 if kind == "model" else 3
    samples = [m.sample(key(1), 4, steps=steps, **given) for m in (model, loaded)]
    jax.tree.map(np.testing.assert_array_equal, *samples)
    bounds = [m.elbo(key(1), x, draws=4, **given) for m in (model, loaded)]
    np.testing.assert_array_equal(*bounds)


def test_classes_of_ones_own(tmp_path):
    path = tmp_path / "model.dmm"
    mine = fit(points(), process=Slow(), network=lambda *shapes: Doubled(network(*shapes)), steps=1)
    mine.save(path)
    with pytest.raises(StorageError, match=r"pass classes=\[Slow\]") as caught:
        dmm.load(path)
    assert "\n" not in str(caught.value)
    loaded = dmm.load(path, classes=[Slow, Doubled])
    assert eqx.tree_equal(mine, loaded)
    np.testing.assert_array_equal(*(m.sample(key(1), 3, steps=2) for m in (mine, loaded)))


@pytest.mark.parametrize("damage", ["truncated", "edited", "empty", "other", "missing"])
def test_damaged_files(damage, model, tmp_path):
    path = tmp_path / "model.dmm"
    model.save(path)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    match damage:
        case "truncated":
            path.write_bytes(data[:middle])
        case "edited":
            data[middle] ^= 1
            path.write_bytes(data)
        case "empty":
            path.write_bytes(b"")
        case "other":
            path.write_text("a letter")
        case "missing":
            path.unlink()
    with pytest.raises(ValueError, match=r"model\.dmm: ") as caught:
        dmm.load(path)
    assert "\n" not in str(caught.value)
    named = {"truncated": "truncated or edited", "edited": "truncated or edited"}
    assert named.get(damage, "name a file that dmm has saved") in str(caught.value)


def test_save_to_nowhere(model, tmp_path):
    with pytest.raises(ValueError, match=r"cannot be written .*; name a file in") as caught:
        model.save(tmp_path / "missing" / "model.dmm")
    assert "\n" not in str(caught.value)
