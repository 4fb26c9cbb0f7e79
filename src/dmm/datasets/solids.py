"""Pictures of five solids whose poses they show up to a symmetry, and the groups of those.

A pose R takes the body to the camera's frame: x to the right, y up, z towards the camera. A picture
of R is one of R g for every g of the solid's symmetries.
"""

import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.spatial.transform import Rotation

from .._checks import at_least
from .._types import Key

SOLIDS = ("tetrahedron", "cube", "icosahedron", "cone", "cylinder")

DISTANCE = 4.0  # of the camera, on the z axis; the solids' circumscribed sphere has radius 1
WIDTH = 0.27  # half the picture's width at distance 1: the sphere just fits
AMBIENT = 0.2
FAR = 1e9
GOLDEN = (1 + 5**0.5) / 2
CONE = (1.0, -0.6, 0.8)  # height of the apex, height of the base, its radius
CYLINDER = (0.8, 0.6)  # half the height, radius


class Pose(NamedTuple):
    """All that a picture shows: the number of a solid in `SOLIDS`, its rotation, the light."""

    solid: Array
    rotation: Array
    light: Array


def draw_pose(key: Key, solids: tuple[int, ...] = tuple(range(len(SOLIDS)))) -> Pose:
    """One of some solids, turned uniformly, in light from a uniform direction on the camera's
    side."""
    solid_key, pose_key, light_key = jax.random.split(key, 3)
    solid = jax.random.choice(solid_key, jnp.asarray(solids))
    light = jax.random.normal(light_key, (3,))
    light = light.at[2].set(jnp.abs(light[2])) / jnp.linalg.norm(light)
    return Pose(solid, _uniform_rotation(pose_key), light)


def render_solid(pose: Pose, *, size: int = 64, samples: int = 2) -> Array:
    """A grey picture (size, size) in [0, 1], seen in perspective on black, its first row on top.

    A face with normal n in light from l has brightness a + (1 − a)(1 + n·l)/2: Lambert's cosine,
    shifted so that no two faces turned away from the light look alike. Each pixel is the mean of
    samples² rays. Traceable, in the solid's number too.
    """
    at_least(1, size=size, samples=samples)
    turn = pose.rotation
    planes, (a, b, c) = jnp.asarray(_PLANES)[pose.solid], jnp.asarray(_QUADRICS)[pose.solid]
    # In the body's frame. Products are written out: on GPUs those of matrices are rounded, and
    # these become one kernel.
    rays, eye = _rays(turn, size * samples), DISTANCE * turn[2]
    light = [_dot(turn[:, i], pose.light) for i in range(3)]

    # A solid is the part common to half-spaces n·x ≤ d and to x² + y² ≤ a z² + b z + c.
    normals = [planes[:, i][None, None] for i in range(3)]
    along = _dot(normals, [ray[..., None] for ray in rays])
    along = jnp.where(along == 0, -1e-9, along)
    times = (planes[:, 3] - _dot(planes.T, eye))[None, None] / along
    entries = jnp.where(along < 0, times, -FAR)
    entry, exit = jnp.max(entries, -1), jnp.min(jnp.where(along > 0, times, FAR), -1)
    shades = _shade(_dot(planes.T, light))[None, None]
    shade = jnp.max(jnp.where(entries >= entry[..., None], shades, 0.0), -1)

    square = rays[0] ** 2 + rays[1] ** 2 - a * rays[2] ** 2
    half = eye[0] * rays[0] + eye[1] * rays[1] - (a * eye[2] + 0.5 * b) * rays[2]
    constant = eye[0] ** 2 + eye[1] ** 2 - (a * eye[2] + b) * eye[2] - c
    discriminant = half**2 - square * constant
    root = jnp.sqrt(jnp.maximum(discriminant, 0.0))
    square = jnp.where(square == 0, 1e-9, square)
    # A ray steeper than the cone (square < 0) has only one end in it.
    curved = jnp.where((square > 0) | (rays[2] < 0), (-half - root) / square, -FAR)
    exit = jnp.minimum(exit, jnp.where((square > 0) | (rays[2] > 0), (root - half) / square, FAR))
    x, y, z = (eye[i] + curved * rays[i] for i in range(3))
    gradient = [x, y, -(a * z + 0.5 * b)]
    length = jnp.sqrt(jnp.maximum(_dot(gradient, gradient), 1e-12))
    shade = jnp.where(curved > entry, _shade(_dot(gradient, light) / length), shade)
    hit = (jnp.maximum(entry, curved) < exit) & (discriminant >= 0)
    fine = jnp.where(hit, shade, 0.0)
    return jnp.mean(fine.reshape(size, samples, size, samples), (1, 3))


