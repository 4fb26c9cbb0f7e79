"""What the experiment `superres` is made of: its data, its network, its figures."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from dmm import experiments
from dmm.datasets import downsample
from dmm.experiments import superres
from dmm.experiments._photographs import InMemory, encodings, photographs, waves
from dmm.training.costs import flops


def test_batches_are_mirrored_photographs_with_what_is_seen_of_them():
    images = waves(3, 8)
    source = InMemory(images, np.arange(3), factor=4, classes=3)
    batch = source.batch(source.block(0, 1), jnp.zeros((), jnp.int32), jax.random.key(0), 200)
    views = {
        image[:, ::side].tobytes(): row for row, image in enumerate(images) for side in (1, -1)
    }
    drawn = [np.asarray(image, np.uint8).tobytes() for image in batch.x]
    assert set(drawn) == set(views)
    assert [views[view] for view in drawn] == batch.given["label"].tolist()
    grey = 255 * (np.asarray(batch.given["small"]) + 1) / 2
    np.testing.assert_allclose(grey, downsample(np.asarray(batch.x, float), 4), atol=1e-4)


def test_photographs_are_no_constants_of_the_compiled_loop():
    source = InMemory(waves(50, 8), np.zeros(50, int), factor=2, classes=0)
    traced = jax.make_jaxpr(lambda block, key: source.batch(block, 0, key, 2))
    closed = traced(source.block(0, 1), jax.random.key(0))
    assert max((np.size(constant) for constant in closed.consts), default=0) < 50


def test_small_images_enter_as_they_are():
    given = {"small": jnp.linspace(-1, 1, 12).reshape(2, 2, 3), "label": jnp.asarray(2)}
    encoded = encodings(4).encode(given)
    np.testing.assert_array_equal(encoded["small"], given["small"])
    assert encoded["label"].tolist() == [0, 0, 1, 0]


def test_own_photographs_have_the_classes_of_their_folders(tmp_path):
    for number, image in enumerate(waves(6, 8)):
        path = tmp_path / ["cats", "dogs"][number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(image).save(path)
    shown = photographs("tiny_imagenet", str(tmp_path), size=8, factor=2, test=2)
    assert shown.classes == 2
    assert len(shown.test) == 2
    for stream in (False, True):
        source = shown.source(batch_size=3, seed=0, stream=stream)
        preview = source.preview(jax.random.key(0))
        assert preview.given["small"].shape[1:] == (4, 4, 3)
        assert preview.given["label"].dtype == jnp.int32
    with pytest.raises(ValueError, match=r"^factor: 3 does not divide size=8"):
        photographs("waves", None, size=8, factor=3, test=2)


def test_numbers_in_text():
    assert superres.numbers("1,2,4", "multipliers") == (1, 2, 4)
    assert superres.numbers("", "attention") == ()
    with pytest.raises(ValueError, match=r'^multipliers: expected numbers such as "1,2,3"'):
        superres.numbers("1;2", "multipliers")


@pytest.mark.parametrize("draws", [2, 8])
def test_draws_like_the_truth_are_calibrated(draws):
    random = np.random.default_rng(0)
    centre = random.normal(128, 30, (50, 1, 8, 8, 3))
    drawn = centre + random.normal(0, 5, (50, draws, 8, 8, 3))
    truth = (centre + random.normal(0, 5, centre.shape))[:, 0]
    found = {row["quantity"]: row["value"] for row in superres.spread(drawn, truth)}
    assert found[superres.DIVERSITY] == pytest.approx(5, rel=0.02)
    assert found[superres.CALIBRATION] == pytest.approx(1, rel=0.02)


def test_operations_of_products():
    square, image = jnp.ones((3, 3)), jnp.ones((1, 8, 8, 5))
    kernel = jnp.ones((7, 3, 3, 5))

    def convolve(x):
        numbers = ("NHWC", "OHWI", "NHWC")
        return jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers)

    def loop(x):
        return jax.lax.scan(lambda x, _: (x @ square, None), x, length=4)[0]

    def branches(x):
        return jax.lax.cond(x[0, 0] > 0, lambda x: x @ square, loop, x)

    assert flops(lambda x: x @ square, jnp.ones((2, 3))) == 2 * 2 * 3 * 3
    assert flops(convolve, image) == 2 * 8 * 8 * 7 * 5 * 9
    assert flops(loop, square) == flops(branches, square) == 4 * 2 * 27
    assert flops(jax.jit(loop), square) == 4 * 2 * 27


def test_the_network_of_the_real_run_has_thirty_to_sixty_million_weights():
    """Of the defaults, which are the preset `tiny`."""
    default = experiments.load("superres").settings("tiny", {})
    texts = {k: superres.numbers(default[k], k) for k in ("multipliers", "attention")}
    network = {k: default[k] for k in ("channels", "blocks", "dropout", "remat", "precision")}
    how = superres.design(default["size"], 0, default["batch_size"], **network, **texts)
    point, low = (jax.ShapeDtypeStruct((side, side, 3), jnp.float32) for side in (64, 16))
    outputs = jax.ShapeDtypeStruct((*point.shape, 2), jnp.float32)

    def make(key):
        return how["network"](key, point, outputs, {"small": low})

    made = eqx.filter_eval_shape(make, jax.random.key(0))
    shapes = (leaf for leaf in jax.tree.leaves(made) if isinstance(leaf, jax.ShapeDtypeStruct))
    assert 30e6 < sum(leaf.size for leaf in shapes) < 60e6
