"""Maps of rotations, tangent histograms and pairs of angles hold what they were given."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.colors import to_rgba
from scipy.spatial.transform import Rotation

from dmm.plots import rotation_map, tangent_histograms, torus_pairs
from dmm.plots.maps import mollweide
from dmm.plots.style import CYCLIC, ORDERED


def near(rotation, n=300, spread=0.05, seed=0):
    """Rotations about one of them, or about each in turn."""
    noise = spread * np.random.default_rng(seed).normal(size=(n, 3))
    chosen = rotation if rotation.single else rotation[np.arange(n) % len(rotation)]
    return (chosen * Rotation.from_rotvec(noise)).as_matrix()


def drawn(ax, label):
    """What has a label among the scattered points of a panel."""
    found = [points for points in ax.collections if points.get_label() == label]
    assert len(found) == 1
    return found[0]


def globe(ax, label):
    """Longitude and latitude, in degrees, of the points drawn, by Mollweide's inverse."""
    x, y = drawn(ax, label).get_offsets().T
    theta = np.arcsin(y / np.sqrt(2))
    longitude = np.pi * x / (2 * np.sqrt(2) * np.cos(theta))
    latitude = np.arcsin(np.clip((2 * theta + np.sin(2 * theta)) / np.pi, -1, 1))
    return np.degrees(np.stack([longitude, latitude], 1))


ICOSAHEDRON = Rotation.from_rotvec([0.3, -0.2, 0.5]) * Rotation.create_group("I")
CONE = Rotation.from_rotvec(np.linspace(0, 2 * np.pi, 120)[:, None] * [0.0, 0.0, 1.0])
IMAGE = np.arange(64.0 * 48).reshape(64, 48)
ANGLES = np.random.default_rng(0).uniform(-np.pi, np.pi, (600, 7))

EVERY = {
    "axes": lambda: rotation_map({"a": near(ICOSAHEDRON), "b": ICOSAHEDRON}, truths=ICOSAHEDRON),
    "axes, one identity": lambda: rotation_map({"a": np.eye(3)[None]}, truths=np.eye(3)[None]),
    "directions": lambda: rotation_map(
        {"a": near(CONE), "b": near(ICOSAHEDRON), "c": near(CONE), "d": CONE},
        truths={"a": CONE, "b": ICOSAHEDRON},
        body=(1.0, 0.3, 0.2),
    ),
    "images": lambda: rotation_map({"a": CONE, "b": CONE}, images={"b": IMAGE}),
    "images in colour": lambda: rotation_map({"a": CONE}, images={"a": np.zeros((8, 8, 3))}),
    "tangent": lambda: tangent_histograms({"a": near(CONE), "b": near(CONE)}, at=np.eye(3)),
    "torus": lambda: torus_pairs({"a": ANGLES[:, :3], "b": ANGLES[:20, :3]}, truth=np.zeros(3)),
    "torus, one angle": lambda: torus_pairs({"a": ANGLES[:, :1]}, names=["α"]),
}


@pytest.mark.parametrize("name", EVERY)
def test_figures_save(name):
    file = io.BytesIO()
    EVERY[name]().savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")


def test_a_rotation_lies_at_its_axis_with_colour_for_its_angle():
    """Known axes and angles; the stars of each panel are those of its name."""
    east, north = np.radians([10.0, -100.0, 170.0]), np.radians([-60.0, 5.0, 45.0])
    axes = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], 1)
    degrees = np.array([20.0, 90.0, 179.0])
    given = Rotation.from_rotvec(np.radians(degrees)[:, None] * axes)
    figure = rotation_map({"a": given.as_matrix(), "b": given[:1]}, truths={"b": given[1:]})
    a, b = figure.axes[:2]
    assert (a.get_title(), b.get_title()) == ("a", "b")
    expected = np.degrees(np.stack([east, north], 1))
    np.testing.assert_allclose(globe(a, "rotations"), expected, atol=1e-3)
    np.testing.assert_allclose(globe(b, "rotations"), expected[:1], atol=1e-3)
    np.testing.assert_allclose(globe(b, "truths"), expected[1:], atol=1e-3)
    assert [points.get_label() for points in a.collections] == ["rotations"]

    figure.canvas.draw()
    for points, angles in ((drawn(a, "rotations"), degrees), (drawn(b, "truths"), degrees[1:])):
        np.testing.assert_allclose(points.get_array(), angles, atol=1e-3)
        np.testing.assert_allclose(points.get_facecolors()[:, :3], ORDERED(angles / 180)[:, :3])
    assert to_rgba("#2b2f36") == tuple(drawn(b, "truths").get_edgecolors()[0])


