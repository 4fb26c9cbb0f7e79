"""True parameters and draws of their posteriors, as checked arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from .._checks import finite, numbers
from .._types import Key

_LEAST_SIMULATIONS = 20
_LEAST_DRAWS = 10


def truths_and_draws(
    truths: Any, samples: Any
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n m d"]]:
    """Both in float64; a `ValueError` names what is wrong with one of them."""
    truths = matrix(truths, "truths")
    samples = np.asarray(numbers(samples, "samples"), np.float64)
    n, d = truths.shape
    if samples.ndim != 3 or samples.shape[::2] != (n, d):
        raise ValueError(
            f"samples: expected an array ({n}, draws, {d}), draws for each of the truths, got "
            f"{samples.shape}"
        )
    enough(n, samples.shape[1])
    finite(samples, "samples")
    return truths, samples


def matrix(values: Any, name: str, width: int | None = None) -> Float[np.ndarray, "n d"]:
    """A finite matrix, in float64."""
    array = np.asarray(numbers(values, name), np.float64)
    if array.ndim != 2 or array.size == 0 or (width is not None and array.shape[1] != width):
        expected = "parameters" if width is None else width
        raise ValueError(f"{name}: expected an array (n, {expected}), got shape {array.shape}")
    finite(array, name)
    return array


def enough(simulations: int, draws: int) -> None:
    """So many that a test can fail at all."""
    if simulations < _LEAST_SIMULATIONS:
        raise ValueError(
            f"truths: {simulations} simulations are too few to judge by; make at least "
            f"{_LEAST_SIMULATIONS}, better hundreds"
        )
    if draws < _LEAST_DRAWS:
        raise ValueError(
            f"samples: {draws} draws a simulation are too few; make at least {_LEAST_DRAWS}, "
            "better a hundred"
        )


def labels(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """A name a coordinate: the ones given, or theta[0], theta[1], ..."""
    if names is None:
        return ("theta",) if count == 1 else tuple(f"theta[{i}]" for i in range(count))
    if isinstance(names, str) or len(names) != count:
        raise ValueError(f"names: expected {count} strings, one a parameter, got {names!r}")
    return tuple(names)


def ranks_among(
    key: Key, values: Float[np.ndarray, "n *s"], others: Float[np.ndarray, "n m *s"]
) -> Int[np.ndarray, "n *s"]:
    """How many of the others are less than a value; among equal ones its place is drawn."""
    less = np.sum(others < values[:, None], axis=1)
    equal = np.sum(others == values[:, None], axis=1)
    u = np.asarray(jax.random.uniform(key, values.shape), np.float64)
    return less + np.floor(u * (equal + 1)).astype(int)
