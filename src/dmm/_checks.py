"""Checks of what users pass: each error names the argument, what is wrong and what to do."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array


def at_least(low: int, **values: Any) -> None:
    """Whole numbers that must not be less than `low`."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            raise ValueError(f"{name}: must be a whole number, got {value!r}")
        if value < low:
            raise ValueError(f"{name}: must be at least {low}, got {value}")


def whole_numbers(**options: str) -> list[int]:
    """The numbers of one option of the command line that lists them, as `--seeds 0,1,2`."""
    ((name, text),) = options.items()
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{name}: must be whole numbers separated by commas, as 0,1,2, got {text!r}"
        ) from None


def positive(**values: Any) -> None:
    """Numbers that must be above 0."""
    for name, value in values.items():
        if not value > 0:
            raise ValueError(f"{name}: must be positive, got {value}")


def share(**values: Any) -> None:
    """Numbers in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name}: must lie in [0, 1), got {value}")


def instance(kind: type, example: str, **values: Any) -> None:
    """Objects of a class of ours, or None; passing the class itself is the usual slip."""
    for name, value in values.items():
        if value is None or isinstance(value, kind):
            continue
        if isinstance(value, type):
            raise ValueError(f"{name}: {value.__name__} is a class; call it, as in {example}")
        found = type(value).__name__
        raise ValueError(f"{name}: expected a dmm.{kind.__name__}, as {example}, got {found}")


def numbers(data: Any, name: str) -> np.ndarray | Array:
    """`data` as a host array of real numbers; traced arrays, which have no values yet, as is."""
    if isinstance(data, jax.core.Tracer):
        array = data
    else:
        try:
            array = np.asarray(data)
        except ValueError:
            raise ValueError(f"{name}: rows differ in shape; stack them into one array") from None
    kinds = (jnp.floating, jnp.integer, jnp.bool_)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in kinds):
        raise ValueError(
            f"{name}: expected real numbers, got an array of {array.dtype}; convert it"
        )
    return array


def finite(array: np.ndarray | Array, name: str) -> None:
    """No NaN, no infinity, and nothing beyond the precision that is computed in."""
    if isinstance(array, jax.core.Tracer) or not jnp.issubdtype(array.dtype, jnp.inexact):
        return  # whole numbers are, and looking at many takes long
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise ValueError(
            f"{name}: {len({int(i) for i in bad[:, 0]})} of {len(array)} points hold NaN or "
            f"infinity, the first at index {tuple(map(int, bad[0]))}; drop or repair them"
        )
    limit = float(jnp.finfo(jnp.result_type(float)).max)
    if array.size and np.max(np.abs(array)) > limit:
        raise ValueError(
            f"{name}: holds numbers beyond {limit:.2g}, infinity in the precision in use; "
            "rescale them"
        )
