"""Representations of SO(3), and inputs made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import dmm
from dmm.datasets import symmetries
from dmm.spaces.representations import representations
from table import assert_mean

DEGREE = 7


@pytest.fixture(scope="module")
def matrices():
    """Two rotations and their product, and the representations of each."""
    a, b = Rotation.random(2, np.random.default_rng(0)).as_matrix()
    stacked = jnp.asarray(np.stack([a, b, a @ b]), jnp.float32)
    return stacked, jax.jit(jax.vmap(lambda x: representations(x, DEGREE)))(stacked)


def test_representations_are_homomorphisms(matrices):
    """D(a)D(b) = D(ab), of orthogonal matrices with sizes 3, 5, …"""
    for order, (a, b, product) in enumerate(matrices[1], 1):
        assert a.shape == (2 * order + 1,) * 2
        np.testing.assert_allclose(np.asarray(a) @ b, product, atol=2e-6)
        np.testing.assert_allclose(np.asarray(a) @ a.T, np.eye(len(a)), atol=2e-6)


def test_representations_are_irreducible(matrices):
    """Their traces are the characters sin((l + ½)α)/sin ½α."""
    angles = Rotation.from_matrix(np.asarray(matrices[0])).magnitude()
    for order, each in enumerate(matrices[1], 1):
        characters = np.sin((order + 0.5) * angles) / np.sin(0.5 * angles)
        np.testing.assert_allclose(jnp.trace(each, axis1=1, axis2=2), characters, atol=1e-5)


@pytest.mark.parametrize(("name", "first"), [("tetrahedron", 3), ("cube", 4), ("icosahedron", 6)])
def test_solids_are_first_seen_at_their_degree(name, first):
    """How many functions of each degree a group leaves as they are: the mean of the characters."""
    group = jnp.asarray(symmetries(name), jnp.float32)
    means = [jnp.mean(jnp.trace(m, axis1=1, axis2=2)) for m in jax.jit(jax.vmap(
        lambda g: representations(g, 6)))(group)]  # fmt: skip
    np.testing.assert_allclose(means[: first - 1], 0.0, atol=1e-5)
    assert means[first - 1] == pytest.approx(1.0, abs=1e-5)


def test_inputs_are_damped_as_noise_damps_them():
    """The mean of D^l(x_τ) is e^{−½l(l + 1)τ} D^l(x_0), and the inputs are √(2l + 1) times that;
    five standard errors."""
    process, tau, draws = dmm.RotationalBrownian(dmm.SO3()), 0.1, 20_000
    head = dmm.WithHarmonics(dmm.Relative(), 4)
    x0 = jnp.asarray(Rotation.random(random_state=np.random.default_rng(1)).as_matrix())
    inputs = jax.jit(lambda x: head.inputs(process, x, tau))

    def bare(key):
        *_, last = representations(process.noise(key, x0, tau).x, 4)
        return 3.0 * last.ravel()

    noised = jax.jit(jax.vmap(bare))(jax.random.split(jax.random.key(0), draws))
    assert inputs(x0).shape == (9 + 25 + 49 + 81,)
    np.testing.assert_allclose(inputs(x0)[:9], dmm.SO3().features(x0), rtol=1e-6)
    assert_mean(noised, np.asarray(inputs(x0))[-81:])


def test_bad_input():
    with pytest.raises(ValueError, match=r"^degree: must be at least 2"):
        dmm.WithHarmonics(dmm.Relative(), 1)