def test_a_body_s_direction_and_the_turn_about_it():
    """x = Rz(longitude) Ry(−latitude) Rx(turn): places and colours are those angles."""
    angles = np.array([[10.0, -60.0, 20.0], [-100.0, 5.0, -90.0], [170.0, 45.0, 179.0]])
    given = Rotation.from_euler("ZYX", angles * [1, -1, 1], degrees=True)
    ax = rotation_map({"a": given}, body=(2.0, 0.0, 0.0)).axes[0]
    np.testing.assert_allclose(globe(ax, "rotations"), angles[:, :2], atol=1e-3)
    np.testing.assert_allclose(drawn(ax, "rotations").get_array(), angles[:, 2], atol=1e-3)
    ax.figure.canvas.draw()
    colours = drawn(ax, "rotations").get_facecolors()[:, :3]
    np.testing.assert_allclose(colours, CYCLIC(angles[:, 2] / 360 + 0.5)[:, :3], atol=0.02)

    # Any other direction: where it goes, and by how much turns about it change the colour.
    body = np.array([0.2, -0.5, 0.8]) / np.linalg.norm([0.2, -0.5, 0.8])
    turns = np.array([0.0, 30.0, 150.0])
    turned = given[0] * Rotation.from_rotvec(np.radians(turns)[:, None] * body)
    ax = rotation_map({"a": turned}, body=body).axes[0]
    x, y, z = given[0].apply(body)
    place = np.degrees([np.arctan2(y, x), np.arcsin(z)])
    np.testing.assert_allclose(globe(ax, "rotations"), np.tile(place, (3, 1)), atol=1e-3)
    colours = drawn(ax, "rotations").get_array()
    np.testing.assert_allclose((colours - colours[0]) % 360, turns, atol=1e-3)


def test_turns_at_a_pole_are_told_apart():
    """Where longitude means nothing: a quarter turn is still one, and nothing warns."""
    up = Rotation.from_euler("y", -90, degrees=True)
    pair = Rotation.concatenate([up, up * Rotation.from_euler("x", 90, degrees=True)])
    points = drawn(rotation_map({"a": pair}, body=(1, 0, 0)).axes[0], "rotations")
    np.testing.assert_allclose(points.get_offsets()[:, 1], np.sqrt(2), atol=1e-3)
    first, second = points.get_array()
    assert (second - first) % 360 == pytest.approx(90, abs=1e-3)


def test_half_turns_are_marked_at_both_ends_where_points_are():
    """Of two truths near 180° only the one with points at its other end has a hollow star."""
    near_half = Rotation.from_rotvec(np.radians([[0.0, 178.0, 0.0], [170.0, 0.0, 0.0]]))
    cloud = near(near_half, spread=0.03)
    figure = rotation_map({"a": cloud}, truths=near_half)
    np.testing.assert_allclose(globe(figure.axes[0], "other ends"), [[-90.0, 0.0]], atol=1e-3)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["truth", "other end of its axis"]


def test_many_truths_are_a_track():
    ax = rotation_map({"a": near(CONE)}, truths=CONE, body=(1, 0, 0)).axes[0]
    track = drawn(ax, "truths")
    assert len(track.get_offsets()) == 120
    assert track.get_zorder() < drawn(ax, "rotations").get_zorder()
    np.testing.assert_allclose(globe(ax, "truths")[:, 1], 0.0, atol=1e-3)


