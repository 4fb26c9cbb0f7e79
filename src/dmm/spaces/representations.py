"""The irreducible representations of SO(3): on rotations, what sines and cosines are on circles."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .rotations import product


def representations(x: Array, degree: int) -> list[Array]:
    """D¹(x) = x, D²(x), …: orthogonal matrices of sizes 2l + 1, polynomials of degree l in x.

    The entries, over all l, span the functions on SO(3); those of D^l are eigenfunctions of ½Δ at
    −l(l + 1)/2, and have mean square 1/(2l + 1).
    """
    found = [x]
    for top in _tops(degree):
        top = jnp.asarray(top, x.dtype)
        # At full precision: errors of one degree are passed on to the next.
        half = jnp.einsum("aij,ik->akj", top, found[-1], precision="highest")
        half = product(half, x)
        found.append(jnp.einsum("akm,bkm->ab", half, top, precision="highest"))
    return found


@functools.cache
def _tops(degree: int) -> list[np.ndarray]:
    """(2l + 1, 2l − 1, 3), l = 2, …: orthonormal bases of the part of degree l of V_{l−1} ⊗ V_1.

    It is where the Casimir operator −Σ J_i² is l(l + 1), for J_i the generators on the product.
    """
    first = -np.asarray([[[_sign(i, j, k) for k in range(3)] for j in range(3)] for i in range(3)])
    generators, found = first, []
    for degree_here in range(2, degree + 1):
        n = 2 * degree_here - 1
        both = np.stack([
            np.kron(g, np.eye(3)) + np.kron(np.eye(n), f)
            for g, f in zip(generators, first, strict=True)
        ])  # fmt: skip
        values, vectors = np.linalg.eigh(-np.sum(both @ both, 0))
        top = vectors[:, values > degree_here * (degree_here + 1) - 0.5].T
        found.append(top.reshape(-1, n, 3))
        generators = top @ both @ top.T
    return found


def _sign(i: int, j: int, k: int) -> int:
    """The Levi-Civita symbol."""
    return (i - j) * (j - k) * (k - i) // 2
