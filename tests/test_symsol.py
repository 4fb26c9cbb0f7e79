"""Pictures of solids, their symmetries, and how samples of poses are judged."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from skimage.io import imsave

from dmm.datasets import SOLIDS, DataError, Pose, draw_pose, render_solid, symmetries, symsol
from dmm.diagnostics import coverage, nearest_pose
from dmm.experiments.symsol import HeldOut, chosen, likelihoods

each_solid = pytest.mark.parametrize("name", SOLIDS)
CONTINUOUS = ("cone", "cylinder")


# --- Groups --------------------------------------------------------------------------------------


@each_solid
def test_symmetries_are_a_group(name):
    """Rotations, all different, the first the identity, whose products are among them."""
    group = symmetries(name)
    assert len(group) == dict(zip(SOLIDS, (12, 24, 60, 360, 720), strict=True))[name]
    np.testing.assert_array_equal(group[0], np.eye(3))
    np.testing.assert_allclose(group @ np.swapaxes(group, 1, 2) - np.eye(3), 0.0, atol=1e-12)
    assert np.all(np.linalg.det(group) > 0)
    flat = group.reshape(-1, 9)
    products = (group[:: len(group) // 12][:, None] @ group).reshape(-1, 9)
    traces = products @ flat.T  # 3 for equal rotations, at most 1 + 2 cos 1° for others
    np.testing.assert_allclose(traces.max(1), 3.0, atol=1e-9)
    assert np.all(np.sum(traces > 2.9999, 1) == 1)


# --- Pictures ------------------------------------------------------------------------------------


@functools.cache
def renderer(size):
    """Pictures of a solid and light in many rotations, compiled once."""
    render = functools.partial(render_solid, size=size)
    return jax.jit(jax.vmap(render, (Pose(None, 0, None),)))


def pictures(pose, rotations, size=24):
    """Of twenty rotations at a time."""
    turned = np.asarray(rotations, np.float32).reshape(-1, 20, 3, 3)
    found = [renderer(size)(pose._replace(rotation=jnp.asarray(r))) for r in turned]
    return np.concatenate(found)


@each_solid
def test_pictures_show_the_pose_up_to_the_symmetries_and_no_further(name):
    """Of 60 equivalent poses the pictures agree but for rays that just touch an edge; of 20 that
    are 3° off they differ, as they do of 40 anywhere else."""
    pose = jax.jit(draw_pose)(jax.random.key(5))._replace(solid=jnp.asarray(SOLIDS.index(name)))
    turn, group = np.asarray(pose.rotation), symmetries(name)
    equivalent = turn @ group[np.arange(60) * max(1, len(group) // 60) % len(group)]
    same = pictures(pose, equivalent)
    assert np.abs(same - same[0]).mean((1, 2)).max() < 2e-5

    random = np.random.default_rng(0)
    axes = random.normal(size=(20, 3)) * [1, 1, 0 if name in CONTINUOUS else 1]
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    near = equivalent[:20] @ Rotation.from_rotvec(np.radians(3) * axes).as_matrix()
    anywhere = Rotation.random(60, random).as_matrix()
    angles, _ = jax.vmap(nearest_pose, (0, None))(jnp.asarray(anywhere), jnp.asarray(turn @ group))
    far = anywhere[np.argsort(angles)[20:]]
    for others in (near, far):
        assert np.abs(pictures(pose, others) - same[0]).mean((1, 2)).min() > 2e-3


def seen(name, rotation, light, size, samples=1):
    pose = Pose(SOLIDS.index(name), jnp.asarray(rotation, float), jnp.asarray(light, float))
    return np.asarray(jax.jit(functools.partial(render_solid, size=size, samples=samples))(pose))


def test_a_cube_from_the_front():
    """Half as wide as 3^{-1/2}/(4 − 3^{-1/2}) at distance 1, of the picture's 0.27: 10 pixels of
    16. The light comes from behind the camera."""
    expected = np.zeros((32, 32))
    expected[6:26, 6:26] = 1.0
    np.testing.assert_allclose(seen("cube", np.eye(3), (0, 0, 1), 32), expected, atol=1e-6)


def test_a_cube_aslant():
    """Leaning towards the camera, it shows its top above its front; turned, a side left of it.
    a + (1 − a)(1 + n·l)/2 is 0.2 + 0.4 (1 + n·l)."""
    lean = Rotation.from_euler("x", 40, degrees=True).as_matrix()
    column = seen("cube", lean, (0, 1, 0), 32)[:, 16]
    shades = 0.2 + 0.4 * (1 + np.cos(np.radians([40, 130])))
    lit = column[column > 0]
    change = np.argmin(np.diff(lit)) + 1  # the first row is on top
    np.testing.assert_allclose(lit[:change], shades[0], atol=1e-6)
    np.testing.assert_allclose(lit[change:], shades[1], atol=1e-6)
    turn = Rotation.from_euler("y", 30, degrees=True).as_matrix()
    row = seen("cube", turn, (1, 0, 0), 32)[16]
    shades = 0.2 + 0.4 * (1 + np.cos(np.radians([150, 60])))
    np.testing.assert_allclose(row[row > 0][[0, -1]], shades, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "radius", "shade"),
    [
        ("cylinder", 0.6 / (4 - 0.8) / 0.27, 1.0),
        ("cone", 0.8 / (4 + 0.6) / 0.27, 0.2 + 0.4 * (1 + 0.8 / np.hypot(1.6, 0.8))),
    ],
)
def test_round_solids_end_on(name, radius, shade):
    """Discs of one brightness: that of the cap, and that of the cone's mantle all around."""
    picture = seen(name, np.eye(3), (0, 0, 1), 64, samples=2)
    assert picture.mean() == pytest.approx(shade * np.pi * radius**2 / 4, rel=5e-3)
    np.testing.assert_allclose(picture[30:34, 24:28], shade, atol=1e-4)


