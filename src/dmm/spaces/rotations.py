"""Rotations of space, as 3×3 matrices."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.spatial.transform import Rotation

from .._checks import finite, numbers
from .base import Smooth

NEAR = 1e-3  # how far a matrix may be from a rotation, entry by entry, to be taken for one


class SO3(Smooth):
    """Rotations of R³: points are 3×3 orthogonal matrices of determinant 1.

    Tangent coordinates are vectors ω of R³ in the body's frame, exp(x, ω) = x Exp(ω); distance is
    the angle of rotation. Densities are w.r.t. the uniform probability measure, or with
    `measure="volume"` w.r.t. that of the distance, whose total is 8π².

    Data may also be rotation vectors (n, 3), quaternions (n, 4) with the scalar last, or a
    `scipy.spatial.transform.Rotation`; `to_scipy` gives points back as one.
    """

    measure: str = eqx.field(static=True, default="uniform")

    def __check_init__(self):
        if self.measure not in ("uniform", "volume"):
            raise ValueError(f"measure: choose 'uniform' or 'volume', got {self.measure!r}")

    def contains(self, x):
        square = jnp.max(jnp.abs(product(x.T, x) - jnp.eye(3, dtype=x.dtype)))
        return (square < 1e-4) & (jnp.linalg.det(x) > 0)

    def check(self, data, name="data"):
        matrices = data.as_matrix() if isinstance(data, Rotation) else numbers(data, name)
        if not isinstance(matrices, np.ndarray):  # traced: a shape, but no values
            if matrices.ndim != 3 or matrices.shape[1:] != (3, 3):
                raise ValueError(f"{name}: expected shape (n, 3, 3), got {matrices.shape}")
            return jnp.asarray(matrices, jnp.result_type(float))
        if matrices.ndim < 2 or matrices.shape[1:] not in ((3, 3), (3,), (4,)):
            raise ValueError(
                f"{name}: expected matrices (n, 3, 3), rotation vectors (n, 3) or quaternions "
                f"(n, 4), got shape {matrices.shape}"
            )
        if len(matrices) == 0:
            raise ValueError(f"{name}: is empty; pass at least one rotation")
        finite(matrices, name)
        matrices = np.asarray(matrices, np.float64)
        if matrices.shape[1:] == (4,):
            matrices = _from_quaternions(matrices, name)
        elif matrices.shape == (3, 3) and _distances(matrices[None])[0] < NEAR:
            raise ValueError(f"{name}: is one matrix; pass it as {name}[None], of shape (1, 3, 3)")
        elif matrices.shape[1:] == (3,):
            matrices = Rotation.from_rotvec(matrices).as_matrix()
        return jnp.asarray(_nearest(matrices, name), jnp.result_type(float))

    @staticmethod
    def to_scipy(points) -> Rotation:
        """Stacked points as SciPy's rotations: `.as_quat()`, `.as_rotvec()`, `.as_euler(...)`."""
        return Rotation.from_matrix(np.asarray(points, np.float64))

    def features(self, x):
        """The entries, of mean square one."""
        return 3**0.5 * x.ravel()

    def exp(self, x, v):
        return product(x, exp_map(v))

    def log(self, x, y):
        return log_map(product(x.T, y))

    def zero(self, x):
        return jnp.zeros(3, x.dtype)

    def tangent(self, x, v):
        return v

    def project(self, x):
        # Newton's iteration to the orthogonal factor: what is 0.01 off is then off by rounding.
        for _ in range(2):
            x = product(x, 1.5 * jnp.eye(3, dtype=x.dtype) - 0.5 * product(x.T, x))
        return x

    def distance(self, x: Array, y: Array) -> Array:
        """The angle between two rotations, in [0, π]."""
        return angle(log_map(product(x.T, y)))


def product(a: Array, b: Array) -> Array:
    """ab, for 3×3 matrices b.

    Written out, so that accelerators, which round the factors of matrix products, keep all digits.
    """
    b = b.reshape((1,) * (a.ndim - 1) + b.shape)
    return jnp.sum(a[..., None] * b, -2)


def hat(v: Array) -> Array:
    """The matrix of the cross product: hat(v) w = v × w."""
    x, y, z = v
    zero = jnp.zeros_like(x)
    return jnp.stack([jnp.stack([zero, -z, y]), jnp.stack([z, zero, -x]), jnp.stack([-y, x, zero])])


