"""What a computation costs: operations by its jaxpr, memory by the device's word."""

import math
from collections.abc import Callable
from typing import Any

import jax


def products(f: Callable, *args: Any) -> float:
    """The floating-point operations of the matrix products and convolutions of f(*args).

    Nothing is computed: arguments may be `jax.ShapeDtypeStruct`. Of branches, the dearest counts;
    the body of an open-ended loop counts once.
    """
    return _products(jax.make_jaxpr(f)(*args).jaxpr)


def _products(jaxpr: Any) -> float:
    return sum(_of(equation) for equation in jaxpr.eqns)


def _of(equation: Any) -> float:
    name, size = equation.primitive.name, math.prod(equation.outvars[0].aval.shape)
    if name == "dot_general":
        (axes, _), _ = equation.params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2.0 * size * math.prod(left[axis] for axis in axes)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
        return 2.0 * size * math.prod(kernel) / outputs
    inner = [_products(part) for part in _jaxprs(equation.params)]
    if name == "cond":
        return max(inner)
    return sum(inner) * (equation.params["length"] if name == "scan" else 1)


def _jaxprs(params: dict[str, Any]) -> list[Any]:
    leaves = jax.tree.leaves(params, is_leaf=lambda node: hasattr(node, "eqns"))
    return [getattr(leaf, "jaxpr", leaf) for leaf in leaves if hasattr(leaf, "eqns")]


def peak_memory() -> float | None:
    """The most bytes that the first device has held so far; None where it does not tell."""
    stats = jax.local_devices()[0].memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None
