"""Pytrees as vectors: what lets one network serve a point of any space."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


def like(tree: PyTree) -> PyTree:
    """Shapes and types of a pytree of arrays: static, hashable, and saved with a network."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), tree
    )


def size(tree: PyTree) -> int:
    """How many numbers a pytree holds."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def flatten(tree: PyTree) -> Float[Array, " n"]:
    """All numbers of a pytree in one vector."""
    leaves = [jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(leaves) if leaves else jnp.zeros(0)


def unflatten(structure: PyTree, vector: Float[Array, " n"]) -> PyTree:
    """The inverse of `flatten`, for shapes as from `like`."""
    leaves, treedef = jax.tree.flatten(structure)
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [
        vector[end - n : end].reshape(leaf.shape)
        for leaf, n, end in zip(leaves, sizes, ends, strict=True)
    ]
    return jax.tree.unflatten(treedef, parts)
