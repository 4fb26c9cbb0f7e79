"""A function over many points, a batch at a time, on all local devices."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ._devices import free_devices, home, over
from ._progress import track


def batched(f: Callable, shared: Any, args: Any, batch_size: int, label: str) -> Any:
    """f(shared, *rows) over stacked arguments, a batch at a time, all batches of one size.

    The rows of a batch are shared among the local devices.
    """
    n = len(jax.tree.leaves(args)[0])
    devices = free_devices(shared, args)
    size = -(-min(n, batch_size) // len(devices)) * len(devices)
    if len(devices) > 1:
        shared = over(devices, None, shared)
    starts = list(range(0, n, size))

    def part(start):
        # The last batch is filled up with the first rows, so that it compiles to the same code.
        rows = jnp.arange(start, start + size) % n
        taken = jax.tree.map(lambda leaf: leaf[rows], args)
        return f(shared, *(over(devices, 0, taken) if len(devices) > 1 else taken))

    parts = [part(start) for start in track(starts, label)]
    values = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[:n], *parts)
    values = home(values) if len(devices) > 1 else values
    _warn_of_non_finite(values, label)
    return values


def _warn_of_non_finite(values: Any, label: str) -> None:
    leaves = [leaf for leaf in jax.tree.leaves(values) if not isinstance(leaf, jax.core.Tracer)]
    bad = sum(int(jnp.sum(~jnp.isfinite(leaf))) for leaf in leaves)
    if bad:
        warnings.warn(
            f"{label}: {bad} of {sum(leaf.size for leaf in leaves)} numbers are not finite; the "
            "score is wild far from the data it was learned from: try more `steps`",
            stacklevel=4,
        )
