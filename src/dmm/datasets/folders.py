"""Images in a folder or a zip file: more of them than fit in memory."""

import copy
import functools
import hashlib
import itertools
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from .._checks import at_least
from ..training import Example, Stream
from .archives import Read, open_archive
from .crew import Crew
from .files import DataError, find
from .pictures import square

TRIES = 50  # images in a row that cannot be used, before all are thought to be so
NAMED = 5  # of them in one warning
SINGLY = 100  # of them with a warning to each batch; then one whenever there are twice as many
CHUNK = 16  # images a task

# What is drawn, of a seed: the first of the numbers that a generator starts from.
ORDER, VIEWS, SUBSTITUTES = 1, 2, 3


class ImageFolder:
    """Squares of `size` × `size` pixels in 8-bit RGB, from a folder or a zip file of images.

        folder = ImageFolder("photographs.zip", size=64)
        dmm.fit(folder.stream(batch_size=128, seed=0), space=dmm.Finite((64, 64, 3), 256), ...)

    The class of an image is the folder that it lies in. `names`, `labels` and `classes` say what
    was found, in the order of names; only names are read at first. Shorter sides are made `size`;
    images smaller than that are skipped, or enlarged with `enlarge`. What cannot be read is skipped
    too: a warning names it, and `skipped` says why. `workers` threads decode.

    Grey, CMYK, palettes and 16 bits become 8-bit RGB, transparency becomes white, and photographs
    are turned as the camera says.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        size: int,
        enlarge: bool = False,
        workers: int | None = None,
    ):
        workers = min(os.cpu_count() or 1, 16) if workers is None else workers
        at_least(1, size=size, workers=workers)
        self.path, self.size, self.enlarge, self.workers = path, size, enlarge, workers
        self._archive = open_archive(path)
        names = self._archive.names
        folders = [name.rpartition("/")[0] for name in names]
        self.classes = tuple(sorted(set(folders)))
        numbers = {name: number for number, name in enumerate(self.classes)}
        self._hold(names, np.asarray([numbers[name] for name in folders], np.int32))

    def _hold(self, names: list[str], labels: np.ndarray) -> None:
        self.names, self.labels = names, labels
        self.skipped: dict[str, str] = {}  # those warned of: names, and why
        self._bad: dict[int, str] = {}  # those met by any thread
        self._told = 0

    def __len__(self) -> int:
        return len(self.names)

    def split(self, held_out: int) -> tuple["ImageFolder", "ImageFolder"]:
        """All but so many images, evenly spread, and those: two folders of the same classes."""
        n = len(self)
        if not 0 < held_out < n:
            raise ValueError(f"held_out: must be from 1 to {n - 1}, got {held_out}")
        second = np.arange(held_out) * n // held_out
        parts = copy.copy(self), copy.copy(self)
        for part, rows in zip(parts, (np.delete(np.arange(n), second), second), strict=True):
            part._hold([self.names[row] for row in rows], self.labels[rows])
        return parts

    def batches(
        self,
        step: int = 0,
        *,
        batch_size: int,
        seed: int = 0,
        random_crop: bool = True,
        random_flip: bool = True,
        process: int = 0,
        of: int = 1,
        ahead: int = 10,
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Bytes (batch_size, size, size, 3) and labels (batch_size,) of every step from `step` on.

        A batch depends on the seed and its step alone. Every epoch takes each image once, in an
        order of its own; in the place of one that cannot be used comes another, drawn by the seed.
        Crops are random along the longer side, and half of the images mirrored, unless switched
        off. Process number `process` of `of` gets its rows of the same batches. As many as `ahead`
        batches are decoded before they are asked for.
        """
        at_least(0, step=step, seed=seed, process=process, ahead=ahead)
        at_least(1, batch_size=batch_size, of=of)
        if process >= of:
            raise ValueError(f"process: must be less than of={of}, got {process}")
        if batch_size % of:
            raise ValueError(f"batch_size: {batch_size} does not divide into {of} equal parts")
        rows = np.split(np.arange(batch_size), of)[process]
        order = functools.lru_cache(maxsize=2)(functools.partial(_order, seed, len(self)))

        def plan(step: int) -> _Plan:
            places, flips = np.random.default_rng((VIEWS, seed, step)).random((2, batch_size))
            indices = _at(order, len(self), step * batch_size + rows)
            places = places[rows] if random_crop else np.full(len(rows), 0.5)
            flips = flips[rows] < 0.5 if random_flip else np.zeros(len(rows), bool)
            return _Plan(indices, places, flips, [(SUBSTITUTES, seed, step, int(r)) for r in rows])

        return self._decoded(map(plan, itertools.count(step)), ahead)

    def stream(
        self,
        *,
        batch_size: int,
        transform: Callable[[np.ndarray, np.ndarray], Any] | None = None,
        **options: Any,
    ) -> Stream:
        """The same batches for `fit`; `options` are those of `batches`.

        `transform(images, labels)` makes of each what the model is of: points, or an `Example`.
        Without it, images given their labels, or images alone if there is but one class.
        """
        transform = transform or (Example if len(self.classes) > 1 else lambda images, _: images)
        first = functools.partial(self.batches, batch_size=batch_size, **options)
        first()  # checks the options
        drawn = {"seed": 0, "random_crop": True, "random_flip": True}
        drawn |= {name: options[name] for name in drawn if name in options}
        kind = self.size, self.enlarge, batch_size, drawn
        names = hashlib.sha256("\n".join(self.names).encode()).hexdigest()

        def batches(step: int) -> Iterator[Any]:
            return itertools.starmap(transform, first(step))

        def preview() -> Any:
            indices = np.linspace(0, len(self) - 1, batch_size).astype(int)
            images, labels = next(self._decoded(iter([_plain(indices)]), 0))
            labels[-1] = len(self.classes) - 1  # labels are counted by the greatest
            return transform(images, labels)

        return Stream(batches, preview=preview, identity=f"{names} {kind}")

    def arrays(self, limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Bytes (n, size, size, 3) and labels (n,) of all images, or of `limit` evenly spread.

        Shorter sides are made `size`, longer ones lose as much at both ends. What cannot be used is
        left out.
        """
        at_least(1, limit=1 if limit is None else limit)
        n = min(len(self), limit or len(self))
        plan = _plain(np.arange(n) * len(self) // n)._replace(seeds=None)
        crew = Crew(self.workers)
        try:
            images, labels = self._collect(self._begin(crew, plan))
        finally:
            crew.cancel()
        used = labels >= 0
        if not used.any():
            raise self._hopeless(n)
        return images[used], labels[used]

    def _decoded(self, plans: Iterator["_Plan"], ahead: int):
        """The batches of some plans, so many of them begun before they are asked for."""
        crew = Crew(self.workers)
        begun: deque[_Begun] = deque()
        try:
            for plan in plans:
                begun.append(self._begin(crew, plan))
                if len(begun) > ahead:
                    yield self._collect(begun.popleft())
        finally:
            crew.cancel()

    def _begin(self, crew: Crew, plan: "_Plan") -> "_Begun":
        n = len(plan.indices)
        images = np.empty((n, self.size, self.size, 3), np.uint8)
        labels = np.empty(n, np.int32)
        chunk = min(CHUNK, -(-n // self.workers))
        tasks = [
            crew.submit(self._decode, plan, images, labels, range(start, min(start + chunk, n)))
            for start in range(0, n, chunk)
        ]
        return _Begun(images, labels, tasks)

    def _collect(self, begun: "_Begun") -> tuple[np.ndarray, np.ndarray]:
        self._warn([index for task in begun.tasks for index in task.result()])
        return begun.images, begun.labels

    def _decode(self, plan: "_Plan", images, labels, rows: range) -> list[int]:
        """Some rows of a batch; returns the indices of images met that cannot be used."""
        met: list[int] = []
        with self._archive.opened() as read:
            for row in rows:
                labels[row] = -1
                for index in self._candidates(plan, row):
                    pixels = self._pixels(read, index, plan.places[row], plan.flips[row])
                    if pixels is not None:
                        images[row], labels[row] = pixels, self.labels[index]
                        break
                    met.append(index)
                else:
                    if plan.seeds is not None:
                        raise self._hopeless(TRIES)
        return met

    def _candidates(self, plan: "_Plan", row: int) -> Iterator[int]:
        """The image of a row, and those to take in its place."""
        yield int(plan.indices[row])
        if plan.seeds is not None:
            random = np.random.default_rng(plan.seeds[row])
            yield from map(int, random.integers(len(self), size=TRIES - 1))

    def _pixels(self, read: Read, index: int, place: float, flip: bool) -> np.ndarray | None:
        if index in self._bad:
            return None
        name = self.names[index]
        try:
            return square(read(name), self.size, place=place, flip=flip, enlarge=self.enlarge)
        except Exception as error:  # what Pillow raises for damaged files is of many kinds
            if isinstance(error, OSError) and error.errno is not None:
                # The system's fault, not the image's: another time it may succeed.
                raise DataError(f"path: {name} in {self.path} cannot be read ({error})") from error
            self._bad[index] = _reason(error)
            return None

    def _warn(self, met: list[int]) -> None:
        """Of images that cannot be used, those not warned of before."""
        found = {self.names[i]: self._bad[i] for i in met if self.names[i] not in self.skipped}
        self.skipped |= found
        count = len(self.skipped)
        if not found or (count > SINGLY and count < 2 * self._told):
            return
        self._told = count
        named = [f"{name} ({why})" for name, why in itertools.islice(found.items(), NAMED)]
        more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
        warnings.warn(
            f"{self.path}: skipped {count} of {len(self)} images so far, now {', '.join(named)}"
            f"{more}; all are in `skipped`",
            stacklevel=2,
        )

    def _hopeless(self, tries: int) -> DataError:
        index, why = next(iter(self._bad.items()))
        return DataError(
            f"path: of {self.path}, {tries} images in a row cannot be used, one of them "
            f"{self.names[index]} ({why}); repair them"
        )


class _Plan(NamedTuple):
    """What a batch is to hold: images, where to cut them, and what to draw substitutes from."""

    indices: np.ndarray
    places: np.ndarray
    flips: np.ndarray
    seeds: list[tuple[int, ...]] | None


class _Begun(NamedTuple):
    """A batch that is being decoded."""

    images: np.ndarray
    labels: np.ndarray
    tasks: list[Future]


def tiny_imagenet(split: str = "train", *, size: int = 64) -> ImageFolder:
    """Photographs of 64×64 pixels: 9,000 of 200 classes in "train", 1,000 unlabelled in "val"."""
    if split not in ("train", "val"):
        raise ValueError(f"split: choose 'train' or 'val', got {split!r}")
    return ImageFolder(find(f"tiny_imagenet/{split}.zip"), size=size)


def imagenet256(*, size: int = 256) -> ImageFolder:
    """200 photographs of ImageNet, of 256×256 pixels, unlabelled."""
    return ImageFolder(find("imagenet256/images.zip"), size=size)


def _order(seed: int, n: int, epoch: int) -> np.ndarray:
    return np.random.default_rng((ORDER, seed, epoch)).permutation(n)


def _at(order: Callable[[int], np.ndarray], n: int, positions: np.ndarray) -> np.ndarray:
    """The images at some positions of all epochs, one after the other."""
    epochs, places = np.divmod(positions, n)
    return np.concatenate([order(int(e))[places[epochs == e]] for e in np.unique(epochs)])


def _plain(indices: np.ndarray) -> _Plan:
    """The middle of some images."""
    n = len(indices)
    seeds = [(SUBSTITUTES, 0, 0, row) for row in range(n)]
    return _Plan(indices, np.full(n, 0.5), np.zeros(n, bool), seeds)


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
