"""Every experiment runs at its smoke preset, to a table of finite numbers and a report.

What is tested is that they work; the figures they give are in `results/`. Data sets in files are
stood in for by small ones of the same format.
"""

import gzip
import math
import struct

import numpy as np
import pytest

from dmm import datasets, experiments
from dmm.datasets import files


def write_idx(path, array):
    head = struct.pack(f">HBB{array.ndim}i", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(head + array.astype(np.uint8).tobytes()))


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """A folder with small files of every data set, where `dmm` looks for data."""
    random = np.random.default_rng(0)
    (tmp_path / "mnist").mkdir()
    for part, n in (("train", 40), ("t10k", 10)):
        write_idx(
            tmp_path / f"mnist/{part}-images-idx3-ubyte.gz", random.integers(0, 256, (n, 28, 28))
        )
        write_idx(tmp_path / f"mnist/{part}-labels-idx1-ubyte.gz", random.integers(0, 10, n))
    (tmp_path / "text").mkdir()
    line = "To be, or not to be: that is the question.\n"
    (tmp_path / "text/tinyshakespeare.txt").write_text(20 * line)
    (tmp_path / "earth").mkdir()
    for name, header in (("volerup", 2), ("quakes_all", 4), ("flood", 2), ("fire", 1)):
        places = zip(random.uniform(-60, 70, 60), random.uniform(-180, 180, 60), strict=True)
        rows = [*header * ["# header"], *(f"{north:.3f},{east:.3f}" for north, east in places)]
        (tmp_path / f"earth/{name}.csv").write_text("\n".join(rows))
    (tmp_path / "simplex").mkdir()
    rows = [["sample", *(f"Group {i}" for i in range(8))]]
    rows += [[f"Sample-{i}", *random.poisson(3, 8) * 1.0] for i in range(40)]
    table = "\n".join(",".join(map(str, row)) for row in rows)
    (tmp_path / "simplex/atlas1006_counts.csv").write_text(table)
    (tmp_path / "torus").mkdir()
    names = "\t".join(["nucleotide", "A"])
    rows = [names + "".join(f"\t{a:.1f}" for a in random.uniform(0, 360, 7)) for _ in range(60)]
    (tmp_path / "torus/rna.tsv").write_text("\n".join(rows))
    monkeypatch.setenv("DMM_DATA", str(tmp_path))
    return tmp_path


SETTINGS = {
    "mixture": {"target": "ring"},
    "mnist": {"kind": "discrete"},
    "shakespeare": {"kind": "absorbing"},
}


UNLEARNED = {"small_chain"}  # experiments with exact scores, which fit nothing


@pytest.mark.parametrize("name", [name for name in experiments.names() if name != "demo"])
def test_smoke(name, data_folder, tmp_path):
    run = experiments.start(
        name, preset="smoke", root=tmp_path / "runs", settings=SETTINGS.get(name)
    )
    table = experiments.execute(run)
    assert table
    numbers = [v for row in table for v in row.values() if isinstance(v, float)]
    assert numbers
    assert all(map(math.isfinite, numbers))
    assert (run.path / "report.html").stat().st_size > 4_000
    assert run.models or name in UNLEARNED


def test_images(data_folder):
    images = datasets.mnist()
    assert images.train.shape == (40, 28, 28)
    assert images.test_labels.shape == (10,)
    assert images.train.min() >= 0
    assert images.train.max() < images.levels == 256


def test_digits_are_split_once_and_for_all():
    images = datasets.digits()
    assert images.train.shape == (1500, 8, 8)
    assert images.test.shape == (297, 8, 8)
    assert images.train.max() == images.levels - 1 == 16
    np.testing.assert_array_equal(images.test, datasets.digits().test)
    assert sorted(set(images.test_labels)) == list(range(10))


def test_text(data_folder):
    text = datasets.shakespeare(test=0.25)
    whole = (data_folder / "text/tinyshakespeare.txt").read_text()
    assert text.decode(np.concatenate([text.train, text.test])) == whole
    assert len(text.test) == pytest.approx(0.25 * len(whole), abs=1)
    assert datasets.windows(np.arange(10), 4).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ValueError, match=r"^length"):
        datasets.windows(np.arange(3), 4)


def test_data_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("DMM_DATA", str(tmp_path))
    with pytest.raises(datasets.DataError, match=r"^DMM_DATA: .*does not exist; put it there"):
        datasets.mnist()
    (tmp_path / "broken.gz").write_bytes(gzip.compress(b"\0\0\x0d\x01\0\0\0\x01"))
    whole = gzip.compress(b"\0\0\x08\x01\0\0\0\x64" + bytes(range(100)))
    (tmp_path / "damaged.gz").write_bytes(whole[:30] + b"\xff" * 20 + whole[50:])
    for name in ("broken.gz", "damaged.gz"):
        with pytest.raises(datasets.DataError, match="is not an IDX file"):
            files.read_idx(tmp_path / name)


def test_data_that_cannot_be_downloaded(tmp_path, monkeypatch):
    """One line that names the file, the address and the way out."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("DMM_DATA", raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)

    def offline(*args, **kwargs):
        raise OSError("no route")

    monkeypatch.setattr(pooch, "retrieve", offline)
    with pytest.raises(datasets.DataError, match=r"^text/tiny.*cannot be downloaded.*DMM_DATA"):
        datasets.shakespeare()
