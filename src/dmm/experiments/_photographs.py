"""Photographs for `superres`: read, held in memory or streamed, and made small."""

import copy
import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import at_least
from ..datasets import ImageFolder, downsample, imagenet256, tiny_imagenet
from ..networks import Observations, OneHot, Standardised
from ..training import Example
from ..training.data import Source

LEVELS = 256


class Photographs(NamedTuple):
    """What to train on, what is held out, and what is seen of them."""

    train: ImageFolder | np.ndarray
    test: np.ndarray
    labels: np.ndarray  # of those held out
    classes: int  # 0 where there are no labels
    factor: int

    @property
    def small(self) -> np.ndarray:
        """What is seen of those held out, in levels."""
        return np.asarray(downsample(self.test, self.factor), np.float64)

    @property
    def given(self) -> dict[str, Any]:
        """The same, for networks."""
        return observed(self.test, self.labels, self.factor, self.classes)

    def first(self, n: int) -> "Photographs":
        """With no more than n held out."""
        return self._replace(test=self.test[:n], labels=self.labels[:n])

    def source(self, *, batch_size: int, seed: int, stream: bool) -> Source:
        """Random photographs, half of them mirrored, for `fit`."""
        if stream and isinstance(self.train, ImageFolder):

            def transform(images, labels):
                return pairs(images, labels, self.factor, self.classes)

            return self.train.stream(batch_size=batch_size, seed=seed, transform=transform)
        if isinstance(self.train, ImageFolder):
            images, labels = self.train.arrays()
        else:
            images, labels = self.train, np.zeros(len(self.train), np.int32)
        return InMemory(images, labels, self.factor, self.classes)


class InMemory(Source):
    """Photographs on the device as bytes; a batch is drawn, mirrored and made small in the loop."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, factor: int, classes: int):
        self.data = jnp.asarray(images, jnp.uint8), jnp.asarray(labels, jnp.int32)
        self.factor, self.classes = factor, classes

    def _pairs(self, images: jax.Array, labels: jax.Array) -> Example:
        return pairs(images.astype(jnp.int32), labels, self.factor, self.classes)

    def preview(self, key):
        images, labels = self.data
        return self._pairs(images[:256], labels[:256])

    def block(self, step, length):
        return self.data  # not closed over: as a constant it would be compiled in

    def batch(self, block, index, key, n):
        images, labels = block
        rows_key, flips_key = jax.random.split(key)
        rows = jax.random.randint(rows_key, (n,), 0, len(images))
        flips = jax.random.bernoulli(flips_key, 0.5, (n, 1, 1, 1))
        chosen = images[rows]
        return self._pairs(jnp.where(flips, chosen[:, :, ::-1], chosen), labels[rows])

    def placed(self, layout):
        source = copy.copy(self)
        source.data = layout.copies(self.data)
        return source

    def identity(self):
        digest = hashlib.sha256(f"{self.factor} {self.classes}".encode())
        for array in self.data:
            digest.update(np.asarray(array).tobytes())
        return digest.hexdigest()[:16]


def pairs(images: Any, labels: Any, factor: int, classes: int) -> Example:
    """Photographs, given what is seen of them."""
    return Example(images, observed(images, labels, factor, classes))


def observed(images: Any, labels: Any, factor: int, classes: int) -> dict[str, Any]:
    """The means of `factor` × `factor` pixels in [−1, 1], and labels where there are any."""
    small = {"small": 2 * downsample(images, factor) / (LEVELS - 1) - 1}
    return small | {"label": labels} if classes else small


def encodings(classes: int) -> Observations:
    """Small images enter networks as they are: on the scale of the large ones."""
    small = {"small": Standardised(jnp.zeros(()), jnp.ones(()))}
    return Observations(small | {"label": OneHot(classes)} if classes else small)


def photographs(data: str, path: str | None, *, size: int, factor: int, test: int) -> Photographs:
    """Those of a data set, or the user's own in a folder or zip file."""
    at_least(1, factor=factor, test=test)
    if size % factor:
        raise ValueError(f"factor: {factor} does not divide size={size}; choose one that does")
    if path is None and data == "waves":
        train, held_out = waves(64, size), waves(test, size, seed=1)
        return Photographs(train, held_out, np.zeros(test, np.int32), 0, factor)
    if path is None and data == "tiny_imagenet":  # those held out have no labels
        held_out, labels = tiny_imagenet("val", size=size).arrays(test)
        return Photographs(tiny_imagenet("train", size=size), held_out, labels, 0, factor)
    whole = imagenet256(size=size) if path is None else ImageFolder(path, size=size)
    train, rest = whole.split(test)
    classes = len(whole.classes) if len(whole.classes) > 1 else 0
    return Photographs(train, *rest.arrays(), classes, factor)


def waves(n: int, size: int, *, seed: int = 0) -> np.ndarray:
    """Images of bytes that need no files: three plane waves of random colours in each."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size] / size
    directions = random.normal(size=(n, 3, 2, 1, 1))
    phases = 2 * np.pi * random.random((n, 3, 1, 1))
    planes = np.sin(4 * (directions[:, :, 0] * x + directions[:, :, 1] * y) + phases)
    colours = random.normal(size=(n, 3, 3))
    grey = 128 + 50 * np.einsum("nwc,nwij->nijc", colours, planes)
    return np.clip(np.rint(grey), 0, LEVELS - 1).astype(np.uint8)
