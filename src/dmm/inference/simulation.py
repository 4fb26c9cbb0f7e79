"""Simulations: run, watched over, kept on disk as they come."""

import contextlib
import inspect
import os
import time
import warnings
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import at_least, positive
from .._progress import counting_bar
from .._types import Key
from ..model import check_key
from .store import Chunk, Store
from .workers import Workers

BLOCK = 1_000  # traceable simulations at a time
HOPELESS = 20  # so many at the start without one that is of use, and no more are tried
SAVED = 5.0  # seconds between files


class SimulationError(RuntimeError):
    """The simulator gives nothing to learn from; what it gave is kept."""


class Report(NamedTuple):
    """How many simulations were asked for and what became of those without use."""

    asked: int
    failed: int
    not_finite: int
    first_error: str | None


def traceable(simulator: Callable) -> bool:
    """Whether a simulator is a function of a JAX key and θ: its first argument is named `key`."""
    if not callable(simulator):
        raise ValueError("simulator: expected a function of (key, theta), (theta, rng) or (theta)")
    try:
        names = list(inspect.signature(simulator).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names) and names[0] == "key"


def run_simulations(
    simulator: Callable,
    theta: Any,
    key: Key,
    *,
    workers: int | None = None,
    timeout: float | None = 300.0,
    folder: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> tuple[Any, Any, Report]:
    """The parameters and observations of all simulations of use, and a report of the others.

    `theta` are stacked parameters, an array or a dict or tuple of arrays. A simulator of (key,
    theta) is traced by JAX; one of (theta) or (theta, rng), rng a NumPy generator, is called in
    `workers` processes, at most `timeout` seconds each time. Simulation number i has a key of its
    own: the results do not depend on the number of processes, nor on interruptions. With a
    `folder`, what is there already is not simulated again.
    """
    positive(timeout=np.inf if timeout is None else timeout)
    key = check_key(key)
    workers = _cores() if workers is None else workers
    at_least(1, workers=workers)
    theta = jax.tree.map(np.asarray, theta)
    lengths = {leaf.shape[:1] for leaf in jax.tree.leaves(theta)}
    if len(lengths) != 1 or lengths & {(), (0,)}:
        raise ValueError("theta: expected parameters stacked to one length, at least 1")
    n = len(jax.tree.leaves(theta)[0])
    store = Store(folder, theta, np.asarray(jax.random.key_data(key)))
    todo = np.setdiff1d(np.arange(n), store.done())
    if traceable(simulator):
        chunks = _traced(simulator, theta, key, todo)
    else:
        chunks = _called(simulator, theta, key, todo, workers, timeout)
    watch = _Watch(n, store, trying=len(todo) == n)
    # Closed at once after an error too: processes do not live on in its traceback.
    with (
        contextlib.closing(chunks),
        counting_bar(n, n - len(todo), "simulations", progress) as update,
    ):
        try:
            for chunk in chunks:
                update(len(chunk.index) + len(chunk.failed), watch.see(chunk))
        finally:
            store.flush()
    return watch.finish(theta)


class _Watch:
    """Looks at what comes in, and stops where there is nothing to wait for."""

    def __init__(self, n: int, store: Store, *, trying: bool):
        self.n, self.store, self.trying = n, store, trying
        self.useless = 0
        self.first: Chunk | None = None
        self.last = time.monotonic()

    def see(self, chunk: Chunk) -> int:
        """Keep a chunk; how many are of no use so far."""
        if len(chunk.index):
            self._compare(chunk)
        self.store.add(chunk)
        if time.monotonic() - self.last > SAVED:
            self.store.flush()
            self.last = time.monotonic()
        good = int(np.sum(finite_rows(chunk.x))) if len(chunk.index) else 0
        self.useless += len(chunk.index) + len(chunk.failed) - good
        self.trying &= not good
        if self.trying and self.useless >= min(HOPELESS, self.n):
            self._give_up()
        return self.useless

    def _compare(self, chunk: Chunk) -> None:
        """Observations with the first there are, which may be from an earlier run."""
        self.first = self.first or next((c for c in self.store.chunks if len(c.index)), chunk)
        found, wanted = _shapes(chunk.x), _shapes(self.first.x)
        if found != wanted:
            raise SimulationError(
                f"simulator: simulation {chunk.index[0]} returned {found} where simulation "
                f"{self.first.index[0]} returned {wanted}; all observations must have one shape: "
                "pad them, or summarise them in numbers"
            )

    def _give_up(self) -> None:
        chunk = self.store.all()
        if len(chunk.failed):
            raise SimulationError(
                f"simulator: none of the first {self.useless} simulations ended well; the first "
                f"failure, of number {chunk.failed[0]}:\n{chunk.errors[0]}"
            )
        raise SimulationError(
            f"simulator: all of the first {self.useless} simulations hold NaN or infinity; call it "
            "on a draw of the prior to see why"
        )

    def finish(self, theta: Any) -> tuple[Any, Any, Report]:
        """What is of use, in the order of the simulations; warnings of what is not."""
        chunk = self.store.all()
        finite = finite_rows(chunk.x) if len(chunk.index) else np.zeros(0, bool)
        report = Report(
            asked=self.n,
            failed=len(chunk.failed),
            not_finite=int(np.sum(~finite)),
            first_error=str(chunk.errors[0]) if len(chunk.failed) else None,
        )
        if not finite.any():
            self.useless = self.n
            self._give_up()
        if report.failed:
            warnings.warn(
                f"simulator: {report.failed} of {self.n} simulations failed and are left out; the "
                f"first, number {chunk.failed[0]}: {chunk.errors[0].splitlines()[-1]}",
                stacklevel=3,
            )
        if report.not_finite:
            warnings.warn(
                f"simulator: {report.not_finite} of {self.n} simulations hold NaN or infinity and "
                "are left out: the posterior is that of parameters given that this does not happen",
                stacklevel=3,
            )
        order = np.argsort(chunk.index[finite])
        rows = np.flatnonzero(finite)[order]
        kept = jax.tree.map(lambda leaf: leaf[chunk.index[rows]], theta)
        return kept, jax.tree.map(lambda leaf: leaf[rows], chunk.x), report


def finite_rows(x: Any) -> np.ndarray:
    """Which rows of stacked observations are numbers in the precision that is computed in."""
    most = float(jnp.finfo(jnp.result_type(float)).max)
    leaves = [np.abs(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(x)]
    return np.all([np.all(leaf <= most, axis=1) for leaf in leaves], axis=0)


def _traced(
    simulator: Callable, theta: Any, key: Key, todo: np.ndarray
) -> Generator[Chunk, None, None]:
    def one(i, theta):
        return as_arrays(simulator(jax.random.fold_in(key, i), theta))

    run = jax.jit(jax.vmap(one))
    for start in range(0, len(todo), BLOCK):
        rows = todo[start : start + BLOCK]
        # The last block is filled up, so that all have one shape.
        filled = np.resize(rows, min(BLOCK, len(todo)))
        try:
            x = run(filled, jax.tree.map(lambda leaf, at=filled: leaf[at], theta))
        except SimulationError:
            raise
        except Exception as error:
            raise SimulationError(f"simulator: {traced_wrongly(error)}") from error
        used = slice(len(rows))
        x = jax.tree.map(lambda leaf, used=used: np.asarray(leaf)[used], x)
        yield Chunk(rows, x, np.zeros(0, int), np.zeros(0, str))


def as_arrays(x: Any) -> Any:
    """What a traced simulator returned; a list of numbers is one array."""
    if not jax.tree.leaves(x):
        raise SimulationError("simulator: returns nothing; return an array, or a dict of arrays")
    return jax.tree.map(
        lambda leaf: jnp.asarray(leaf, float), x, is_leaf=lambda node: isinstance(node, list)
    )


def traced_wrongly(error: Exception) -> str:
    """What to say of a simulator that JAX could not trace."""
    return (
        f"JAX, which traces it since its first argument is named key, met {type(error).__name__}: "
        f"{error}. Write it in jax.numpy, or as a Python function of (theta, rng)"
    )


def _called(
    simulator: Callable, theta: Any, key: Key, todo: np.ndarray, workers: int, timeout: float | None
) -> Generator[Chunk, None, None]:
    seed = np.asarray(jax.random.key_data(key)).ravel().tolist()
    tasks = (
        (int(i), jax.tree.map(lambda leaf, i=i: leaf[i], theta), [*seed, int(i)]) for i in todo
    )
    pool = Workers(simulator, min(workers, max(1, len(todo))), timeout)
    with contextlib.closing(pool.run(tasks)) as outcomes:
        for index, value, error in outcomes:
            if error is not None:
                yield Chunk(np.zeros(0, int), None, np.array([index]), np.array([error]))
                continue
            x = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64)[None], value)
            yield Chunk(np.array([index]), x, np.zeros(0, int), np.zeros(0, str))


def _shapes(x: Any) -> str:
    """The shapes of one of stacked observations, in words."""
    shapes = jax.tree.map(lambda leaf: leaf.shape[1:], x)
    return f"an array of shape {shapes}" if isinstance(x, np.ndarray) else f"arrays {shapes}"


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
