"""The precision of matrix products in inference."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax


def in_full_precision(function: Callable) -> Callable:
    """The function with products in full single precision, unless the user has chosen another.

    Accelerators round the factors of products to three digits. A posterior a hundredth as wide as
    its prior is blurred by that.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        chosen = jax.config.jax_default_matmul_precision
        full = jax.default_matmul_precision("float32")
        with contextlib.nullcontext() if chosen else full:
            return function(*args, **kwargs)

    return called