def angle(v: Array) -> Array:
    """|v|, with derivative 0 at 0."""
    square = jnp.sum(v**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def exp_map(v: Array) -> Array:
    """Rodrigues' formula: I + sin r/r hat(v) + (1 − cos r)/r² hat(v)², r = |v|."""
    square = jnp.sum(v**2)
    small = square < 1e-2
    r = jnp.sqrt(jnp.where(small, 1.0, square))
    s = jnp.where(small, square, 0.0)
    first = 1 - s / 6 * (1 - s / 20 * (1 - s / 42 * (1 - s / 72)))
    second = 0.5 * (1 - s / 12 * (1 - s / 30 * (1 - s / 56 * (1 - s / 90))))
    first = jnp.where(small, first, jnp.sin(r) / r)
    second = jnp.where(small, second, 2 * jnp.sin(0.5 * r) ** 2 / r**2)
    cross = hat(v)
    return jnp.eye(3, dtype=v.dtype) + first * cross + second * product(cross, cross)


def to_quaternion(x: Array) -> Array:
    """The unit quaternion (w, x, y, z), w ≥ 0, of a rotation: accurate at every angle.

    4qqᵀ is linear in the matrix. The row of its largest diagonal entry, at least 1, is scaled.
    """
    diagonal = jnp.diagonal(x)
    skew = jnp.stack([x[2, 1] - x[1, 2], x[0, 2] - x[2, 0], x[1, 0] - x[0, 1]])
    trace = jnp.sum(diagonal)
    corner = x + x.T + (1 - trace) * jnp.eye(3, dtype=x.dtype)
    top = jnp.concatenate([(1 + trace).reshape(1), skew])
    square = jnp.concatenate([top[None], jnp.concatenate([skew[:, None], corner], 1)])
    row = square[jnp.argmax(jnp.diagonal(square))]
    row = row / jnp.linalg.norm(row)
    return jnp.where(row[0] < 0, -row, row)


def from_quaternion(q: Array) -> Array:
    """The rotation of a unit quaternion (w, x, y, z)."""
    w, v = q[0], q[1:]
    cross = hat(v)
    return jnp.eye(3, dtype=q.dtype) + 2 * w * cross + 2 * product(cross, cross)


def turn_between(p: Array, q: Array) -> Array:
    """The unit quaternion (w, x, y, z), w ≥ 0, of the rotation from that of p to that of q."""
    (a, b, c, d), (w, x, y, z) = p, q
    turn = jnp.stack([
        a * w + b * x + c * y + d * z,
        a * x - b * w - c * z + d * y,
        a * y - c * w - d * x + b * z,
        a * z - d * w - b * y + c * x,
    ])  # fmt: skip
    return jnp.where(turn[0] < 0, -turn, turn)


def log_map(x: Array) -> Array:
    """The rotation vector of length at most π, with finite derivatives at 0 and π."""
    return log_quaternion(to_quaternion(x))


def log_quaternion(q: Array) -> Array:
    """The rotation vector of a unit quaternion (w, x, y, z), w ≥ 0."""
    w, v = q[0], q[1:]
    square = jnp.sum(v**2)
    small = square < 1e-4
    s = jnp.sqrt(jnp.where(small, 1.0, square))
    cosine = jnp.where(small, w, 1.0)
    ratio = jnp.where(small, square, 0.0) / cosine**2
    near = 2 / cosine * (1 - ratio / 3 * (1 - 3 * ratio / 5))
    return v * jnp.where(small, near, 2 * jnp.arctan2(s, w) / s)


def _distances(matrices: np.ndarray) -> np.ndarray:
    """How far each matrix is from being orthogonal, by the largest entry of xᵀx − I."""
    return np.abs(np.swapaxes(matrices, 1, 2) @ matrices - np.eye(3)).max((1, 2))


def _nearest(matrices: np.ndarray, name: str) -> np.ndarray:
    """The rotations nearest to nearly-rotations; an error that names the worst row for others."""
    off = _distances(matrices)
    worst = int(off.argmax())
    if off[worst] > NEAR:
        raise ValueError(
            f"{name}: row {worst} is not a rotation: xᵀx differs from I by {off[worst]:.3g}, and "
            f"{np.sum(off > NEAR)} of {len(off)} rows by more than {NEAR}; orthogonalise them, or "
            "pass rotation vectors or quaternions"
        )
    reflections = np.linalg.det(matrices) < 0
    if reflections.any():
        raise ValueError(
            f"{name}: row {int(reflections.argmax())} and {np.sum(reflections) - 1} others are "
            "reflections, of determinant −1; change the sign of one column"
        )
    u, _, v = np.linalg.svd(matrices)
    return u @ v


def _from_quaternions(quaternions: np.ndarray, name: str) -> np.ndarray:
    lengths = np.linalg.norm(quaternions, axis=1)
    worst = int(np.abs(lengths - 1).argmax())
    if abs(lengths[worst] - 1) > NEAR:
        raise ValueError(
            f"{name}: quaternion {worst} has length {lengths[worst]:.6g}, not 1; divide them by "
            "their lengths"
        )
    return Rotation.from_quat(quaternions).as_matrix()