def test_poses_are_drawn_uniformly():
    """Entries of uniform rotations have mean 0 and variance 1/3; five standard errors."""
    keys = jax.random.split(jax.random.key(0), 2_000)
    poses = jax.jit(jax.vmap(lambda key: draw_pose(key, (1, 3))))(keys)
    square = jnp.einsum("nij,nkj->nik", poses.rotation, poses.rotation, precision="highest")
    np.testing.assert_allclose(square - jnp.eye(3)[None], 0.0, atol=1e-5)
    assert np.all(np.linalg.det(poses.rotation) > 0)
    assert np.abs(poses.rotation.mean(0)).max() < 5 * (3 * 2_000) ** -0.5
    np.testing.assert_allclose((poses.rotation**2).mean(0), 1 / 3, atol=5 * 0.3 / 2_000**0.5)
    assert set(np.unique(poses.solid)) == {1, 3}
    assert np.all(poses.light[:, 2] >= 0)
    np.testing.assert_allclose(jnp.linalg.norm(poses.light, axis=1), 1.0, atol=1e-5)


# --- The published set ---------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three grey levels of a tetrahedron, in the archive's layout."""
    images = tmp_path / "symsol" / "test" / "images"
    images.mkdir(parents=True)
    for i in range(3):
        level = np.full((20, 20, 3), 51 * (i + 1), np.uint8)
        imsave(images / f"tet_{i:05}.png", level, check_contrast=False)
    turns = Rotation.random(3, np.random.default_rng(0)).as_matrix()
    poses = turns[:, None] @ symmetries("tetrahedron")
    np.savez(images.parent / "rotations.npz", tet=poses)
    monkeypatch.setenv("DMM_DATA", str(tmp_path))
    return images


def test_the_published_set(folder):
    found = symsol("tetrahedron", split="test", size=8, limit=2)
    assert found.images.shape == (2, 8, 8)
    np.testing.assert_allclose(found.images[:, 4, 4], [0.2, 0.4], atol=1e-6)
    stored = np.load(folder.parent / "rotations.npz")["tet"]
    np.testing.assert_allclose(found.rotations, stored[:2], atol=1e-6)
    whole = symsol("tetrahedron", split="test", size=8)
    assert len(whole.images) == len(whole.rotations) == 3


def test_a_published_set_that_is_not_there(folder, monkeypatch):
    with pytest.raises(DataError, match=r"^DMM_DATA: .*train.rotations.npz does not exist; unpack"):
        symsol("tetrahedron")
    with pytest.raises(DataError, match=r"does not hold rotations .* of cube"):
        symsol("cube", split="test")
    (folder / "tet_00001.png").rename(folder / "tet_00007.png")
    with pytest.raises(DataError, match=r"tet_00007.png: its name should end in a number below 3"):
        symsol("tetrahedron", split="test")
    (folder / "tet_00000.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match=r"tet_00000.png: is not an image"):
        symsol("tetrahedron", split="test", limit=1)
    for path in folder.glob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match=r"^DMM_DATA: .* has no images tet_"):
        symsol("tetrahedron", split="test")
    monkeypatch.delenv("DMM_DATA")
    with pytest.raises(DataError, match=r"^symsol: .*set DMM_DATA"):
        symsol("tetrahedron")


