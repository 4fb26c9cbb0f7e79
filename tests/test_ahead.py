"""The part of a training step that does not look at the weights."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.training import ahead, loop
from dmm.training.data import Arrays


def noisy_loss(weights, key, x):
    """A draw, features of it with their constants, and a loss: the last alone needs the weights."""
    noise_key, mask_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (4, 3))
    waves = jnp.sin((x + noise)[:, :, None] * jnp.arange(1.0, 3.0)[None, None])
    seen = jnp.where(jax.random.bernoulli(mask_key, 0.5, (4, 1)), waves.reshape(4, -1), 0.0)
    h = jax.nn.softplus(seen @ weights["in"] + jnp.ones((4, 5)))
    out = jnp.sum(h @ weights["out"], 1)
    return jnp.mean(out**2), {"noise": noise, "out": out}


@pytest.fixture
def arguments():
    keys = jax.random.split(jax.random.key(0), 4)
    weights = {
        "in": jax.random.normal(keys[0], (6, 5)),
        "out": jax.random.normal(keys[1], (5, 2)),
    }
    return weights, keys[2], jax.random.normal(keys[3], (4, 3))


def test_the_two_parts_are_the_function_and_so_is_their_gradient(arguments):
    weights, key, x = arguments
    prepare, rest = ahead.split(noisy_loss, weights, key, x)
    ready = prepare(key, x)
    wanted = jax.value_and_grad(noisy_loss, has_aux=True)(weights, key, x)
    found = jax.value_and_grad(rest, has_aux=True)(weights, ready)
    for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_random_numbers_and_features_come_first_and_products_with_weights_later(arguments):
    weights, key, x = arguments
    prepare, rest = ahead.split(noisy_loss, weights, key, x)
    first = str(jax.make_jaxpr(prepare)(key, x))
    second = str(jax.make_jaxpr(rest)(weights, prepare(key, x)))
    assert "random_bits" in first
    assert "sin" in first
    assert "random" not in second
    assert "sin" not in second
    assert "dot_general" in second
    assert "dot_general" not in first
    # The mask that repeats along a row is kept as a column: what is kept is the draws and waves.
    shapes = sorted(tuple(a.shape) for a in prepare(key, x))
    assert shapes == [(4, 3), (4, 6)]
    assert ahead.size(jax.eval_shape(prepare, key, x)) == 4 * (12 + 24)


def test_what_only_repeats_entries_is_done_again():
    def spread(weight, x):
        return jnp.sum(weight * jnp.broadcast_to(x[:, None], (3, 1000)))

    prepare, rest = ahead.split(spread, jnp.ones(()), jnp.arange(3.0))
    assert [a.shape for a in prepare(jnp.arange(3.0))] == [(3, 1)]
    assert float(rest(jnp.ones(()), prepare(jnp.arange(3.0)))) == 3000.0


def test_a_function_without_anything_to_do_first():
    prepare, rest = ahead.split(lambda weight, x: (weight * 2, 1.0), jnp.ones(3), jnp.zeros(2))
    assert prepare(jnp.zeros(2)) == []
    np.testing.assert_array_equal(rest(jnp.ones(3), [])[0], 2 * jnp.ones(3))


@pytest.mark.parametrize("most", [1, 4, 50])
def test_training_is_the_same_however_many_steps_are_drawn_at_once(most, monkeypatch):
    """Steps depend on their number alone; only rounding of wider loops may differ."""
    data = jax.random.normal(jax.random.key(0), (64, 2))

    def fitted():
        return dmm.fit(
            data, space=dmm.Euclidean(2), key=jax.random.key(1), steps=12, batch_size=16,
            block=6, network=lambda *shapes: dmm.MLP(*shapes, width=8, depth=1),
            validation=0.0, progress=False,
        )  # fmt: skip

    wanted = fitted()
    monkeypatch.setattr(loop, "AHEAD_STEPS", most)
    found = fitted()
    for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_large_batches_are_not_drawn_ahead():
    """One batch at a time where a few would take more memory than allowed."""
    x = jnp.zeros((8, loop.AHEAD_BYTES // 8))
    source, settings = (
        Arrays(dmm.Example(x)),
        loop.Settings(10, 4, dmm.training.fitting.adam(1e-3, 0, 1.0, 10)),
    )

    def loss(params, key, batch):
        each = jnp.mean((batch.x - params) ** 2, 1)
        return loop.Losses(jnp.mean(each), each, each)

    advance = loop.compile_advance(loss, source, jax.random.key(0), settings)
    state = loop.initial_state(jnp.zeros(()), settings)
    program = str(jax.make_jaxpr(lambda s: advance(s, source.examples, 6))(state))
    assert f"[1,4,{x.shape[1]}]" in program.replace("f32", "")
    assert f"[2,4,{x.shape[1]}]" not in program.replace("f32", "")
