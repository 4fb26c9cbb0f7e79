"""Folders of images: what is in a batch, whatever the files, the threads and the interruptions."""

import io
import itertools
import os
import struct
import threading
import time
import zipfile
import zlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import dmm
from dmm.datasets import DataError, ImageFolder, downsample, imagenet256, tiny_imagenet
from dmm.datasets.crew import Crew

SIZE = 8


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    yield
    assert no_threads()


def no_threads(seconds=10.0):
    """Whether the decoding threads end, by themselves and soon."""
    limit = time.monotonic() + seconds
    while any(thread.name == "dmm-crew" for thread in threading.enumerate()):
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def picture(number, shape=(SIZE, SIZE)):
    """Noise whose first pixel tells its number."""
    pixels = np.random.default_rng(number).integers(0, 256, (*shape, 3)).astype(np.uint8)
    pixels[0, 0] = number
    return pixels


def save(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


@pytest.fixture
def few(tmp_path):
    """Thirteen squares of two classes, without loss: 8 cats, 5 dogs."""
    for number in range(13):
        save(tmp_path / "few" / ("cat" if number < 8 else "dog") / f"{number:02}.png",
             picture(number))  # fmt: skip
    (tmp_path / "few" / "cat" / "notes.txt").write_text("no image")
    return tmp_path / "few"


def zipped(folder, to, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(to, "w", method) as file:
        for path in sorted(folder.rglob("*.*"), reverse=True):
            file.write(path, path.relative_to(folder))
    return to


def plain(folder, **options):
    """Batches without crops and flips."""
    return folder.batches(random_crop=False, random_flip=False, **options)


def take(batches, n):
    taken = list(itertools.islice(batches, n))
    batches.close()
    return taken


def assert_same(first, second):
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_classes_are_folders_and_every_epoch_takes_each_image_once(few):
    folder = ImageFolder(few, size=SIZE)
    assert folder.classes == ("cat", "dog")
    assert len(folder) == 13
    np.testing.assert_array_equal(folder.labels, [0] * 8 + [1] * 5)
    batches = take(plain(folder, batch_size=5), 13)  # five epochs
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    assert images.shape == (65, SIZE, SIZE, 3)
    assert images.dtype == np.uint8
    numbers = images[:, 0, 0, 0]
    np.testing.assert_array_equal(labels, numbers >= 8)
    epochs = numbers.reshape(5, 13)
    np.testing.assert_array_equal(np.sort(epochs, 1), np.tile(np.arange(13), (5, 1)))
    assert len({tuple(epoch) for epoch in epochs}) == 5
    for image, number in zip(images, numbers, strict=True):
        np.testing.assert_array_equal(image, picture(number))


def test_a_batch_larger_than_the_folder(few):
    images, _ = next(plain(ImageFolder(few, size=SIZE), batch_size=30))
    assert np.bincount(images[:, 0, 0, 0]).tolist() in (
        np.bincount(np.r_[np.arange(13), np.arange(13), rest], minlength=13).tolist()
        for rest in itertools.combinations(range(13), 4)
    )


@pytest.fixture
def wide(tmp_path):
    """Images of several shapes, so that crops differ; one of them is damaged."""
    for number in range(9):
        save(tmp_path / "wide" / f"{number}.png", picture(number, (SIZE + number, 3 * SIZE)))
    (tmp_path / "wide" / "4.png").write_bytes(b"not an image")
    return tmp_path / "wide"


@pytest.mark.filterwarnings("ignore:.*skipped 1 of 9")
@pytest.mark.parametrize(("workers", "ahead"), [(1, 0), (3, 10), (8, 2)])
def test_a_batch_depends_on_seed_and_step_alone(wide, workers, ahead):
    settings = {"batch_size": 20, "seed": 3}
    reference = take(ImageFolder(wide, size=SIZE).batches(**settings), 10)
    folder = ImageFolder(wide, size=SIZE, workers=workers)
    assert_same(take(folder.batches(**settings, ahead=ahead), 10), reference)
    assert_same(take(folder.batches(7, **settings, ahead=ahead), 3), reference[7:])
    other = take(folder.batches(batch_size=20, seed=4), 1)
    assert not np.array_equal(other[0][0], reference[0][0])


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_file_is_as_good_as_a_folder(few, tmp_path, method):
    (few / "cat" / ".hidden.png").write_bytes(b"")
    save(few / "__MACOSX" / "cat" / "00.png", picture(0))
    folder, zip_ = ImageFolder(few, size=SIZE), zipped(few, tmp_path / "few.zip", method)
    again = ImageFolder(zip_, size=SIZE, workers=3)
    assert again.classes == folder.classes == ("cat", "dog")
    assert_same(take(again.batches(batch_size=6), 6), take(folder.batches(batch_size=6), 6))


def test_images_held_out(few):
    """Evenly spread, in no batch of the others; classes stay as they were."""
    folder = ImageFolder(few, size=SIZE)
    train, held_out = folder.split(4)
    assert held_out.names == [folder.names[row] for row in (0, 3, 6, 9)]
    assert sorted(train.names + held_out.names) == folder.names
    assert train.classes == held_out.classes == folder.classes
    images, labels = held_out.arrays()
    assert images[:, 0, 0, 0].tolist() == [0, 3, 6, 9]
    assert labels.tolist() == [0, 0, 0, 1]
    seen, _ = next(train.batches(batch_size=9, random_flip=False))
    assert sorted(seen[:, 0, 0, 0].tolist()) == [1, 2, 4, 5, 7, 8, 10, 11, 12]
    for number in (0, 13):
        with pytest.raises(ValueError, match=r"^held_out: must be from 1 to 12"):
            folder.split(number)


@pytest.mark.filterwarnings("ignore:.*skipped 1 of 9")
def test_hosts_share_out_the_rows_of_one_batch(wide):
    folder = ImageFolder(wide, size=SIZE)
    whole = take(folder.batches(2, batch_size=12), 3)
    parts = [take(folder.batches(2, batch_size=12, process=i, of=3), 3) for i in range(3)]
    joined = [
        tuple(np.concatenate(arrays) for arrays in zip(*step, strict=True))
        for step in zip(*parts, strict=True)
    ]
    assert_same(joined, whole)


def test_crops_and_flips(tmp_path):
    """Every crop along the longer side, mirrored or not, comes up; the middle, if switched off."""
    tall = picture(1, (SIZE + 2, SIZE))
    save(tmp_path / "tall.png", tall)
    folder = ImageFolder(tmp_path, size=SIZE)
    cuts = [tall[top : top + SIZE] for top in range(3)]
    views = [cut.tobytes() for cut in cuts] + [cut[:, ::-1].tobytes() for cut in cuts]
    images, _ = next(folder.batches(batch_size=300))
    counts = [sum(image.tobytes() == view for image in images) for view in views]
    assert sum(counts) == 300
    assert min(counts) > 50 - 5 * 50**0.5
    for images in (next(plain(folder, batch_size=2))[0], folder.arrays()[0]):
        np.testing.assert_array_equal(images, np.stack([cuts[1]] * len(images)))
    unflipped, _ = next(folder.batches(batch_size=50, random_flip=False))
    assert {image.tobytes() for image in unflipped} == set(views[:3])


def test_the_shorter_side_is_made_the_size(tmp_path):
    """A picture whose left half is black, right half white and middle third across is red."""
    pixels = np.zeros((40, 120, 3), np.uint8)
    pixels[:, 60:] = 255
    pixels[:, 40:80] = (255, 0, 0)
    save(tmp_path / "a.png", pixels)
    ((image,), _) = ImageFolder(tmp_path, size=10).arrays()
    red = np.uint8([[[255, 0, 0]]])
    np.testing.assert_array_equal(image[:, 3:-3], np.broadcast_to(red, (10, 4, 3)))
    for place, colour in ((0.0, 0), (0.999, 255)):
        ends = dmm.datasets.pictures.square((tmp_path / "a.png").read_bytes(), 10, place=place)
        assert (ends[:, 3:-3] == colour).all()


def test_large_jpegs_are_read_at_a_fraction_of_their_size(tmp_path):
    slope = np.broadcast_to(np.linspace(0, 255, 512)[:, None, None], (512, 512, 3))
    save(tmp_path / "a.jpg", slope.astype(np.uint8), quality=95)
    ((image,), _) = ImageFolder(tmp_path, size=16).arrays()
    exact = downsample(slope[None], 32)[0]
    assert np.abs(image - exact).max() < 3


# What files may hold.

LEVELS = np.arange(256, dtype=np.uint8).reshape(16, 16)
RGB = np.stack([LEVELS, LEVELS[::-1], LEVELS.T], -1)


def png_of_16_bits(colours):
    """Pillow writes no such file: 16 bits a colour, by the book."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    height, width, _ = colours.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in colours)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def transparent():
    """Opaque on the left, hidden red on the right."""
    rgba = np.dstack([RGB, np.full((16, 16), 255, np.uint8)])
    rgba[:, 8:] = (255, 0, 0, 0)
    return rgba


def on_white():
    image = RGB.copy()
    image[:, 8:] = 255
    return image


def grey(levels=LEVELS):
    return np.dstack([levels] * 3)


def encoded(pixels, kind, **options):
    buffer = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def palette(**options):
    image = Image.fromarray(LEVELS, "L").convert("P")
    image.putpalette([level for i in range(256) for level in (i, 255 - i, 0)])
    return encoded(image, "PNG", **options)


def cmyk():
    """Half of each ink on white: light that is left is the product."""
    return Image.fromarray(np.full((16, 16, 4), (255, 0, 0, 51), np.uint8), "CMYK")


def turned():
    """Stored lying on its side, with the camera's note to turn it."""
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90° clockwise to view
    return encoded(np.rot90(RGB), "PNG", exif=exif)


WIDE_LEVELS = LEVELS.astype(np.uint16) * 257
FILES = {
    "RGB.png": (encoded(RGB, "PNG"), RGB, 0),
    "RGB.bmp": (encoded(RGB, "BMP"), RGB, 0),
    "RGB.webp": (encoded(RGB, "WEBP", lossless=True), RGB, 0),
    "grey.jpg": (encoded(LEVELS // 8 * 8, "JPEG", quality=100), grey(LEVELS // 8 * 8), 3),
    "grey.png": (encoded(LEVELS, "PNG"), grey(), 0),
    "bits.png": (encoded(LEVELS > 99, "PNG"), grey(np.uint8(LEVELS > 99) * np.uint8(255)), 0),
    "16 bits.png": (encoded(WIDE_LEVELS, "PNG"), grey(), 0),
    "16 bits.tif": (encoded(WIDE_LEVELS, "TIFF"), grey(), 0),
    "between.png": (encoded(WIDE_LEVELS // 2, "PNG"), grey(LEVELS / 2), 0.51),
    "as integers.tif": (encoded(WIDE_LEVELS.astype(np.int32), "TIFF"), grey(), 0),
    "16 bits RGB.png": (png_of_16_bits(RGB.astype(np.uint16) * 257), RGB, 0),
    "RGBA.png": (encoded(transparent(), "PNG"), on_white(), 0),
    "grey alpha.png": (encoded(np.dstack([LEVELS, LEVELS * 0 + 255]), "PNG"), grey(), 0),
    "palette.png": (palette(), np.dstack([LEVELS, 255 - LEVELS, LEVELS * 0]), 0),
    "clear.png": (
        palette(transparency=bytes(256)), np.full((16, 16, 3), 255), 0
    ),
    "palette.gif": (encoded(LEVELS, "GIF"), grey(), 0),
    "CMYK.jpg": (encoded(cmyk(), "JPEG", quality=100), np.full((16, 16, 3), (0, 204, 204)), 2),
    "CMYK.tif": (encoded(cmyk(), "TIFF"), np.full((16, 16, 3), (0, 204, 204)), 0),
    "turned.png": (turned(), RGB, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_all_kinds_become_8_bit_rgb(tmp_path, name):
    content, wanted, tolerance = FILES[name]
    (tmp_path / name).write_bytes(content)
    ((image,), _) = ImageFolder(tmp_path, size=16).arrays()
    assert image.dtype == np.uint8
    assert np.abs(image - np.asarray(wanted, float)).max() <= tolerance


WHOLE = encoded(picture(99, (64, 64)), "PNG")
JPEG = encoded(picture(99, (64, 64)), "JPEG")
BAD = {
    "text.png": (b"This is no image.", "not an image"),
    "empty.jpg": (b"", "not an image"),
    "truncated.png": (WHOLE[: len(WHOLE) // 2], ""),
    "truncated.jpg": (JPEG[: len(JPEG) // 2], "truncated"),
    "header.png": (WHOLE[:30], ""),
    "damaged.png": (WHOLE[:60] + bytes(20) + WHOLE[80:], ""),
    "real.tif": (encoded(np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16), "TIFF"), "real"),
    "32 bits.tif": (encoded(np.full((16, 16), 70_000, np.int32), "TIFF"), "not of 16 bits"),
    "small.png": (encoded(picture(0, (7, 30)), "PNG"), "30×7 pixels, fewer than size=8"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_named_and_replaced(few, name):
    """Batches keep their shape, and hold the other images; nothing is warned of twice."""
    content, why = BAD[name]
    (few / "cat" / name).write_bytes(content)
    folder = ImageFolder(few, size=SIZE)
    batches = plain(folder, batch_size=14)
    with pytest.warns(UserWarning, match=f"skipped 1 of 14 images so far, now cat/{name}") as told:
        images, labels = next(batches)
    assert len(told) == 1
    assert why in str(told[0].message)
    assert list(folder.skipped) == [f"cat/{name}"]
    numbers = images[:, 0, 0, 0]
    assert set(numbers) == set(range(13))
    np.testing.assert_array_equal(labels, numbers >= 8)
    next(batches)  # with warnings as errors
    images, labels = folder.arrays()
    np.testing.assert_array_equal(images[:, 0, 0, 0], range(13))
    np.testing.assert_array_equal(labels, folder.labels[[n != f"cat/{name}" for n in folder.names]])


def test_small_images_can_be_enlarged(tmp_path):
    save(tmp_path / "a.png", np.full((4, 6, 3), 77, np.uint8))
    ((image,), _) = ImageFolder(tmp_path, size=SIZE, enlarge=True).arrays()
    np.testing.assert_array_equal(image, np.full((SIZE, SIZE, 3), 77))


def test_many_bad_images_are_few_warnings(tmp_path):
    for number in range(300):
        path = tmp_path / f"{number:03}.png"
        save(path, picture(number % 256)) if number < 60 else path.write_bytes(b"")
    folder = ImageFolder(tmp_path, size=SIZE)
    with pytest.warns(UserWarning, match="and [0-9]+ more; all are in `skipped`") as told:
        take(folder.batches(batch_size=10), 30)
    assert 3 < len(told) < 20
    assert len(folder.skipped) == 240


def test_a_folder_of_nothing_usable(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes(b"")
    folder = ImageFolder(tmp_path, size=SIZE)
    message = r"^path: .*images in a row cannot be used, one of them .\.png \(not an image\)"
    with pytest.raises(DataError, match=message):
        next(folder.batches(batch_size=2))
    with pytest.warns(UserWarning, match="5 of 5"), pytest.raises(DataError, match=message):
        folder.arrays()


def test_an_image_that_the_system_refuses_is_an_error(few):
    """Skipped, it would change the batches of a run that resumes."""
    folder = ImageFolder(few, size=SIZE)
    (few / "dog" / "09.png").unlink()
    with pytest.raises(DataError, match=r"^path: dog/09\.png in .* cannot be read"):
        take(folder.batches(batch_size=13), 1)


def test_damage_in_a_zip_file_is_an_image_skipped(few, tmp_path):
    path = zipped(few, tmp_path / "few.zip", zipfile.ZIP_STORED)
    with zipfile.ZipFile(path) as file:
        first, second = (file.getinfo(f"cat/0{i}.png").header_offset for i in (1, 2))
    content = bytearray(path.read_bytes())
    content[first + 60] ^= 1  # in the image
    content[second] ^= 1  # in what tells where it is
    path.write_bytes(content)
    folder = ImageFolder(path, size=SIZE)
    with pytest.warns(UserWarning, match="skipped 2 of 13"):
        images, _ = folder.arrays()
    assert len(images) == 11
    assert "checksum" in folder.skipped["cat/01.png"]
    assert "damaged" in folder.skipped["cat/02.png"]
    path.unlink()
    with pytest.raises(DataError, match="cannot be read any more"):
        folder.arrays()


def test_links_in_a_circle_and_pipes_do_not_hang(few):
    (few / "dog" / "again").symlink_to(few)
    (few / "ape").symlink_to(few / "cat")
    os.mkfifo(few / "dog" / "pipe.png")
    folder = ImageFolder(few, size=SIZE)
    assert folder.classes == ("ape", "cat", "dog")
    assert len(folder) == 21


def lzma(folder, to):
    return zipped(folder, to, zipfile.ZIP_LZMA)


def test_what_is_no_folder_of_images(few, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no zip file")
    for path, message in (
        (tmp_path / "nowhere", "does not exist; pass a folder or a zip"),
        (tmp_path / "empty", "holds no images; pass a folder"),
        (tmp_path / "text.zip", "is not a zip file"),
        (few / "cat" / "00.png", "is not a zip file"),
        (lzma(few, tmp_path / "lzma.zip"), "unusual method; zip the images again"),
    ):
        with pytest.raises(DataError, match=f"^path: .*{message}") as caught:
            ImageFolder(path, size=SIZE)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: must be at least 1"),
        ({"seed": -1}, "seed: must be at least 0"),
        ({"ahead": -1}, "ahead: must be at least 0"),
        ({"of": 3}, "batch_size: 4 does not divide into 3"),
        ({"process": 2, "of": 2}, "process: must be less than of=2, got 2"),
    ],
)
def test_bad_options_are_named_at_once(few, options, message):
    folder = ImageFolder(few, size=SIZE)
    for call in (folder.batches, folder.stream):
        with pytest.raises(ValueError, match=f"^{message}"):
            call(**{"batch_size": 4, **options})
    with pytest.raises(ValueError, match=r"^size: must be at least 1"):
        ImageFolder(few, size=0)


def test_arrays_are_spread_over_the_classes(few):
    folder = ImageFolder(few, size=SIZE)
    images, labels = folder.arrays(limit=4)
    np.testing.assert_array_equal(images[:, 0, 0, 0], [0, 3, 6, 9])
    np.testing.assert_array_equal(labels, [0, 0, 0, 1])
    assert len(folder.arrays(limit=1000)[0]) == 13


# Threads.


def test_threads_end_with_the_work_though_nothing_was_closed(few):
    batches = ImageFolder(few, size=SIZE, workers=4).batches(batch_size=13)
    next(batches)
    assert no_threads()
    next(batches)  # and others take over


def test_a_crew_passes_on_what_tasks_return_or_raise():
    crew, gate = Crew(1), threading.Event()
    futures = [crew.submit(gate.wait), crew.submit(divmod, 7, 2), crew.submit(divmod, 7, 0)]
    gate.set()
    assert futures[1].result(10) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        futures[2].result(10)
    gate.clear()
    begun = threading.Event()
    busy = crew.submit(lambda: begun.set() or gate.wait())
    waiting = crew.submit(divmod, 7, 2)
    assert begun.wait(10)
    crew.cancel()
    gate.set()
    assert busy.result(10)
    assert waiting.cancelled()


# In training.


LEVELS_SPACE = dmm.Finite((4, 4, 3), 256, ordered=True)


def halved(images, labels):
    """Small images given smaller ones and their classes."""
    small = downsample(images, 2)
    return dmm.Example(small.astype(np.uint8), given=(downsample(small, 2), labels))


def tiny_fit(stream, **settings):
    return dmm.fit(
        stream,
        space=LEVELS_SPACE,
        process=dmm.UniformChain(LEVELS_SPACE),
        network=lambda *shapes: dmm.MLP(*shapes, width=4, depth=1),
        key=jax.random.key(0),
        **{"steps": 4, "block": 2, "progress": False, **settings},
    )


def test_a_model_is_fitted_to_a_stream_of_images(few):
    """The first batch shows no dog, but the model knows that there are some."""
    seed = next(
        seed for seed in range(100)
        if not next(ImageFolder(few, size=SIZE).batches(batch_size=3, seed=seed))[1].any()
    )  # fmt: skip
    stream = ImageFolder(few, size=SIZE).stream(batch_size=3, seed=seed, transform=halved)
    model = tiny_fit(stream)
    assert no_threads()
    model.observations.check((jnp.zeros((2, 2, 3)), jnp.array(1)))
    with pytest.raises(ValueError, match="from 0 to 1"):
        model.observations.check((jnp.zeros((2, 2, 3)), jnp.array(2)))


def test_no_thread_outlives_a_training_that_fails(few):
    def failing(images, labels):
        if calls.pop():
            raise RuntimeError("as planned")
        return halved(images, labels)

    calls = [True, False, False, False]
    stream = ImageFolder(few, size=SIZE).stream(batch_size=3, transform=failing)
    with pytest.raises(RuntimeError, match="as planned"):
        tiny_fit(stream)
    assert no_threads()


def test_bytes_stay_bytes_until_the_step_that_needs_them(few):
    """On the way to the device they take a quarter of what the model's integers do."""
    stream = ImageFolder(few, size=SIZE).stream(batch_size=3, transform=halved)
    space = LEVELS_SPACE
    checked = stream.checked(lambda example, step: dmm.training.data.check_examples(space, example))
    block = checked.block(0, 2)
    assert block.x.dtype == jnp.uint8
    assert block.x.shape == (2, 3, 4, 4, 3)
    batch = checked.batch(block, 1, None, 3)
    assert batch.x.dtype == jnp.int32
    wanted = halved(*take(ImageFolder(few, size=SIZE).batches(1, batch_size=3), 1)[0])
    np.testing.assert_array_equal(batch.x, wanted.x)
    np.testing.assert_array_equal(batch.given[0], wanted.given[0])
    np.testing.assert_array_equal(batch.given[1], wanted.given[1])


def test_one_class_is_no_observation(few):
    example = ImageFolder(few / "cat", size=SIZE).stream(batch_size=3).preview(None)
    assert example.given is None
    example = ImageFolder(few, size=SIZE).stream(batch_size=3).preview(None)
    np.testing.assert_array_equal(example.given[-1], 1)


# Downsampling.


def test_downsampling_is_the_mean_of_squares():
    images = np.random.default_rng(0).integers(0, 256, (2, 6, 9, 3)).astype(np.uint8)
    small = downsample(images, 3)
    assert small.shape == (2, 2, 3, 3)
    assert small.dtype == np.float32
    for row, column in itertools.product(range(2), range(3)):
        block = images[:, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3].astype(float)
        np.testing.assert_allclose(small[:, row, column], block.mean((1, 2)), rtol=1e-6)
    traced = jax.jit(lambda x: downsample(x, 3))(jnp.asarray(images))
    np.testing.assert_allclose(traced, small, rtol=2e-7)  # a third may be multiplied by
    white = np.full((256, 256, 3), 255, np.uint8)
    np.testing.assert_array_equal(downsample(white, 256), [[[255.0] * 3]])
    np.testing.assert_array_equal(downsample(images, 1), images)
    with pytest.raises(ValueError, match=r"^factor: 4 does not divide 6×9"):
        downsample(images, 4)


# Data sets.


@pytest.mark.skipif(not os.environ.get("DMM_DATA"), reason="DMM_DATA is not set")
def test_photographs():
    path = Path(os.environ["DMM_DATA"])
    if not (path / "tiny_imagenet").is_dir():
        pytest.skip("DMM_DATA has no tiny_imagenet")
    folder = tiny_imagenet()
    assert len(folder) == 9000
    assert len(folder.classes) == 200
    assert np.bincount(folder.labels).tolist() == [45] * 200
    images, _ = next(folder.batches(batch_size=64, ahead=0))
    assert images.shape == (64, 64, 64, 3)
    assert 80 < images.mean() < 150
    assert folder.skipped == {}
    assert len(tiny_imagenet("val")) == 1000
    if (path / "imagenet256").is_dir():
        assert imagenet256(size=128).arrays(limit=3)[0].shape == (3, 128, 128, 3)


def test_data_sets_say_where_they_come_from(tmp_path, monkeypatch):
    monkeypatch.setenv("DMM_DATA", str(tmp_path))
    for load in (tiny_imagenet, imagenet256):
        with pytest.raises(DataError, match=r"^DMM_DATA: .*does not exist; put it there: .*github"):
            load()
    with pytest.raises(ValueError, match=r"^split: choose 'train' or 'val', got 'test'"):
        tiny_imagenet("test")
