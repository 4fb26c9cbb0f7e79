"""Coordinates some at a time: what has a row a coordinate need never be whole.

Scores, targets and rates of a chain are a row of S numbers for each of D coordinates: 50 million
for 256 levels at the 196,608 of a colour image of 256 × 256. Given the point and what the network
says of it, a row depends on its own coordinate alone, and all that is wanted of it is a number.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.tree_util import Partial
from jaxtyping import Array, PyTree

from .._types import Key

LARGE = 2**21  # numbers in all rows of a point, above which they are formed a chunk at a time
CHUNK = 2**20  # numbers in the rows of a chunk


class Rows(eqx.Module):
    """Rows yet to be formed: those of some coordinates are `form` of their pieces.

    A piece is an array whose first axes are those of the point.
    """

    form: Callable[..., Array]
    pieces: tuple
    chunk: int = eqx.field(static=True)  # coordinates at a time


class Compact(eqx.Module):
    """A target small enough to keep, of which a process can make rows."""

    @abc.abstractmethod
    def rows(self, process: Any, x: Array) -> Rows:
        """The target at x."""


@functools.singledispatch
def at_once(process: Any, x: Array) -> int | None:
    """How many coordinates to treat at a time; None for all."""
    return None


def each(
    f: Callable[..., Array], x: Array, *rows: Any, chunk: int | None = None, key: Key | None = None
) -> Array:
    """f(x, *rows), a number a coordinate, of an f that treats each coordinate alone.

    If there are `Rows` or a chunk is given, then so many coordinates at a time, once more in the
    backward pass: no more than their rows is ever held. A key is the last argument of f, and is
    split a coordinate where these are taken apart.
    """
    chunks = [r.chunk for r in rows if isinstance(r, Rows)] + ([chunk] if chunk else [])
    if not chunks:
        return f(x, *rows) if key is None else f(x, *rows, key)
    forms = [r.form if isinstance(r, Rows) else _same for r in rows]
    pieces = [r.pieces if isinstance(r, Rows) else (r,) for r in rows]
    if key is not None:
        forms, pieces = [*forms, _same], [*pieces, (jax.random.split(key, x.shape),)]

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def one(coordinate):
        x, *pieces = coordinate
        return f(x, *(form(*parts) for form, parts in zip(forms, pieces, strict=True)))

    flat = jax.tree.map(lambda piece: piece.reshape(-1, *piece.shape[x.ndim :]), [x, *pieces])
    return jax.lax.map(one, flat, batch_size=min(chunks)).reshape(x.shape)


def rowwise(f: Callable[..., Array], *scores: PyTree) -> PyTree:
    """f of arrays or `Rows`, leaf by leaf: of `Rows`, as such."""
    return jax.tree.map(functools.partial(_rowwise, f), *scores, is_leaf=_is_rows)


def whole(rows: PyTree) -> PyTree:
    """All rows, for points that are small after all."""
    return jax.tree.map(
        lambda r: r.form(*r.pieces) if isinstance(r, Rows) else r, rows, is_leaf=_is_rows
    )


def row_of(rows: Array | Rows, x: Array, index: Array) -> Array:
    """The row of coordinate number `index` of x."""

    def of(piece):
        return piece.reshape(-1, *piece.shape[x.ndim :])[index]

    return rows.form(*map(of, rows.pieces)) if isinstance(rows, Rows) else of(rows)


def _rowwise(f: Callable[..., Array], *rows: Any) -> Any:
    chunks = [r.chunk for r in rows if isinstance(r, Rows)]
    if not chunks:
        return f(*rows)
    forms = tuple(r.form if isinstance(r, Rows) else Partial(_same) for r in rows)
    pieces = tuple(r.pieces if isinstance(r, Rows) else (r,) for r in rows)
    f = f if isinstance(f, Partial) else Partial(f)
    return Rows(Partial(_composed, f, forms), pieces, min(chunks))


def _composed(f: Callable, forms: tuple, *pieces: tuple) -> Array:
    return f(*(form(*parts) for form, parts in zip(forms, pieces, strict=True)))


def _same(piece: Array) -> Array:
    return piece


def _is_rows(node: Any) -> bool:
    return isinstance(node, Rows)
