"""Networks: sizes, shapes, conditioning, precision and dropout."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.networks.layers import Conv, Norm, _turn, drop


def shape(*sides):
    return jax.ShapeDtypeStruct(sides, jnp.float32)


def weights(network):
    return [leaf for leaf in jax.tree.leaves(network) if eqx.is_inexact_array(leaf)]


def awake(network):
    """The network with its weights shaken: the zeros that it starts from would hide everything."""
    params, static = eqx.partition(network, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(9), len(leaves))
    shaken = [a + 0.05 * jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, shaken), static)


def small_unet(inputs=(8, 8), outputs=(8, 8, 2), given=None, **settings):
    settings = {"channels": 8, "multipliers": (1, 2), "blocks": 1, **settings}
    made = dmm.UNet(jax.random.key(0), shape(*inputs), shape(*outputs), given, **settings)
    return awake(made)


def small_transformer(inputs=(6, 5), outputs=(6, 4), given=None, **settings):
    settings = {"width": 16, "depth": 2, "heads": 2, **settings}
    made = dmm.Transformer(jax.random.key(0), shape(*inputs), shape(*outputs), given, **settings)
    return awake(made)


MAKERS = {"unet": (small_unet, (8, 8)), "transformer": (small_transformer, (6, 5))}
every = pytest.mark.parametrize(("make", "sides"), MAKERS.values(), ids=MAKERS)


def test_unet_of_the_paper_has_six_million_weights():
    """64 channels, multipliers (1, 2, 2), two blocks, the seen image beside the noised one: the
    paper says 6.1M."""
    sides = shape(28, 28), shape(28, 28, 2), shape(28, 28)
    network = eqx.filter_eval_shape(lambda key: dmm.UNet(key, *sides), jax.random.key(0))
    found = sum(a.size for a in jax.tree.leaves(network) if hasattr(a, "size"))
    assert round(found / 1e6, 1) == 6.1


@pytest.mark.parametrize(
    ("inputs", "outputs"), [((7, 9, 3), (7, 9, 3)), ((5, 5, 3, 4), (5, 5, 3, 4))]
)
def test_unet_takes_images_of_any_kind(inputs, outputs):
    """In colour, of labels; odd sides too."""
    network = small_unet(inputs, outputs, attention=(1,), heads=2)
    assert jax.eval_shape(network, jnp.ones(inputs), 0.3).shape == outputs


@every
def test_starts_at_zero(make, sides, monkeypatch):
    monkeypatch.setitem(make.__globals__, "awake", lambda network: network)
    assert not np.any(make()(jnp.ones(sides), 0.3))


@every
def test_sees_everything(make, sides):
    """Each input, the time, what is given on the same places and what is given besides."""
    given = {"there": jnp.ones(sides), "label": jnp.ones(3)}
    network = make(given=given)
    x = jnp.ones(sides)
    run = eqx.filter_jit(network)
    before = run(x, 0.3, given, 1.0)
    changed = {
        "input": (x.at[0, 0].set(2.0), 0.3, given, 1.0),
        "time": (x, 0.4, given, 1.0),
        "place": (x, 0.3, given | {"there": given["there"].at[0, 0].set(2.0)}, 1.0),
        "label": (x, 0.3, given | {"label": jnp.array([1.0, 0.0, 1.0])}, 1.0),
        "absence": (x, 0.3, given, 0.0),
    }
    for what, arguments in changed.items():
        assert np.max(np.abs(run(*arguments) - before)) > 1e-4, what


@every
def test_what_is_hidden_is_not_seen(make, sides):
    given = jnp.ones(sides)
    network = make(given=given)
    x = jnp.ones(sides)
    hidden = [network(x, 0.3, g, 0.0) for g in (given, 5 * given)]
    np.testing.assert_array_equal(*hidden)


@every
def test_dropout_needs_a_key(make, sides):
    network, x = make(dropout=0.5), jnp.ones(sides)
    plain = network(x, 0.3)
    np.testing.assert_array_equal(plain, network(x, 0.3))
    drops = [network(x, 0.3, key=jax.random.key(i)) for i in range(2)]
    assert np.any(drops[0] != drops[1])
    assert np.any(drops[0] != plain)


def test_dropout_keeps_the_mean():
    """Of 2¹⁶ ones; 5 standard errors."""
    dropped = drop(jax.random.key(0), 0.3, jnp.ones(2**16))
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.7)}
    assert abs(dropped.mean() - 1) < 5 * dropped.std() / 2**8


@every
def test_half_precision_is_near_full(make, sides):
    """Within 3%: bfloat16 has 8 bits. Weights and outputs stay in float32."""
    x = jax.random.normal(jax.random.key(1), sides)
    full, half = make()(x, 0.3), make(dtype=jnp.bfloat16)(x, 0.3)
    assert half.dtype == full.dtype == jnp.float32
    assert all(a.dtype == jnp.float32 for a in weights(make(dtype=jnp.bfloat16)))
    assert np.linalg.norm(half - full) < 0.03 * np.linalg.norm(full)
    assert np.any(half != full)


def test_group_norm_is_that_of_equinox():
    x = jax.random.normal(jax.random.key(0), (5, 6, 8))
    ours = Norm(8, groups=4)(x)
    theirs = eqx.nn.GroupNorm(4, 8, eps=1e-6)(jnp.moveaxis(x, -1, 0))
    np.testing.assert_allclose(ours, jnp.moveaxis(theirs, 0, -1), rtol=1e-4, atol=1e-5)


def test_convolution_is_that_of_equinox():
    conv = Conv(jax.random.key(0), 3, 5)
    theirs = eqx.nn.Conv2d(3, 5, 3, padding=1, key=jax.random.key(1))
    weight = jnp.transpose(conv.weight, (0, 3, 1, 2))
    theirs = eqx.tree_at(lambda c: (c.weight, c.bias), theirs, (weight, jnp.zeros((5, 1, 1))))
    x = jax.random.normal(jax.random.key(2), (6, 7, 3))
    ours = conv(x)
    np.testing.assert_allclose(
        ours, jnp.moveaxis(theirs(jnp.moveaxis(x, -1, 0)), 0, -1), rtol=1e-4, atol=1e-5
    )


def test_transformer_tells_places_apart():
    """Two sequences that are permutations of each other."""
    network, x = small_transformer(), jax.random.normal(jax.random.key(0), (6, 5))
    ahead, behind = network(x, 0.3), network(x[::-1], 0.3)[::-1]
    assert np.max(np.abs(ahead - behind)) > 1e-3


def test_turned_attention_sees_distances():
    """Of a sequence that is the same everywhere, products of queries and keys depend on how far
    apart two places are, and differ between distances."""
    x = jax.random.normal(jax.random.key(0), (1, 2, 7))
    turned = _turn(jnp.broadcast_to(x, (9, 2, 7)))
    products = np.einsum("ihc,jhc->hij", turned, turned)
    for distance in range(-8, 9):
        along = np.diagonal(products, distance, 1, 2)
        np.testing.assert_allclose(along, along[:, :1] + 0 * along, rtol=1e-4, atol=1e-5)
    assert np.all(np.abs(products[:, 0, 1] - products[:, 0, 0]) > 1e-2)


def test_transformer_learns_from_neighbours():
    """Sequences that count upwards: once one state is known so are all, 3/12 bits a place, where
    frequencies alone give 3. It reaches 0.84; without turned attention, 2.7."""
    rows = (np.arange(8)[:, None] + np.arange(12)) % 8
    model = dmm.fit(
        rows, space=dmm.Finite(12, 8), key=jax.random.key(0), steps=300, batch_size=32,
        network=lambda *sides: dmm.Transformer(*sides, width=32, depth=2, heads=2),
        learning_rate=2e-3, validation=0.0,
    )  # fmt: skip
    bits = dmm.bits_per_dimension(model.elbo(jax.random.key(1), rows, draws=64), 12)
    assert jnp.mean(bits) < 1.5


@pytest.mark.parametrize("sides", [(12, 12), (9, 10, 3)])
def test_resnet_sees_every_pixel_and_where_it_is(sides):
    """A vector of the size that was asked for; a picture moved by one pixel has another."""
    encoder = awake(dmm.ResNet(jax.random.key(0), shape(*sides), features=6, channels=(8, 16)))
    run = eqx.filter_jit(encoder)
    image = jax.random.normal(jax.random.key(1), sides)
    before = run(image)
    assert before.shape == (6,)
    slopes = eqx.filter_jit(jax.grad(lambda image: jnp.sum(encoder(image) ** 2)))(image)
    assert np.all(np.abs(slopes) > 1e-6)
    assert np.max(np.abs(run(jnp.roll(image, 1, 0)) - before)) > 1e-2


def test_resnet_in_half_precision():
    """Within 3%, as of the other networks; the vector is in float32."""

    def encoder(dtype):
        return dmm.ResNet(jax.random.key(0), shape(12, 12), channels=(8, 16), dtype=dtype)

    image = jax.random.normal(jax.random.key(1), (12, 12))
    full, half = encoder(None)(image), encoder(jnp.bfloat16)(image)
    assert half.dtype == jnp.float32
    assert 0 < np.linalg.norm(half - full) < 0.03 * np.linalg.norm(full)


def test_bad_input():
    with pytest.raises(ValueError, match="UNet works on images"):
        dmm.UNet(jax.random.key(0), shape(8), shape(8))
    with pytest.raises(ValueError, match="UNet works on images"):
        dmm.UNet(jax.random.key(0), (shape(8, 8), shape(8, 8)), shape(8))
    with pytest.raises(ValueError, match=r"^dropout: "):
        dmm.UNet(jax.random.key(0), shape(8, 8), shape(8, 8), dropout=1.0)
    with pytest.raises(ValueError, match=r"^attention: levels run from 0 to 2"):
        dmm.UNet(jax.random.key(0), shape(8, 8), shape(8, 8), attention=(3,))
    with pytest.raises(ValueError, match="ResNet works on images"):
        dmm.ResNet(jax.random.key(0), shape(8))
    with pytest.raises(ValueError, match=r"^channels: give those of one level"):
        dmm.ResNet(jax.random.key(0), shape(8, 8), channels=())
    with pytest.raises(ValueError, match=r"^heads: 3 do not divide"):
        dmm.Transformer(jax.random.key(0), shape(8, 2), shape(8, 2), width=16, heads=3)


class Restless(dmm.Stochastic):
    """A network whose output is far off whenever it gets a key."""

    weight: jax.Array

    def __call__(self, inputs, tau, given=None, present=1.0, key=None):
        return self.weight * inputs + (0.0 if key is None else 1e3)


def test_dropout_in_training_and_not_in_validation(monkeypatch):
    """Nor in anything that a fitted model does."""
    losses = {}

    def train(params, loss_fn, source, key, settings, *, validation, **_):
        batch = source.batch(source.block(0, 1), 0, key, 8)
        losses["training"] = loss_fn(params, key, batch).mean
        losses["validation"] = validation[0](params, key, batch).mean
        return params

    monkeypatch.setattr("dmm.training.fitting.train", train)
    model = dmm.fit(
        np.zeros((32, 2)),
        space=dmm.Euclidean(2),
        network=Restless(jnp.zeros(())),
        key=jax.random.key(0),
        steps=1,
    )
    assert losses["training"] > 1e4 > losses["validation"]
    assert np.max(np.abs(model.sample(jax.random.key(1), 8, steps=4))) < 100


def test_a_label_is_never_taken_for_places():
    """As many classes as places: the label joins the time."""
    network = small_transformer((6, 5), (6, 4), given=shape(6))
    assert network.embed.weight.shape[0] == 5


@pytest.mark.parametrize("name", MAKERS)
def test_saved_and_loaded(name, tmp_path):
    """With a model that was fitted, by the way, with dropout and a label."""
    space = dmm.Finite((4, 4), 3) if name == "unet" else dmm.Finite(5, 3)
    kind = {
        "unet": lambda *s: dmm.UNet(*s, channels=8, multipliers=(1,), blocks=1, dropout=0.2),
        "transformer": lambda *s: dmm.Transformer(*s, width=16, depth=1, heads=2, dropout=0.2),
    }[name]
    data = jax.random.randint(jax.random.key(0), (20, *space.shape), 0, 3)
    labels = jnp.arange(20) % 4
    model = dmm.fit(
        data, given=labels, space=space, key=jax.random.key(1), network=kind, steps=2, batch_size=4
    )
    model.save(tmp_path / "model.dmm")
    again = dmm.load(tmp_path / "model.dmm")
    assert eqx.tree_equal(model, again)
    drawn = again.sample(jax.random.key(2), 3, given=2, steps=3)
    assert drawn.shape == (3, *space.shape)
    assert drawn.min() >= 0
    assert drawn.max() <= 2


def test_centred_sees_how_far_an_input_is_from_where_the_observation_puts_it():
    """What enters the perceptron is (u − c)/√(w² + 1 − e^{−τ}) beside u and the logarithm."""
    x, given = jnp.array([0.3, -1.0]), jnp.array([2.0, 0.5, 1.0])
    network = dmm.Centred(jax.random.key(0), x, x, given, width=8, depth=1)
    told = []

    def rest(seen, tau, given, present):
        told.append(seen)
        return seen[:2]

    spied = eqx.tree_at(lambda n: n.rest, network, rest)
    given, other = network.read(given), network.read(-given)
    spied(x, jnp.array(0.2), given)
    u, away, log_scale = told[0].reshape(3, 2)
    assert np.array_equal(u, x)
    assert np.allclose(np.exp(2 * log_scale), 1 + 1 - np.exp(-0.2), rtol=1e-6)
    spied(x + away * np.exp(log_scale), jnp.array(0.2), given)
    assert np.allclose(told[1][2:4], 2 * away, rtol=1e-4)
    # Without the observation the centre does not depend on it.
    spied(x, jnp.array(0.2), given, 0.0)
    spied(x, jnp.array(0.2), other, 0.0)
    assert np.array_equal(told[2], told[3])


def test_centred_needs_an_observation():
    with pytest.raises(ValueError, match="given: Centred needs observations"):
        dmm.Centred(jax.random.key(0), jnp.zeros(2), jnp.zeros(2))
