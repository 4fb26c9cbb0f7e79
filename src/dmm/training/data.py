"""Where training examples come from: arrays, a simulator, or a stream of host batches."""

import abc
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import finite, numbers
from .._types import Given, Key, Point
from ..spaces import Space
from . import hosts
from .devices import Layout


class Example(NamedTuple):
    """A data point and what was observed with it; stacked, a batch of such."""

    x: Point
    given: Given = None


class Source(abc.ABC):
    """Examples for training.

    `block` is host data for some steps on, passed into the compiled loop, where `batch` makes the
    batch of one step of it. Neither depends on anything but its arguments, so a run that resumes
    at any step sees what it would have seen.
    """

    @abc.abstractmethod
    def preview(self, key: Key) -> Example:
        """Some stacked examples, to check and to take units from."""

    @abc.abstractmethod
    def block(self, step: int, length: int) -> Any:
        """What `batch` needs for `length` steps from `step` on."""

    @abc.abstractmethod
    def batch(self, block: Any, index: jax.Array, key: Key, n: int) -> Example:
        """The batch of n examples of step number `index` of a block; traced."""

    @abc.abstractmethod
    def placed(self, layout: Layout) -> "Source":
        """The source whose blocks are where the layout wants them."""

    @abc.abstractmethod
    def identity(self) -> str:
        """What tells it from others of its kind, so that a run goes on with the same."""


class Arrays(Source):
    """Examples in memory, drawn with replacement."""

    def __init__(self, examples: Example):
        self.examples = examples

    def __len__(self) -> int:
        return len(jax.tree.leaves(self.examples)[0])

    def preview(self, key):
        return self.examples

    def block(self, step, length):
        return self.examples

    def batch(self, block, index, key, n):
        rows = jax.random.randint(key, (n,), 0, len(self))
        return jax.tree.map(lambda leaf: leaf[rows], block)

    def placed(self, layout):
        return Arrays(layout.copies(self.examples))

    def identity(self):
        return ""

    def split(self, key: Key, share: float) -> tuple["Arrays", "Arrays"]:
        """Two disjoint random parts, the second with that share of the examples."""
        order = jax.random.permutation(key, len(self))
        held = min(max(1, round(share * len(self))), len(self) - 1)
        parts = order[held:], order[:held]
        first, second = (jax.tree.map(lambda a, r=rows: a[r], self.examples) for rows in parts)
        return Arrays(first), Arrays(second)


class Simulator(Source):
    """Fresh examples at every step: `draw(key)` is traceable and gives one point, or an `Example`.

    dmm.fit(dmm.Simulator(lambda key: dmm.Example(theta(key), given=observe(key))), ...)
    """

    def __init__(self, draw: Callable[[Key], Any], *, previews: int = 4096):
        if not callable(draw):
            raise ValueError("draw: expected a function of a random key")
        self.draw, self.previews = draw, previews

    def _example(self, key: Key) -> Example:
        drawn = self.draw(key)
        return drawn if isinstance(drawn, Example) else Example(drawn)

    def preview(self, key):
        return jax.jit(jax.vmap(self._example))(jax.random.split(key, self.previews))

    def block(self, step, length):
        return None

    def batch(self, block, index, key, n):
        return jax.vmap(self._example)(jax.random.split(key, n))

    def placed(self, layout):
        return self

    def identity(self):
        return ""


