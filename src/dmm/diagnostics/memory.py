"""How large the arrays of a computation are."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax


def largest_array(f: Callable, *args: Any) -> tuple[int, ...]:
    """The shape of the largest array that f(*args) makes on its way, loops and branches included.

    Nothing is computed: arguments may be `jax.ShapeDtypeStruct`. What f is given does not count,
    but what it makes of it does, even where the compiler would fuse it away.
    """
    return max(_made(jax.make_jaxpr(f)(*args).jaxpr), key=math.prod, default=())


def _made(jaxpr: Any) -> Iterator[tuple[int, ...]]:
    for equation in jaxpr.eqns:
        yield from (variable.aval.shape for variable in equation.outvars)
        for inner in _jaxprs(equation.params):
            yield from _made(inner)


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for leaf in jax.tree.leaves(params, is_leaf=lambda node: hasattr(node, "eqns")):
        if hasattr(leaf, "eqns"):
            yield getattr(leaf, "jaxpr", leaf)