def test_images_stand_beside_their_panels():
    figure = rotation_map({"a": CONE, "b": CONE}, images={"b": IMAGE})
    a, b = figure.axes[:2]
    assert not [inset for inset in a.child_axes if inset.images]
    (shown,) = [inset.images[0] for inset in b.child_axes if inset.images]
    np.testing.assert_allclose(shown.get_array(), IMAGE / IMAGE.max())
    assert a.get_xlim() == b.get_xlim()


def test_tangent_histograms_are_of_body_coordinates():
    """Of x = at Exp(ω), ω normal about a mean: each panel has that mean, and `truth` its place."""
    base, mean = Rotation.from_rotvec([1.0, -2.0, 0.5]), np.array([-0.4, 0.1, 0.5])
    vectors = mean + 0.1 * np.random.default_rng(0).normal(size=(4000, 3))
    sets = {"data": base * Rotation.from_rotvec(vectors), "one": near(base, 50)}
    centre = base * Rotation.from_rotvec(mean)
    bell = lambda w: -0.5 * (w / 0.1) ** 2  # noqa: E731
    figure = tangent_histograms(sets, at=base, truth=centre.as_matrix(), density=bell)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["data", "one", "density", "truth"]
    assert len(figure.axes) == 3
    for ax, expected, values in zip(figure.axes, mean, vectors.T, strict=True):
        outline = ax.patches[1].get_data()
        counts = np.histogram(values, outline.edges)[0]
        shares = outline.values * np.diff(outline.edges)
        np.testing.assert_allclose(shares, counts / len(values), atol=1e-3)
        curve, line = ax.lines
        x, y = curve.get_data()
        np.testing.assert_allclose(y, np.exp(bell(x)), rtol=1e-4)
        np.testing.assert_allclose(line.get_xdata(), expected, atol=1e-5)
    identity = tangent_histograms({"a": base.as_matrix()[None]}, truth=base)
    np.testing.assert_allclose(identity.axes[1].lines[0].get_xdata(), -2.0, rtol=1e-5)


def test_regions_of_angles_go_on_across_the_seam():
    """A cluster about 170° has the regions of the same cluster about −10°, cut at the seam.

    Half a circle is a whole number of bins. Smoothing that stops at the edges moves them.
    """
    cluster = np.random.default_rng(0).normal([-0.17, 0.0], [0.2, 0.3], (4000, 2))

    def regions(shift):
        angles = cluster + np.array([shift, 0.0])
        ax = torus_pairs({"a": (angles + np.pi) % (2 * np.pi) - np.pi}).axes[1]
        (lines,) = [c for c in ax.collections if hasattr(c, "levels")]
        return ax, [path.vertices for path in lines.get_paths()]

    _, whole = regions(0.0)
    ax, split = regions(np.pi)
    assert ax.get_xlim() == ax.get_ylim() == (-180.0, 180.0)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["−180°", "0°", "180°"]
    for one, other in zip(whole, split, strict=True):
        moved = (other[:, 0] + 360) % 360 - 180
        for values, expected in ((moved, one[:, 0]), (other[:, 1], one[:, 1])):
            assert values.min() == pytest.approx(expected.min(), abs=1e-6)
            assert values.max() == pytest.approx(expected.max(), abs=1e-6)
    assert split[0][:, 0].min() <= -180
    assert split[0][:, 0].max() >= 180


def test_angles_are_taken_modulo_a_turn():
    given = np.array([[3.0, -3.0], [np.pi, -np.pi], [3 * np.pi / 2, -2 * np.pi]])
    ax = torus_pairs({"a": given}, truth=[2 * np.pi - 1, 0.0], names=["φ", "ψ"]).axes[1]
    expected = [[np.degrees(3), -np.degrees(3)], [-180, -180], [-90, 0]]
    np.testing.assert_allclose(ax.collections[0].get_offsets(), expected, atol=1e-9)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), -np.degrees(1))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("φ", "ψ")


