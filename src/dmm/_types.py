"""One vocabulary of types. A point, and so its score, is a pytree of arrays."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float, PyTree

Key = Array  # a JAX random key
Point = PyTree[Any]  # where a process is: an array, or a tuple for products
Score = PyTree[Any]  # ∇ log β for diffusions, log β(y)/β(x) for jumps
Given = PyTree[Any]  # an observation ξ, or None
Time = Float[Array, ""] | float
Scalar = Float[Array, ""]
Function = Callable[[Point], Scalar]
ScoreFn = Callable[[Point], Score]
