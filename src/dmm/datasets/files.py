"""Data sets in files: where they are looked for, and what to do if they are nowhere."""

import gzip
import hashlib
import os
import zlib
from pathlib import Path

import numpy as np

MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
SHAKESPEARE = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/"
# Path under the data folder: where to download it from, and its SHA-256.
FILES = {
    "mnist/train-images-idx3-ubyte.gz": (
        f"{MNIST}train-images-idx3-ubyte.gz",
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "mnist/train-labels-idx1-ubyte.gz": (
        f"{MNIST}train-labels-idx1-ubyte.gz",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "mnist/t10k-images-idx3-ubyte.gz": (
        f"{MNIST}t10k-images-idx3-ubyte.gz",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "mnist/t10k-labels-idx1-ubyte.gz": (
        f"{MNIST}t10k-labels-idx1-ubyte.gz",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "text/tinyshakespeare.txt": (
        f"{SHAKESPEARE}input.txt",
        "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    ),
}


class DataError(ValueError):
    """A data set that cannot be found, downloaded or read; the message names the fix."""


def find(name: str) -> Path:
    """A file of a data set: in $DMM_DATA, else in the user's cache, else downloaded to it."""
    address, digest = FILES[name]
    folder = os.environ.get("DMM_DATA")
    if folder:
        path = Path(folder) / name
        if not path.is_file():
            raise DataError(f"DMM_DATA: {path} does not exist; put it there, or unset DMM_DATA")
        return path
    import pooch

    cached = Path(pooch.os_cache("dmm")) / name
    if cached.is_file() and hashlib.sha256(cached.read_bytes()).hexdigest() == digest:
        return cached
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