def test_small_panels_leave_out_the_label_in_the_middle():
    crowded = torus_pairs({"a": np.concatenate([ANGLES[:9], ANGLES[:9, :2]], 1)}).axes[-1]
    assert [tick.get_text() for tick in crowded.get_xticklabels()] == ["−180°", "", "180°"]


TILTED = np.eye(3)[None] * [[[1.0, 1.0, 1.1]]]
ONE = CONE[:1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rotation_map({}), "panels must be a dict"),
        (lambda: rotation_map({"a": np.zeros((5, 2))}), r"panels\['a'\]: expected matrices"),
        (lambda: rotation_map({"a": np.eye(3)}), r"panels\['a'\]: is one matrix"),
        (lambda: rotation_map({"a": TILTED}), r"panels\['a'\]: row 0 is not a rotation"),
        (lambda: rotation_map({"a": -np.eye(3)[None]}), r"panels\['a'\].*reflections"),
        (lambda: rotation_map({"a": ONE}, truths=TILTED), "truths: row 0 is not a rotation"),
        (lambda: rotation_map({"a": ONE}, truths={"a": TILTED}), r"truths\['a'\]: row 0"),
        (lambda: rotation_map({"a": ONE}, truths={"b": ONE}), r"truths must have names of panels"),
        (lambda: rotation_map({"a": ONE}, images={"b": IMAGE}), r"images must have names of pane"),
        (lambda: rotation_map({"a": ONE}, images={"a": IMAGE[0]}), r"images\['a'\] must be \(h, w"),
        (lambda: rotation_map({"a": ONE}, images={"a": IMAGE / 0 * 0}), r"images\['a'\] must be f"),
        (lambda: rotation_map({"a": ONE}, images=IMAGE), "images must be a dict"),
        (lambda: rotation_map({"a": ONE}, body=(0, 0, 0)), "body must be a direction"),
        (lambda: rotation_map({"a": ONE}, body=(1, 0)), r"body must be an array \(3,\)"),
        (lambda: tangent_histograms({"a": TILTED}), r"samples\['a'\]: row 0 is not a rotation"),
        (lambda: tangent_histograms({"a": ONE}, at=CONE), r"at must be one rotation.*\(120, 3, 3"),
        (lambda: tangent_histograms({"a": ONE}, at=TILTED[0]), "at: row 0 is not a rotation"),
        (lambda: tangent_histograms({"a": ONE}, truth=np.ones(3)), "truth must be one rotation"),
        (lambda: tangent_histograms({"a": ONE}, density=1.0), "density must be a function"),
        (lambda: torus_pairs({"a": ANGLES[0]}), r"samples\['a'\].*\(n, d\)"),
        (lambda: torus_pairs({"a": np.degrees(ANGLES)}), r"samples\['a'\] must be angles in rad"),
        (lambda: torus_pairs({"a": ANGLES}, truth=np.full(7, 90.0)), "truth must be angles in rad"),
        (lambda: torus_pairs({"a": ANGLES}, truth=np.full(7, np.nan)), "truth must be angles"),
        (lambda: torus_pairs({"a": ANGLES}, names=["x"]), "names must be 7"),
    ],
)
def test_errors_name_the_argument(call, message):
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("x64", [False, True])
def test_jax_arrays_are_taken(x64):
    with jax.enable_x64(x64), jax.numpy_rank_promotion("raise"):
        matrices = jnp.asarray(CONE.as_matrix())
        ax = rotation_map({"a": matrices}, body=(1, 0, 0)).axes[0]
        x, y = drawn(ax, "rotations").get_offsets().T
        turns = np.linspace(0, 2 * np.pi, 120)[:50]
        np.testing.assert_allclose(x[:50], mollweide(turns, 0 * turns)[0], atol=1e-5)
        np.testing.assert_allclose(y, 0.0, atol=1e-5)
        assert len(tangent_histograms({"a": matrices}, at=matrices[3]).axes) == 3
        assert len(torus_pairs({"a": jnp.asarray(ANGLES[:, :2])}).axes) == 3
