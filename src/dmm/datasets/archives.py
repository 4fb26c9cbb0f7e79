"""The images' files in a folder or a zip file, for many threads to read."""

import abc
import contextlib
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from .files import DataError

SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm",
     ".pnm", ".jp2", ".avif")
)  # fmt: skip

Read = Callable[[str], bytes]  # the bytes of the file of a name


class Archive(abc.ABC):
    """Named files."""

    names: list[str]  # of images, relative, with slashes, sorted

    @abc.abstractmethod
    def opened(self) -> AbstractContextManager[Read]:
        """A function that reads a file by its name; each thread opens one of its own."""


class Folder(Archive):
    """The images in a folder and in those below it."""

    def __init__(self, root: Path):
        self.root = root
        self.names = sorted(_walk(root))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Read]:
        yield lambda name: (self.root / name).read_bytes()


class Zip(Archive):
    """The images in a zip file.

    Its directory, which is long where there are many images, is read once: only the file is opened
    again, as `zipfile` promises nothing to threads.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with zipfile.ZipFile(path) as file:
                found = {info.filename: info for info in file.infolist() if _is_image(info)}
        except (OSError, zipfile.BadZipFile, struct.error, UnicodeDecodeError) as error:
            raise DataError(f"path: {path} is not a zip file ({error}); make it again") from error
        for name, info in found.items():
            stored = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not stored or info.flag_bits & 1:
                raise DataError(
                    f"path: {name} in {path} is encrypted or compressed by an unusual method; "
                    "zip the images again, stored or deflated"
                )
        self._entries = {
            name: (info.header_offset, info.compress_size, info.compress_type, info.CRC)
            for name, info in found.items()
        }
        self.names = sorted(found)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Read]:
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise DataError(f"path: {self.path} cannot be read any more ({error})") from error
        with file:
            yield lambda name: _extract(file, *self._entries[name])


def open_archive(path: str | os.PathLike) -> Archive:
    """The images under a path, of which there must be some."""
    path = Path(path)
    if path.is_dir():
        archive = Folder(path)
    elif path.is_file():
        archive = Zip(path)
    else:
        raise DataError(f"path: {path} does not exist; pass a folder or a zip file of images")
    if not archive.names:
        raise DataError(
            f"path: {path} holds no images; pass a folder or a zip file with images "
            f"({' '.join(sorted(SUFFIXES))}), one folder a class"
        )
    return archive


def _walk(folder: Path, prefix: str = "", above: tuple[str, ...] = ()) -> Iterator[str]:
    """Names of the images; links are followed, but not in circles."""
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _walk(Path(entry.path), f"{prefix}{entry.name}/", (*above, real))
            elif _has_suffix(entry.name) and entry.is_file():
                yield prefix + entry.name


def _is_image(info: zipfile.ZipInfo) -> bool:
    hidden = any(map(_is_hidden, info.filename.split("/")))
    return not info.is_dir() and not hidden and _has_suffix(info.filename)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"  # which repeats the names of images


def _has_suffix(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def _extract(file, offset: int, length: int, method: int, checksum: int) -> bytes:
    """An entry of a zip file: 30 bytes, its name, what is extra, its content."""
    file.seek(offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\3\4":
        raise ValueError("the zip file is damaged here")
    file.seek(sum(struct.unpack("<2H", header[26:])), os.SEEK_CUR)
    content = file.read(length)
    if method == zipfile.ZIP_DEFLATED:
        content = zlib.decompress(content, -zlib.MAX_WBITS)
    if zlib.crc32(content) != checksum:
        raise ValueError("its checksum in the zip file is another")
    return content
