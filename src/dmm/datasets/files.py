"""Data sets in files: where they are looked for, and what to do if they are nowhere."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
EARTH = (
    "https://raw.githubusercontent.com/oxcsml/riemannian-score-sde/"
    "5b48a7f7e175894afb6933f5e5f367b5a0eb65d7/data/"
)


class File(NamedTuple):
    """Where to download it from, its SHA-256, and if there is no address where it comes from."""

    address: str | None
    digest: str
    origin: str = ""


# By path under the data folder.
FILES = {
    "mnist/train-images-idx3-ubyte.gz": File(
        f"{MNIST}train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "mnist/train-labels-idx1-ubyte.gz": File(
        f"{MNIST}train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": File(
        f"{MNIST}t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": File(
        f"{MNIST}t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "text/tinyshakespeare.txt": File(
        f"{SHAKESPEARE}input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
    "earth/volerup.csv": File(
        f"{EARTH}volerup.csv",
        "f7bbaf32a412f5fe82350f48e0c55100be260803969c16557343f687fd0593fc",
    ),
    "earth/quakes_all.csv": File(
        f"{EARTH}quakes_all.csv",
        "3e5e1a10fb2faf1899106264289334037d039f00f5265d13dad388a93d8ff2f7",
    ),
    "earth/flood.csv": File(
        f"{EARTH}flood.csv",
        "ffb1e3182c3053afcdeceec4727c262a29da10255d20747c08144da5b0963486",
    ),
    "earth/fire.csv": File(
        f"{EARTH}fire.csv",
        "c5c6c9490b1d8c58ba9eb78d9e2f82d1c1e62694ca5cff917c54600d3d83f459",
    ),
    "torus/rna.tsv": File(
        None,
        "189183ca25bd45c8a7578d3c1cd8a555b5139bb1ab0ac1a0bd25672be19badf7",
        "it is the file of RNA torsion angles in https://github.com/vislearn/FFF",
    ),
    "simplex/atlas1006_counts.csv": File(
        None,
        "75a48441a448f8d7d934ed70f0f128d033a63797951347271bc50aaabe0be970",
        "it is what write.csv(t(abundances(atlas1006)), ...) writes in R, of the package "
        "https://github.com/microbiome/microbiome",
    ),
    "tiny_imagenet/train.zip": File(
        None,
        "47171da5fd4969377ea3b85393d2d96174e5e64bcf1c5a17a881da7f456d5b8a",
        "photographs of 64×64 pixels, a folder a class, of https://github.com/rangeetpan/IMagenet",
    ),
    "tiny_imagenet/val.zip": File(
        None,
        "9f276e53b80608abd849e51bc16549a4cf6dc0af6074bf30902dd069857bf31d",
        "photographs of 64×64 pixels, of https://github.com/rangeetpan/IMagenet",
    ),
    "imagenet256/images.zip": File(
        None,
        "48da68cf1264339ff1050eb274bb245dbb2c95636c3df7e3383479e1a75d8de5",
        "images of https://github.com/EliSchwartz/imagenet-sample-images, the middle in 256×256",
    ),
}


class DataError(ValueError):
    """A data set that cannot be found, downloaded or read; the message names the fix."""


def find(name: str) -> Path:
    """A file of a data set: in $DMM_DATA, else in the user's cache, else downloaded to it."""
    address, digest, origin = FILES[name]
    folder = os.environ.get("DMM_DATA")
    if folder:
        path = Path(folder) / name
        if not path.is_file():
            remedy = "put it there, or unset DMM_DATA" if address else f"put it there: {origin}"
            raise DataError(f"DMM_DATA: {path} does not exist; {remedy}")
        return path
    import pooch

    cached = Path(pooch.os_cache("dmm")) / name
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == digest:
        return cached
    if address is None:
        raise DataError(
            f"{name}: has no address to download it from; set DMM_DATA to a folder and put it "
            f"there: {origin}"
        )
    try:
        found = pooch.retrieve(
            address, f"sha256:{digest}", fname=cached.name, path=cached.parent, progressbar=False
        )
    except Exception as error:  # no network, no such page, another file: one remedy
        raise DataError(
            f"{name}: cannot be downloaded from {address} ({type(error).__name__}); fetch it by "
            "other means and set DMM_DATA to the folder that holds it"
        ) from error
    return Path(found)


def read_idx(path: Path) -> np.ndarray:
    """An array in the IDX format, compressed by gzip."""
    try:
        raw = gzip.decompress(path.read_bytes())
        kind, sides = raw[2], raw[3]
        shape = np.frombuffer(raw, ">i4", sides, 4)
        if kind != 8:
            raise ValueError("not bytes")
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * sides).reshape(shape)
    except (OSError, EOFError, ValueError, IndexError, zlib.error) as error:
        raise DataError(f"{path}: is not an IDX file of bytes ({error}); fetch it again") from error
