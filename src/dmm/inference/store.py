"""Simulations on disk: a folder that is added to as they come, whole after any interruption.

theta.npz          the parameters of all simulations, in order
block_00000.npz    the numbers of some of them, their observations, and what failed and why
"""

import json
import os
import secrets
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np


class Chunk(NamedTuple):
    """The observations of some simulations, stacked, and the errors of others."""

    index: np.ndarray
    x: Any
    failed: np.ndarray
    errors: np.ndarray


class Store:
    """All chunks of some simulations; with a folder also on disk."""

    def __init__(self, folder: str | os.PathLike | None, theta: Any, key: np.ndarray):
        self.folder = None if folder is None else Path(folder)
        self.chunks: list[Chunk] = []
        self.fresh: list[Chunk] = []
        if self.folder is None:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_parameters(theta, key)
        n = len(jax.tree.leaves(theta)[0])
        for path in self._files():
            self.chunks.append(_within(_read(path), n))

    def done(self) -> np.ndarray:
        """The numbers of what need not be simulated again."""
        every = [part for chunk in self.chunks for part in (chunk.index, chunk.failed)]
        return np.concatenate([np.zeros(0, int), *every])

    def add(self, chunk: Chunk) -> None:
        """A further chunk, in memory until `flush`."""
        self.chunks.append(chunk)
        self.fresh.append(chunk)

    def flush(self) -> None:
        """What was added since the last call, to a file of its own."""
        if self.folder is None or not self.fresh:
            return
        chunk = _joined(self.fresh)
        files = self._files()
        number = _number(files[-1]) + 1 if files else 0
        arrays = {"index": chunk.index, "failed": chunk.failed, "errors": chunk.errors}
        write_arrays(self.folder / f"block_{number:05d}.npz", arrays | packed(chunk.x, "x"))
        self.fresh = []

    def all(self) -> Chunk:
        """Everything so far, as one."""
        return _joined(self.chunks)

    @staticmethod
    def parameters(folder: Path) -> Any:
        """The parameters of a folder's simulations, or None."""
        return read_tree(folder / "theta.npz", "theta")

    def _files(self) -> list[Path]:
        assert self.folder is not None
        return sorted(self.folder.glob("block_*.npz"), key=_number)

    def _check_parameters(self, theta: Any, key: np.ndarray) -> None:
        """The same simulations as before, or more of them."""
        assert self.folder is not None
        path = self.folder / "theta.npz"
        known = self.parameters(self.folder)
        if known is not None:
            pairs = list(zip(jax.tree.leaves(known), jax.tree.leaves(theta), strict=False))
            alike = jax.tree.structure(known) == jax.tree.structure(theta) and all(
                a.shape[1:] == b.shape[1:]
                and np.allclose(a[: len(b)], b[: len(a)], rtol=1e-5, atol=1e-8)
                for a, b in pairs
            )
            alike &= np.array_equal(read_tree(path, "key"), key)
            if not alike:
                raise ValueError(
                    f"run: {self.folder} holds simulations of another prior or key; name another "
                    "folder, or delete it"
                )
            if len(pairs[0][0]) >= len(pairs[0][1]):
                return
        write_arrays(path, packed(theta, "theta") | packed(key, "key"))


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("block_"))


def _read(path: Path) -> Chunk:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return Chunk(file["index"], _unpacked(file, "x"), file["failed"], file["errors"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"run: {path} cannot be read ({error}); delete it, and its simulations are made again"
        ) from error


def _within(chunk: Chunk, n: int) -> Chunk:
    """Of a chunk what belongs to the first n simulations."""
    rows, failed = chunk.index < n, chunk.failed < n
    x = jax.tree.map(lambda leaf: leaf[rows], chunk.x)
    return Chunk(chunk.index[rows], x, chunk.failed[failed], chunk.errors[failed])


def _joined(chunks: list[Chunk]) -> Chunk:
    def together(parts, dtype):
        return np.concatenate([np.zeros(0, dtype), *parts])

    filled = [chunk.x for chunk in chunks if len(chunk.index)]
    x = jax.tree.map(lambda *leaves: np.concatenate(leaves), *filled) if filled else None
    return Chunk(
        together([chunk.index for chunk in chunks], int),
        x,
        together([chunk.failed for chunk in chunks], int),
        together([chunk.errors for chunk in chunks], str),
    )


def read_tree(path: Path, name: str) -> Any:
    """What `packed` made of a tree, from a file; None where there is none."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return _unpacked(file, name)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"run: {path} cannot be read ({error}); name another folder, or delete this one"
        ) from error


def packed(tree: Any, name: str) -> dict[str, np.ndarray]:
    """A tree of dicts, lists, tuples and arrays as named arrays; its form as text."""
    leaves, structure = jax.tree.flatten(tree)
    form = jax.tree.unflatten(structure, range(len(leaves)))
    arrays = {f"{name}_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    return arrays | {f"{name}_form": np.array(json.dumps(_tagged(form)))}


def _unpacked(file: Any, name: str) -> Any:
    def made(form):
        if form is None:
            return None
        if isinstance(form, int):
            return file[f"{name}_{form}"]
        if "dict" in form:
            return {key: made(part) for key, part in form["dict"].items()}
        kind = tuple if "tuple" in form else list
        return kind(made(part) for part in form[kind.__name__])

    return made(json.loads(str(file[f"{name}_form"])))


def _tagged(form: Any) -> Any:
    if form is None or isinstance(form, int):
        return form
    if isinstance(form, dict) and all(isinstance(key, str) for key in form):
        return {"dict": {key: _tagged(part) for key, part in form.items()}}
    if type(form) in (tuple, list):
        return {type(form).__name__: [_tagged(part) for part in form]}
    raise ValueError(
        f"simulator: returns a {type(form).__name__}, which cannot be kept on disk; return an "
        "array, or a dict, with names for keys, or tuple of arrays"
    )


def write_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