class Stream(Source):
    """Host batches for data that does not fit: `batches(step)` iterates from that step on.

    Each item is the batch of one step, stacked points or an `Example` of them, all of one shape.
    To resume is to call `batches` with a later step, so make it give the same batches then.
    `preview()` is a batch of that shape to take units and encodings from: the first, if left out.
    A run is continued only by a stream with the same `identity`, which may say where the data come
    from. Of several processes, each iterates over its own rows of batches; `preview()` is whole.
    """

    def __init__(
        self,
        batches: Callable[[int], Iterator[Any]],
        *,
        preview: Callable[[], Any] | None = None,
        identity: str = "",
    ):
        if not callable(batches):
            raise ValueError("batches: expected a function of a step that returns an iterator")
        if preview is not None and not callable(preview):
            raise ValueError("preview: expected a function that returns a batch")
        self.batches = batches
        self._preview, self._identity = preview, identity
        self._layout = Layout()
        self._next: tuple[int, Iterator[Any]] | None = None
        self._check: Callable[[Example, int], Example] = lambda example, step: example

    def checked(self, check: Callable[[Example, int], Example]) -> "Stream":
        """The stream with every batch passed through a check, which is told the step."""
        stream = self._copy()
        stream._check = check
        return stream

    def placed(self, layout):
        stream = self._copy()
        stream._layout = layout
        return stream

    def identity(self):
        return self._identity

    def preview(self, key):
        first = self._preview() if self._preview else hosts.joined(next(self._from(0), None))
        return self._read(first, 0)

    def block(self, step, length):
        if self._next is None or self._next[0] != step:
            self._next = (step, self._from(step))
        taken = list(itertools.islice(self._next[1], length))
        if len(taken) < length:
            raise ValueError(
                f"data: the stream ended at step {step + len(taken)}; make `batches` go on, for "
                "instance by starting over with the data reshuffled"
            )
        self._next = (step + length, self._next[1])
        with jax.default_device(_host()):  # to check, and to stack: else there and back again
            examples = [_narrow(self._read(b, step + i), b) for i, b in enumerate(taken)]
        return self._layout.rows(jax.tree.map(lambda *leaves: np.stack(leaves), *examples))

    def batch(self, block, index, key, n):
        return jax.tree.map(lambda leaf: _widen(leaf[index]), block)

    def _copy(self) -> "Stream":
        stream = Stream(self.batches, preview=self._preview, identity=self._identity)
        stream._check, stream._layout = self._check, self._layout
        return stream

    def _from(self, step: int) -> Iterator[Any]:
        return iter(self.batches(step))

    def _read(self, batch: Any, step: int) -> Example:
        if batch is None:
            raise ValueError(f"data: the stream has no batch at step {step}")
        return self._check(_example(batch), step)


def _example(batch: Any) -> Example:
    return batch if isinstance(batch, Example) else Example(batch)


def _host() -> Any:
    """The CPU as a device, unless JAX was told to do without it."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def _narrow(checked: Example, batch: Any) -> Example:
    """A checked batch, its whole numbers in the small type they came in: bytes take a quarter."""
    came = jax.tree.leaves(_example(batch))
    leaves, structure = jax.tree.flatten(checked)
    if len(came) != len(leaves):
        return checked
    return jax.tree.unflatten(structure, map(_narrowed, leaves, came))


def _narrowed(checked: Any, came: Any) -> Any:
    small = isinstance(came, np.ndarray) and came.dtype in (np.uint8, np.int8, np.uint16, np.int16)
    whole = jnp.issubdtype(checked.dtype, jnp.integer)
    return came if small and whole and came.shape == checked.shape else checked


def _widen(leaf: jax.Array) -> jax.Array:
    small = jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.dtype.itemsize < 4
    return leaf.astype(jnp.int32) if small else leaf


def check_examples(space: Space, examples: Example) -> Example:
    """Stacked examples as arrays of the space, with observations of the same length."""
    x = space.check(examples.x, "data")
    if examples.given is None:
        return Example(x)
    n = len(jax.tree.leaves(x)[0])
    # A list of rows is one array, not a tree of numbers.
    given = jax.tree.map(
        lambda leaf: _check_given(leaf, n), examples.given, is_leaf=lambda g: isinstance(g, list)
    )
    if not jax.tree.leaves(given):
        raise ValueError("given: holds no arrays; leave it out or pass observations")
    return Example(x, given)


def _check_given(leaf: Any, n: int) -> jax.Array:
    array = numbers(leaf, "given")
    if array.ndim == 0 or len(array) != n:
        found = f"shape {array.shape}" if array.ndim == 0 else f"length {len(array)}"
        raise ValueError(f"given: has {found} but data has length {n}; pass one a point")
    finite(array, "given")
    if jnp.issubdtype(array.dtype, jnp.integer):
        if array.min() < 0:
            raise ValueError("given: integers are taken as classes from 0 up; pass floats instead")
        return jnp.asarray(array, jnp.int32)
    return jnp.asarray(array, jnp.result_type(float))
