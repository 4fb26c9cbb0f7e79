"""The upsampling U-Net: the published function, its weights, and ours of it."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.networks.published import convert

SMALL = {"channels": 32, "multipliers": (1, 2), "blocks": 1, "attention": (1,), "heads": 2}
LIGHT = {**SMALL, "channels": 8, "multipliers": (1,), "attention": (0,)}


def shape(*sides):
    return jax.ShapeDtypeStruct(sides, jnp.float32)


@functools.cache
def small(side=8, classes=5, **settings):
    """8 × 8 from 4 × 4, its weights shaken: the zeros that it starts from would hide everything."""
    given = {"label": shape(classes), "low": shape(side // 2, side // 2, 3)}
    settings = {**SMALL, "relaxation": 1.0, **settings}
    sides = shape(side, side, 3), shape(side, side, 3, 2)
    network = dmm.Upsampler(jax.random.key(0), *sides, given, **settings)
    params, static = eqx.partition(network, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(9), len(leaves))
    shaken = [a + 0.05 * jax.random.normal(k, a.shape) for k, a in zip(keys, leaves, strict=True)]
    return eqx.combine(jax.tree.unflatten(structure, shaken), static)


def example(side=8, classes=5):
    keys = jax.random.split(jax.random.key(1))
    low = jax.random.uniform(keys[1], (side // 2, side // 2, 3), minval=-1.0)
    given = {"label": jax.nn.one_hot(3, classes), "low": low}
    return jax.random.normal(keys[0], (side, side, 3)), given


# ---- the published function ------------------------------------------------------------------


def published_shapes(c, classes):
    """The published tensors of the network `SMALL`, c channels, by name."""
    width, shapes = 4 * c, {}

    def layer(name, *weight):
        shapes[f"{name}.weight"], shapes[f"{name}.bias"] = weight, weight[:1]

    def residual(name, n, m):
        layer(f"{name}.in_layers.0", n)
        layer(f"{name}.in_layers.2", m, n, 3, 3)
        layer(f"{name}.emb_layers.1", 2 * m, width)
        layer(f"{name}.out_layers.0", m)
        layer(f"{name}.out_layers.3", m, m, 3, 3)
        if n != m:
            layer(f"{name}.skip_connection", m, n, 1, 1)

    def attention(name, m):
        layer(f"{name}.norm", m)
        layer(f"{name}.qkv", 3 * m, m, 1)
        layer(f"{name}.proj_out", m, m, 1)

    layer("time_embed.0", width, c)
    layer("time_embed.2", width, width)
    shapes["label_emb.weight"] = (classes, width)
    layer("input_blocks.0.0", c, 6, 3, 3)
    residual("input_blocks.1.0", c, c)
    residual("input_blocks.2.0", c, c)  # halves
    residual("input_blocks.3.0", c, 2 * c)
    attention("input_blocks.3.1", 2 * c)
    residual("middle_block.0", 2 * c, 2 * c)
    attention("middle_block.1", 2 * c)
    residual("middle_block.2", 2 * c, 2 * c)
    residual("output_blocks.0.0", 4 * c, 2 * c)
    attention("output_blocks.0.1", 2 * c)
    residual("output_blocks.1.0", 3 * c, 2 * c)
    attention("output_blocks.1.1", 2 * c)
    residual("output_blocks.1.2", 2 * c, 2 * c)  # doubles
    residual("output_blocks.2.0", 3 * c, c)
    residual("output_blocks.3.0", 2 * c, c)
    layer("out.0", c)
    layer("out.2", 6, c, 3, 3)
    return shapes


def published_tensors(c=32, classes=5):
    random = np.random.default_rng(0)
    return {
        name: random.standard_normal(sides) / math.sqrt(max(math.prod(sides[1:]), 16))
        for name, sides in published_shapes(c, classes).items()
    }


def published(w, x, step, low, label, heads=2):
    """The published function of those tensors by NumPy; images are (colours, height, width)."""

    def silu(x):
        return x / (1 + np.exp(-x))

    def affine(name, x):  # also convolutions of size 1
        return np.tensordot(w[f"{name}.weight"].reshape(-1, len(x)), x, 1) + bias(name, x)

    def bias(name, x):
        return w[f"{name}.bias"].reshape(-1, *(1,) * (x.ndim - 1))

    def conv(name, x):
        _, height, width = x.shape
        x, weight = np.pad(x, ((0, 0), (1, 1), (1, 1))), w[f"{name}.weight"]
        parts = [
            np.tensordot(weight[:, :, i, j], x[:, i : i + height, j : j + width], 1)
            for i in range(3)
            for j in range(3)
        ]
        return sum(parts) + bias(name, x)

    def norm(name, x):
        groups = x.reshape(32, -1)
        centred = groups - groups.mean(1, keepdims=True)
        scaled = (centred / np.sqrt(groups.var(1, keepdims=True) + 1e-5)).reshape(x.shape)
        return scaled * w[f"{name}.weight"].reshape(-1, 1, 1) + bias(name, x)

    def halve(x):
        return (x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]) / 4

    def double(x):
        return np.kron(x, np.ones((1, 2, 2)))

    def residual(name, x, resample=lambda x: x):
        h = conv(f"{name}.in_layers.2", resample(silu(norm(f"{name}.in_layers.0", x))))
        scale, shift = np.split(affine(f"{name}.emb_layers.1", silu(told))[:, None, None], 2)
        h = silu(norm(f"{name}.out_layers.0", h) * (1 + scale) + shift)
        h, x = conv(f"{name}.out_layers.3", h), resample(x)
        skip = f"{name}.skip_connection"
        return h + (affine(skip, x) if f"{skip}.weight" in w else x)

    def attention(name, x):
        mixed = affine(f"{name}.qkv", norm(f"{name}.norm", x)).reshape(len(x) * 3, -1)
        heard = []
        for head in np.split(mixed, heads):
            q, k, v = np.split(head, 3)
            e = np.exp(q.T @ k / math.sqrt(len(q)))
            heard.append(v @ (e / e.sum(1, keepdims=True)).T)
        return x + affine(f"{name}.proj_out", np.concatenate(heard)).reshape(x.shape)

    def enlarge(x, axis):
        """Twice as long: three quarters of the nearest pixel, a quarter of the next."""
        pad = np.take(x, [0, *range(x.shape[axis]), x.shape[axis] - 1], axis)
        before, at, after = (np.take(pad, range(i, i + x.shape[axis]), axis) for i in range(3))
        both = np.stack([0.75 * at + 0.25 * before, 0.75 * at + 0.25 * after], axis + 1)
        return both.reshape(*x.shape[:axis], -1, *x.shape[axis + 1 :])

    half = w["time_embed.0.weight"].shape[1] // 2
    phases = step / 10_000 ** (np.arange(half) / half)
    told = affine("time_embed.0", np.concatenate([np.cos(phases), np.sin(phases)]))
    told = affine("time_embed.2", silu(told)) + w["label_emb.weight"][label]

    skips = [conv("input_blocks.0.0", np.concatenate([x, enlarge(enlarge(low, 1), 2)]))]
    skips.append(residual("input_blocks.1.0", skips[-1]))
    skips.append(residual("input_blocks.2.0", skips[-1], halve))
    h = attention("input_blocks.3.1", residual("input_blocks.3.0", skips[-1]))
    skips.append(h)
    h = attention("middle_block.1", residual("middle_block.0", h))
    h = residual("middle_block.2", h)
    h = residual("output_blocks.0.0", np.concatenate([h, skips.pop()]))
    h = attention("output_blocks.0.1", h)
    h = residual("output_blocks.1.0", np.concatenate([h, skips.pop()]))
    h = residual("output_blocks.1.2", attention("output_blocks.1.1", h), double)
    h = residual("output_blocks.2.0", np.concatenate([h, skips.pop()]))
    h = residual("output_blocks.3.0", np.concatenate([h, skips.pop()]))
    return conv("out.2", silu(norm("out.0", h)))


def assert_published(ours, theirs):
    """To 1e-4 of their size; their channels are three colours of one kind, then of the other."""
    theirs = np.stack([np.moveaxis(theirs[:3], 0, -1), np.moveaxis(theirs[3:], 0, -1)], -1)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * np.std(theirs))


@pytest.mark.parametrize("step", [0.0, 412.5, 999.0])
def test_published_function(step):
    tensors, (x, given) = published_tensors(), example()
    ours = eqx.filter_jit(convert(small(), tensors).at_step)(x, jnp.array(step), given)
    low = np.moveaxis(np.asarray(given["low"], float), -1, 0)
    theirs = published(tensors, np.moveaxis(np.asarray(x, float), -1, 0), step, low, 3)
    assert_published(ours, theirs)


@pytest.mark.parametrize("attention", [(1, 2), ()])
def test_published_weights_by_pytorch(attention, tmp_path):
    """Three levels of two blocks; saved by PyTorch, and read by `load_published`."""
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'dmm[convert]'")
    import torch_upsampler

    settings = {"channels": 32, "multipliers": (1, 1, 2), "blocks": 2, "heads": 4}
    made = torch_upsampler.Upsampler(**settings, attention=attention, classes=7)
    model = torch_upsampler.awake(made, seed=0)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    sides = shape(16, 16, 3), shape(16, 16, 3, 2), {"label": shape(7), "low": shape(4, 4, 3)}
    make = functools.partial(dmm.Upsampler, relaxation=1.0, attention=attention, **settings)
    network = eqx.filter_eval_shape(make, jax.random.key(0), *sides)
    network = dmm.load_published(network, tmp_path / "weights.pt")

    x = jax.random.normal(jax.random.key(1), (16, 16, 3))
    low = jax.random.uniform(jax.random.key(2), (4, 4, 3), minval=-1.0)
    given = {"label": jax.nn.one_hot(3, 7), "low": low}
    ours = eqx.filter_jit(network.at_step)(x, jnp.array(321.0), given)
    x, low = (torch.tensor(np.moveaxis(np.asarray(a), -1, 0)[None]) for a in (x, low))
    with torch.no_grad():
        theirs = model(x, torch.tensor([321.0]), low, torch.tensor([3]))
    assert_published(ours, theirs[0].numpy())


def test_files_that_are_not_weights(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install 'dmm[convert]'")
    network = eqx.filter_eval_shape(small)
    path = tmp_path / "weights.pt"
    with pytest.raises(ValueError, match=r"^path: .* cannot be read"):
        dmm.load_published(network, path)
    path.write_bytes(b"not a file of PyTorch's")
    with pytest.raises(ValueError, match=r"^path: .* is damaged"):
        dmm.load_published(network, path)
    torch.save({"x": shape}, path)  # a function, which loading would look up by its name
    with pytest.raises(ValueError, match=r"^path: .* holds more than weights"):
        dmm.load_published(network, path)
    torch.save({"state_dict": {}}, path)
    with pytest.raises(ValueError, match=r"^path: .* holds no tensors by name"):
        dmm.load_published(network, path)


def test_without_pytorch(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install 'dmm\[convert\]'"):
        dmm.load_published(eqx.filter_eval_shape(small), "64_256_upsampler.pt")


def test_tensors_that_do_not_fit():
    """One message names every fault."""
    tensors = published_tensors()
    del tensors["middle_block.1.qkv.bias"]
    tensors["out.2.bias"] = np.zeros(3)
    tensors["input_blocks.0.0.weight"] = np.zeros((32, 3, 3, 6))
    tensors["input_blocks.4.0.op.weight"] = np.zeros((32, 32, 3, 3))
    with pytest.raises(ValueError, match=r"^tensors: ") as error:
        convert(eqx.filter_eval_shape(small), tensors)
    for fault in (
        "middle_block.1.qkv.bias is missing",
        "out.2.bias has shape (3,), not (6,)",
        "input_blocks.0.0.weight has shape (32, 3, 3, 6), not (32, 6, 3, 3)",
        "input_blocks.4.0.op.weight is left over",
    ):
        assert fault in str(error.value)
    assert str(error.value).count(";") == 4
    assert "\n" not in str(error.value)


def test_every_weight_is_filled_in():
    """Of an abstract network: nothing abstract is left, and weights stay in full precision."""
    network = convert(eqx.filter_eval_shape(small), published_tensors())
    leaves = [leaf for leaf in jax.tree.leaves(network) if hasattr(leaf, "shape")]
    assert all(isinstance(leaf, jax.Array) and leaf.dtype == jnp.float32 for leaf in leaves)
    assert sum(leaf.size for leaf in leaves) == sum(a.size for a in published_tensors().values())


def test_published_setting_has_312_million_weights():
    """The published checkpoint: 311.8M."""
    given = {"label": shape(1000), "low": shape(64, 64, 3)}
    make = functools.partial(dmm.Upsampler, relaxation=1.0)
    sides = shape(256, 256, 3), shape(256, 256, 3, 2), given
    network = eqx.filter_eval_shape(make, jax.random.key(0), *sides)
    count = sum(a.size for a in jax.tree.leaves(network) if hasattr(a, "size"))
    assert round(count / 1e6, 1) == 311.8
    called = eqx.filter_eval_shape(dmm.Upsampler.__call__, network, sides[0], 1.0, given)
    assert called.shape == (256, 256, 3, 2)


# ---- ours of it ------------------------------------------------------------------------------


def test_steps_are_as_noisy_as_times():
    """The published ᾱ, a product over its 1,000 steps, against e^{−2τ} of variances."""
    kept = np.cumprod(1 - np.linspace(1e-4, 0.02, 1000))
    network = small(relaxation=2.0, white=1.5)
    for tau in (0.01, 0.3, 2.0, 6.0):
        step, factor = network.step(jnp.array(tau))
        signal, noise = 1.5**2 * np.exp(-tau), -np.expm1(-tau)
        alpha = np.exp(np.interp(step, np.arange(1000), np.log(kept)))
        np.testing.assert_allclose(alpha / (1 - alpha), signal / noise, rtol=0.05)
        np.testing.assert_allclose(
            factor**2 * np.array([signal, noise]), [alpha, 1 - alpha], rtol=0.05
        )
    assert network.step(jnp.array(1e9))[0] == 999
    assert network.step(jnp.array(0.0))[0] == 0


def test_calls_at_that_step():
    network, (x, given) = small(), example()
    step, factor = network.step(jnp.array(0.3))
    ours, theirs = eqx.filter_jit(network), eqx.filter_jit(network.at_step)
    np.testing.assert_allclose(
        ours(x, jnp.array(0.3), given), theirs(factor * x, step, given), rtol=1e-4, atol=1e-5
    )


def test_starts_at_zero():
    network = dmm.Upsampler(jax.random.key(0), shape(8, 8), shape(8, 8, 2), relaxation=1.0, **SMALL)
    out = eqx.filter_jit(network)(jnp.ones((8, 8)), 0.3)
    assert out.shape == (8, 8, 2)
    assert not np.any(out)


def test_sees_everything_but_what_is_hidden():
    network, (x, given) = small(), example()
    run = eqx.filter_jit(network)
    before = run(x, 0.3, given, 1.0)
    changed = {
        "input": (x.at[0, 0, 0].add(1.0), 0.3, given, 1.0),
        "time": (x, 0.4, given, 1.0),
        "image": (x, 0.3, given | {"low": given["low"].at[0, 0, 0].add(1.0)}, 1.0),
        "label": (x, 0.3, given | {"label": jax.nn.one_hot(2, 5)}, 1.0),
        "absence": (x, 0.3, given, 0.0),
    }
    for what, arguments in changed.items():
        assert np.max(np.abs(run(*arguments) - before)) > 1e-4, what
    other = jax.tree.map(lambda leaf: 1 - 3 * leaf, given)
    np.testing.assert_array_equal(run(x, 0.3, given, 0.0), run(x, 0.3, other, 0.0))


def test_rematerialised_is_the_same():
    """Outputs, gradients, and what dropout leaves out."""
    x, given = example()

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(network):
        return jnp.mean(network(x, 0.3, given, 1.0, jax.random.key(3)) ** 2)

    plain, again = (small(**LIGHT, dropout=0.2, remat=remat) for remat in (False, True))
    (value, gradient), (again_value, again_gradient) = loss(plain), loss(again)
    np.testing.assert_allclose(value, again_value, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(again_gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    traced = [str(eqx.filter_make_jaxpr(n)(x, 0.3, given)[0]) for n in (plain, again)]
    assert [text.count("= remat") for text in traced] == [0, 1 + 2 + 2]  # one a block


def test_half_precision_is_near_full():
    """Within 3%: bfloat16 has 8 bits. Weights and outputs stay in float32."""
    x, given = example()
    full, half = (
        eqx.filter_jit(small(**LIGHT, dtype=dtype))(x, 0.3, given) for dtype in (None, jnp.bfloat16)
    )
    assert half.dtype == jnp.float32
    assert 0 < np.linalg.norm(half - full) < 0.03 * np.linalg.norm(full)


def test_dropout_needs_a_key():
    x, given = example()
    run = eqx.filter_jit(small(**LIGHT, dropout=0.5))
    plain = eqx.filter_jit(small(**LIGHT))(x, 0.3, given)
    np.testing.assert_allclose(run(x, 0.3, given), plain, rtol=1e-4, atol=1e-5)
    drops = [run(x, 0.3, given, 1.0, jax.random.key(i)) for i in range(2)]
    assert np.any(drops[0] != drops[1])


def test_fitted_with_a_small_image(tmp_path):
    """Grey levels in colour, with labels; guided samples; saved and loaded."""
    space = dmm.Finite((8, 8, 3), 16, ordered=True)
    data = jax.random.randint(jax.random.key(0), (12, 8, 8, 3), 0, 16)
    low = jnp.mean(data.reshape(12, 4, 2, 4, 2, 3), (2, 4)) / 7.5 - 1
    process = dmm.OrdinalChain(space)
    observations = dmm.Observations(
        {"label": dmm.OneHot(5), "low": dmm.Standardised(jnp.zeros(()), jnp.ones(()))}
    )
    model = dmm.fit(
        data, given={"label": jnp.arange(12) % 3, "low": low}, key=jax.random.key(1),
        process=process, parameterisation=dmm.PriorLogistic(), observations=observations,
        network=lambda *shapes: dmm.Upsampler(
            *shapes, relaxation=process.horizon / 10, remat=True, **LIGHT
        ),
        steps=2, batch_size=4, drop_given=0.2, validation=0.0, progress=False,
    )  # fmt: skip
    assert model.network.labels.shape == (5, 32)
    model.save(tmp_path / "model.dmm")
    again = dmm.load(tmp_path / "model.dmm")
    assert eqx.tree_equal(model, again)
    given = {"label": 4, "low": low[0]}
    drawn = again.sample(jax.random.key(2), 2, given=given, steps=2, guidance=1.5)
    assert drawn.shape == (2, 8, 8, 3)


def test_bad_input():
    sides = shape(8, 8, 3), shape(8, 8, 3, 2)

    def refused(match, *sides, given=None, **settings):
        settings = {"relaxation": 1.0, **SMALL, **settings}
        with pytest.raises(ValueError, match=match):
            dmm.Upsampler(jax.random.key(0), *sides, given, **settings)

    refused("Upsampler works on images", shape(8), shape(8))
    refused(r"^inputs: 2 levels halve the sides 1 times", shape(8, 7), shape(8, 7))
    refused(r"^given: holds an image larger", *sides, given=shape(9, 9, 3))
    refused(r"^attention: levels run from 0 to 1", *sides, attention=(2,))
    refused(r"^heads: 3 do not divide", *sides, heads=3)
    refused(r"^relaxation: must be positive", *sides, relaxation=0.0)
    refused(r"^multipliers: ", *sides, multipliers=(), attention=())