def test_bad_input():
    for call, message in (
        (lambda: symsol("sphere"), "name: expected one of tetra"),
        (lambda: symsol("cube", split="validation"), "split: choose"),
        (lambda: symmetries("sphere"), "name: expected one of tetra"),
        (lambda: chosen("cube,sphere"), "solids: 'sphere' is not one of"),
        (lambda: coverage(np.eye(3), symmetries("cube")), "samples: expected rotations"),
        (lambda: coverage(np.eye(3)[None], symmetries("cube"), cells=5), "cells: must divide"),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            call()


# --- How samples are judged ----------------------------------------------------------------------

SIGMA = 2.0  # degrees
POSE = Rotation.random(random_state=np.random.default_rng(1)).as_matrix()


def samples_at(name, n=2_000, seed=0, chances=None):
    """Equivalent poses of one, as likely as `chances`, moved by N(0, σ²) in every coordinate."""
    random, group = np.random.default_rng(seed), symmetries(name)
    which = random.choice(len(group), n, p=chances)
    moved = Rotation.from_rotvec(np.radians(SIGMA) * random.normal(size=(n, 3))).as_matrix()
    return POSE @ group[which] @ moved, POSE @ group


def cells(name):
    return {"cone": 36, "cylinder": 72}.get(name)


@each_solid
def test_samples_of_the_truth_pass(name):
    """The angle is σ√(8/π) on average; across a continuous symmetry σ√(π/2), and up to 0.1° more
    to poses a degree apart. p-values of six sets: below 0.001 by chance once in 170."""
    found = [coverage(*samples_at(name, seed=i), cells=cells(name)) for i in range(6)]
    spread = np.mean([f.spread for f in found])
    expected = SIGMA * np.sqrt(np.pi / 2 if name in CONTINUOUS else 8 / np.pi)
    error = 5 * 0.7 * SIGMA / 12_000**0.5
    assert -error < spread - expected < error + (0.1 if name in CONTINUOUS else 0.0)
    assert all(f.found == 1.0 and f.close > 0.999 for f in found)
    assert min(f.p_value for f in found) > 1e-3
    # The sum of χ²/2n over cells − 1 degrees of freedom, its mean subtracted.
    error = 5 * (2 * (len(found[0].counts) - 1)) ** 0.5 / 4_000
    assert np.abs([f.deficit for f in found]).max() < error


@each_solid
def test_a_lost_mode_is_noticed(name):
    """One mode, or a twelfth of a turn, without samples; the rest as it should be."""
    group = symmetries(name)
    chances = np.ones(len(group))
    chances[: len(group) // 12 if name in CONTINUOUS else 1] = 0.0
    found = coverage(*samples_at(name, 6_000, chances=chances / chances.sum()), cells=cells(name))
    assert found.found < 1.0
    assert found.p_value < 1e-4
    assert found.close > 0.999


def test_uneven_turns_are_noticed():
    """Turns φ with density ∝ 1 + 0.4 cos φ: all are found, but not evenly. The divergence of that
    from uniform is 0.0408, by quadrature; its estimate errs by 0.29/√n."""
    phi = np.radians(np.arange(360))
    chances = (1 + 0.4 * np.cos(phi)) / 360
    exact = np.sum(chances * np.log(360 * chances))
    found = coverage(*samples_at("cone", chances=chances), cells=36)
    assert found.found == 1.0
    assert found.p_value < 1e-4
    assert found.deficit == pytest.approx(exact, abs=5 * 0.29 / 2_000**0.5)


def test_samples_far_from_every_mode_find_none():
    """Turned by 30°, they lie nearest to the modes they should, and close to none."""
    samples, poses = samples_at("tetrahedron")
    away = samples @ Rotation.from_euler("x", 30, degrees=True).as_matrix()
    found = coverage(away, poses)
    assert found.found == found.close == 0.0
    assert found.counts.min() > 0
    assert found.spread == pytest.approx(30, abs=1.0)


def test_small_angles_are_accurate():
    """Of 10⁻³ degrees, in single precision."""
    turn = Rotation.from_euler("y", 1e-3, degrees=True).as_matrix()
    angle, index = nearest_pose(jnp.asarray(turn), jnp.asarray(symmetries("cube")))
    assert int(index) == 0
    assert float(angle) == pytest.approx(np.radians(1e-3), rel=1e-2)


def test_likelihoods_are_those_of_the_literature():
    """The uniform law has −log π² = −2.29; poses are picked evenly, and paired with their image."""

    class Flat:
        def log_likelihood(self, x, *, given, steps):
            np.testing.assert_array_equal(given[:, 0, 0], np.repeat([0.0, 1.0], 30))
            np.testing.assert_array_equal(x[:30], poses[0, ::2])
            return jnp.repeat(jnp.asarray([0.0, 1.0]), 30)

    poses = np.stack([symmetries("icosahedron"), symmetries("icosahedron")[::-1]])
    held_out = HeldOut(np.stack([np.zeros((2, 2)), np.ones((2, 2))]), poses)
    logs = likelihoods(Flat(), held_out, 40, 10)
    np.testing.assert_allclose(logs, np.asarray([0.0, 1.0]) - np.log(np.pi**2), rtol=1e-6)
