"""Observations that a network embeds: once for all draws, steps and noisings."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.training.fitting import loss_function
from table import assert_mean

pytestmark = pytest.mark.xdist_group("embedded")  # one fit serves them all

CALLS = []


class Counted(eqx.Module):
    """The mean of an observation's rows, which counts how often it is computed."""

    def __call__(self, given):
        jax.debug.callback(lambda _: CALLS.append(1), given)
        return given.mean(0)


def small(*shapes):
    return dmm.MLP(*shapes, width=16, depth=2)


def embedded(*shapes):
    return dmm.Embedded(*shapes, embedding=Counted(), network=small)


@pytest.fixture(scope="module")
def model():
    """x ~ N(0, 1) and three observations of it, of noise 0.1."""
    x = jax.random.normal(jax.random.key(0), (500, 1))
    rows = x[:, None] + 0.1 * jax.random.normal(jax.random.key(1), (500, 3, 1))
    return dmm.fit(
        x, given=rows, space=dmm.Euclidean(1), network=embedded, key=jax.random.key(2),
        steps=600, noisings=4, batch_size=64, learning_rate=5e-3,
    )  # fmt: skip


def count(f) -> int:
    CALLS.clear()
    jax.block_until_ready(f())
    jax.effects_barrier()
    return len(CALLS)


def test_an_observation_is_embedded_once(model):
    """A sample of 50 draws in 20 steps embeds each of 3 observations once; a bound of 5 points
    each of them, once for its pilot and once for itself."""
    given = jnp.linspace(-1.0, 1.0, 9).reshape(3, 3, 1)
    key = jax.random.key(0)
    assert count(lambda: model.sample(key, 50, given=given, steps=20)) == 3
    assert count(lambda: model.sample(key, 50, given=given[0], steps=20)) == 1
    x, rows = jnp.zeros((5, 1)), jnp.zeros((5, 3, 1))
    assert count(lambda: model.elbo(key, x, given=rows, draws=8)) == 10
    assert count(lambda: model.log_likelihood(x, given=rows, steps=4)) == 5


def test_an_embedding_is_of_use(model):
    """The posterior of a standard Gaussian given a mean of 0.8 with noise 0.06: N(0.8, 0.06²)."""
    draws = model.sample(jax.random.key(3), 2000, given=jnp.full((3, 1), 0.8))
    assert abs(float(draws.mean()) - 0.8) < 0.05
    assert 0.04 < float(draws.std()) < 0.1


def test_a_model_with_an_embedding_is_saved(model, tmp_path):
    model.save(tmp_path / "model.dmm")
    loaded = dmm.load(tmp_path / "model.dmm", classes=[Counted])
    given, key = jnp.ones((3, 1)), jax.random.key(0)
    once, again = (m.sample(key, 5, given=given, steps=5) for m in (model, loaded))
    np.testing.assert_array_equal(once, again)


def test_noisings_leave_the_loss_unbiased_and_embed_once(model):
    """Batches of 8 examples noised once and 16 times: the same mean loss (5 standard errors), at
    16 times as many times, a tenth or less of the variance, and 8 embeddings."""
    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    x = jnp.linspace(-1.0, 1.0, 8)[:, None]
    batch = dmm.Example(x, jnp.broadcast_to(x[:, None], (8, 3, 1)))
    keys = jax.random.split(jax.random.key(4), 2000)

    def losses(noisings):
        loss = loss_function(
            model, static, dmm.denoising, dmm.likelihood_weighting, noisings=noisings
        )
        found = jax.jit(lambda key: loss(params, key, batch))
        assert count(lambda: found(keys[0])) == 8
        each = found(keys[0])
        assert each.each.shape == each.tau.shape == (8 * noisings,)
        return np.asarray(jax.lax.map(lambda key: found(key).mean, keys))

    once, often = losses(1), losses(16)
    assert_mean(once - often, 0.0)
    assert often.var() < 0.1 * once.var()


def test_an_embedding_needs_an_observation():
    with pytest.raises(ValueError, match="given: there is no observation to embed"):
        dmm.fit(jnp.zeros((4, 1)), space=dmm.Euclidean(1), network=embedded, key=jax.random.key(0))
    with pytest.raises(ValueError, match="noisings: must be at least 1"):
        dmm.fit(jnp.zeros((4, 1)), space=dmm.Euclidean(1), noisings=0, key=jax.random.key(0))