@functools.cache
def symmetries(name: str) -> np.ndarray:
    """The rotations (g, 3, 3) that leave a solid as it is, the identity first.

    12 of the tetrahedron, 24 of the cube, 60 of the icosahedron; of the cone and the cylinder 360
    turns about the axis, z, in steps of a degree, and of the cylinder 360 more that turn it upside
    down besides.
    """
    if name not in SOLIDS:
        raise ValueError(f"name: expected one of {', '.join(SOLIDS)}, got {name!r}")
    if name in ("cone", "cylinder"):
        turns = _turn(np.arange(360), (0, 0, 1))
        return turns if name == "cone" else np.concatenate([turns, turns @ np.diag([1, -1, -1])])
    other = {
        "tetrahedron": _turn(180, (0, 0, 1)),
        "cube": _turn(90, (0, 0, 1)),
        "icosahedron": _turn(72, (1, 0, GOLDEN)),
    }
    return _closure(_turn(120, (1, 1, 1)), other[name])


def _closure(*generators: np.ndarray) -> np.ndarray:
    """The finite group that some rotations generate."""
    group = [np.eye(3)]
    for element in group:  # which grows as it is gone through
        for generator in generators:
            product = element @ generator
            if np.abs(np.stack(group) - product).max((1, 2)).min() > 1e-6:
                group.append(product)
    return np.stack(group)


def _turn(degrees, axis) -> np.ndarray:
    unit = np.asarray(axis, float) / np.linalg.norm(axis)
    return Rotation.from_rotvec(np.multiply.outer(np.radians(degrees), unit)).as_matrix()


def _uniform_rotation(key: Key) -> Array:
    w, x, y, z = (q := jax.random.normal(key, (4,))) / jnp.linalg.norm(q)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return jnp.stack([jnp.stack(row) for row in rows])


def _rays(turn: Array, n: int) -> list[Array]:
    """Directions (n, n) in the body's frame, coordinate by coordinate."""
    places = WIDTH * ((2 * jnp.arange(n) + 1) / n - 1)
    right, up = places[None, :], -places[:, None]
    return [turn[0, i] * right + turn[1, i] * up - turn[2, i] for i in range(3)]


def _dot(a, b) -> Array:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _shade(cosine: Array) -> Array:
    return AMBIENT + (1 - AMBIENT) * 0.5 * (1 + cosine)


def _faces() -> np.ndarray:
    """Half-spaces (5, 20, 4), normals and distances; those that a solid lacks hold all of space."""
    signs = np.asarray(list(itertools.product([1, -1], repeat=3)), float)
    axes = np.concatenate([np.eye(3), -np.eye(3)])
    long = np.asarray([(0, s / GOLDEN, t * GOLDEN) for s in (1, -1) for t in (1, -1)])
    dodecahedron = np.concatenate([signs, *(np.roll(long, i, 1) for i in range(3))])
    apex, base, _ = CONE
    faces = [
        (signs[signs.prod(1) < 0] / 3**0.5, 1 / 3),
        (axes, 1 / 3**0.5),
        (dodecahedron / 3**0.5, math.sqrt((5 + 2 * 5**0.5) / 15)),
        (axes[[2, 5]], np.asarray([apex, -base])),
        (axes[[2, 5]], CYLINDER[0]),
    ]
    planes = np.tile(np.asarray([0.0, 0, 0, 1]), (len(SOLIDS), 20, 1))
    for row, (normals, distances) in zip(planes, faces, strict=True):
        row[: len(normals), :3], row[: len(normals), 3] = normals, distances
    return planes


def _quadrics() -> np.ndarray:
    """a, b, c (5, 3) of the round sides; without one, a cylinder around all."""
    apex, base, radius = CONE
    slope = (radius / (apex - base)) ** 2
    cone = (slope, -2 * slope * apex, slope * apex**2)
    none = (0, 0, 1e3)
    return np.asarray([none, none, none, cone, (0, 0, CYLINDER[1] ** 2)])


_PLANES, _QUADRICS = _faces(), _quadrics()
