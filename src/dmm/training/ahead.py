"""A step in two parts: what does not look at the weights, and what does.

Batches, times and noise depend on the step's key alone. Made for many steps at once they are a few
large operations, where a step by step they are many small ones, each of which a GPU starts, and a
CPU runs, for longer than it computes.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, PyTree

FIXED, AHEAD, LATER = range(3)  # depends on nothing; on the other arguments; on the weights


def split(
    function: Callable[..., PyTree], params: PyTree, *others: PyTree
) -> tuple[Callable[..., list[Array]], Callable[[PyTree, list[Array]], PyTree]]:
    """(ahead, rest) such that function(params, *others) = rest(params, ahead(*others)).

    `ahead` computes all that does not depend on `params`. Found in the traced function, so whoever
    writes an objective, a simulator or a parameterisation need not know.
    """
    closed, shape = jax.make_jaxpr(function, return_shape=True)(params, *others)
    jaxpr: Any = closed.jaxpr
    count = len(jax.tree.leaves(params))
    kinds = dict.fromkeys(jaxpr.constvars, FIXED)
    kinds |= dict.fromkeys(jaxpr.invars[:count], LATER)
    kinds |= dict.fromkeys(jaxpr.invars[count:], AHEAD)
    marked = []
    for equation in jaxpr.eqns:
        found = [kinds[v] for v in equation.invars if not isinstance(v, Literal)]
        kind = LATER if equation.effects else max(found, default=FIXED)
        kinds |= dict.fromkeys(equation.outvars, kind)
        marked.append((equation, kind))

    outputs = [v for v in jaxpr.outvars if not isinstance(v, Literal)]
    after = [e for e, kind in marked if kind != AHEAD or _widens(e)]
    equations, needed = _needed(after, outputs)
    made = {v for equation in equations for v in equation.outvars}
    kept = [v for v in kinds if v in needed and kinds[v] == AHEAD and v not in made]
    before, _ = _needed([e for e, kind in marked if kind != LATER], kept)

    first = _function(closed, jaxpr.invars[count:], kept, before)
    second = _function(closed, [*jaxpr.invars[:count], *kept], jaxpr.outvars, equations)
    structure = jax.tree.structure(shape)

    def ahead(*others):
        return first(*jax.tree.leaves(others))

    def rest(params, ready):
        return jax.tree.unflatten(structure, second(*jax.tree.leaves(params), *ready))

    return ahead, rest


def size(arrays: list[Any]) -> int:
    """The bytes that arrays, or their shapes, take."""
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays)


def _needed(equations: list, outputs: list) -> tuple[list, set]:
    """The equations that lead to the outputs or have effects, and all variables they use."""
    chosen, needed = [], set(outputs)
    for equation in reversed(equations):
        if equation.effects or any(v in needed for v in equation.outvars):
            chosen.append(equation)
            needed |= {v for v in equation.invars if not isinstance(v, Literal)}
    return chosen[::-1], needed


def _widens(equation) -> bool:
    """Whether it only repeats entries: cheaper to do again than to keep what comes out."""
    if equation.primitive.name != "broadcast_in_dim":
        return False
    return equation.outvars[0].aval.size > equation.invars[0].aval.size


def _function(closed: ClosedJaxpr, inputs, outputs, equations) -> Callable[..., list[Array]]:
    effects = {effect for equation in equations for effect in equation.effects}
    whole = closed.jaxpr
    jaxpr = Jaxpr(whole.constvars, inputs, outputs, equations, effects, whole.debug_info)
    return jaxpr_as_fun(ClosedJaxpr(jaxpr, closed.consts))
