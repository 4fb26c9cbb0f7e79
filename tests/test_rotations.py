"""Rotations: the space, the heat kernel in high precision, exact draws, a model of them."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation

import dmm
from dmm.processes.rotation_kernel import draw_rotation_vector, log_kernel, slope
from dmm.spaces.rotations import exp_map, from_quaternion, log_map, to_quaternion

VALUES = pathlib.Path(__file__).parent / "reference_values"
KERNEL = json.loads((VALUES / "igso3.json").read_text())["values"]
ANGLES = (0.0, 1e-6, 1e-3, 0.05, 0.3, 1.0, 2.5, 3.0, np.pi - 1e-3, np.pi - 1e-6, np.pi)


def vectors(angle, n=20):
    """Rotation vectors of one angle, about n axes and those of the coordinates."""
    axes = np.random.default_rng(0).normal(size=(n, 3))
    axes = np.concatenate([axes, np.eye(3), -np.eye(3)])
    return angle * axes / np.linalg.norm(axes, axis=1, keepdims=True)


# --- The space -----------------------------------------------------------------------------------


@pytest.mark.parametrize("angle", ANGLES)
def test_exponential_and_logarithm(angle):
    """Against SciPy and as inverses: 10⁻¹² in double precision, 10⁻⁶ in single; next to π too."""
    v = vectors(angle)
    matrices = Rotation.from_rotvec(v).as_matrix()
    for x64, atol in ((True, 1e-12), (False, 1e-6)):
        with jax.enable_x64(x64):
            found = jax.vmap(exp_map)(jnp.asarray(v))
            np.testing.assert_allclose(found, matrices, rtol=0, atol=atol)
            back = jax.vmap(lambda x: exp_map(log_map(x)))(jnp.asarray(matrices))
            np.testing.assert_allclose(back, matrices, rtol=0, atol=atol)
            lengths = np.linalg.norm(jax.vmap(log_map)(jnp.asarray(matrices)), axis=1)
            np.testing.assert_allclose(lengths, angle, rtol=0, atol=2 * atol)


@pytest.mark.parametrize("angle", ANGLES)
def test_derivatives_are_finite(angle):
    """Of exponential, logarithm and distance, at the identity and at π, in single precision."""
    x = jnp.asarray(Rotation.from_rotvec(vectors(angle)).as_matrix(), jnp.float32)
    space = dmm.SO3()

    @jax.jit
    @jax.vmap
    def derivatives(x):
        there_and_back = jax.jacobian(lambda v: space.log(x, space.exp(x, v)))(jnp.zeros(3))
        to_identity = jax.grad(space.distance)(x, jnp.eye(3))
        return there_and_back, jax.jacobian(log_map)(x), to_identity

    there_and_back, logarithm, distance = derivatives(x)
    identity = np.broadcast_to(np.eye(3), there_and_back.shape)
    np.testing.assert_allclose(there_and_back, identity, atol=1e-5)
    assert np.all(np.isfinite(logarithm))
    assert np.all(np.isfinite(distance))


def test_logarithm_has_the_derivative_of_differences():
    """Double precision, at angles short of π: along each axis to 10⁻⁷."""
    with jax.enable_x64(True):
        x = jnp.asarray(Rotation.from_rotvec(vectors(2.8)).as_matrix())
        space, h = dmm.SO3(), 1e-6

        def moved(v):
            return jax.vmap(lambda x: log_map(space.exp(x, v)))(x)

        found = jax.jacobian(moved)(jnp.zeros(3))
        steps = [(moved(h * e) - moved(-h * e)) / (2 * h) for e in jnp.eye(3)]
        np.testing.assert_allclose(found, np.stack(steps, -1), atol=1e-7)


def test_quaternions():
    """There and back, of w ≥ 0, at random rotations and half turns."""
    turns = Rotation.concatenate([Rotation.random(50, rng=0), Rotation.from_rotvec(vectors(np.pi))])
    x = jnp.asarray(turns.as_matrix())
    q = jax.vmap(to_quaternion)(x)
    assert np.all(q[:, 0] >= 0)
    np.testing.assert_allclose(jax.vmap(from_quaternion)(q), x, atol=1e-6)


def test_projection():
    """What is 0.01 off comes within 10⁻⁶ of the nearest rotation, which SVD gives."""
    noise = 0.01 * np.random.default_rng(1).normal(size=(30, 3, 3))
    near = Rotation.random(30, rng=2).as_matrix() + noise
    u, _, v = np.linalg.svd(near)
    np.testing.assert_allclose(jax.vmap(dmm.SO3().project)(jnp.asarray(near)), u @ v, atol=2e-6)


def test_every_form_of_input():
    turns = Rotation.random(5, rng=3)
    space = dmm.SO3()
    for form in (turns, turns.as_matrix(), turns.as_quat(), turns.as_rotvec()):
        np.testing.assert_allclose(space.check(form), turns.as_matrix(), atol=1e-6)
    back = space.to_scipy(space.check(turns))
    assert np.max((back.inv() * turns).magnitude()) < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x + 0.1 * (np.arange(4) == 2)[:, None, None],
            r"row 2 is not a rotation: xᵀx differs from I by 0\.\d+, and 1 of 4",
        ),
        (lambda x: x * [1.0, 1.0, -1.0], "row 0 and 3 others are reflections"),
        (lambda x: x[0], "is one matrix; pass it as data"),
        (lambda x: x[:, :2], "expected matrices"),
        (lambda x: x[:0], "is empty"),
        (lambda x: np.full((4, 4), 0.7), "quaternion 0 has length 1.4"),
        (lambda x: x * np.nan, "NaN"),
    ],
)
def test_bad_input(change, message):
    with pytest.raises(ValueError, match=message):
        dmm.SO3().check(change(Rotation.random(4, rng=4).as_matrix()))


def test_measures():
    """The volume's density is the uniform measure's over 8π²."""
    with pytest.raises(ValueError, match="measure: choose"):
        dmm.SO3(measure="haar")
    x, x0 = (jnp.asarray(turn.as_matrix()) for turn in Rotation.random(2, rng=5))
    values = [
        dmm.RotationalBrownian(dmm.SO3(measure)).log_transition(x, x0, 0.7)
        for measure in ("uniform", "volume")
    ]
    np.testing.assert_allclose(values[0] - values[1], np.log(8 * np.pi**2), rtol=1e-6)


# --- The heat kernel -----------------------------------------------------------------------------


def test_kernel_in_high_precision():
    """log q and its slope against 60 digits: 10⁻¹² in double precision; in single 5·10⁻⁷, of the
    slope up to an angle of 2.9, beyond which rounding of the angle itself shows."""
    alpha = np.array([case["alpha"] for case in KERNEL])
    tau = np.array([case["t"] for case in KERNEL])
    truth = np.array([case["log_q_uniform"] for case in KERNEL])
    slopes = np.array([case["dlogq_dalpha"] for case in KERNEL]) / alpha
    for x64, rtol in ((True, 1e-12), (False, 5e-7)):
        with jax.enable_x64(x64):
            at = jnp.asarray(alpha), jnp.asarray(tau)
            np.testing.assert_allclose(jax.vmap(log_kernel)(*at), truth, rtol=rtol, atol=rtol)
            found = np.asarray(jax.vmap(slope)(*at), np.float64)
        inner = alpha < (4.0 if x64 else 2.9)
        assert inner.sum() > 150
        np.testing.assert_allclose(found[inner], slopes[inner], rtol=rtol)


def test_single_precision_is_finite():
    """Draws, targets, densities and gradients at every time; at x_0 and half a turn from it too."""
    process = dmm.RotationalBrownian(dmm.SO3())
    taus = jnp.geomspace(1e-6, 50.0, 60)
    x0 = jnp.eye(3)
    keys = jax.random.split(jax.random.key(0), 64)

    def over(f):
        return jax.jit(jax.vmap(jax.vmap(f, (0, None, None)), (None, None, 0)))

    x, target = over(process.noise)(keys, x0, taus)
    assert x.dtype == target.dtype == jnp.float32
    assert np.all(np.isfinite(target))
    assert np.all(jax.vmap(jax.vmap(process.space.contains))(x))
    turns = jnp.asarray(Rotation.from_rotvec(vectors(np.pi)).as_matrix(), jnp.float32)
    points = jnp.concatenate([turns, x0[None], x[:, 0]])
    value, gradient = over(jax.value_and_grad(process.log_transition))(points, x0, taus)
    assert np.all(np.isfinite(value))
    assert np.all(np.isfinite(gradient))


def law_of_the_angle(tau):
    """The distribution function of the angle, by trapezia on a fine grid, in double precision."""
    grid = np.linspace(0.0, min(np.pi, 12 * tau**0.5), 4001)
    with jax.enable_x64(True):
        log_q = np.asarray(jax.vmap(lambda a: log_kernel(a, tau))(jnp.asarray(grid)))
    density = np.exp(log_q) * (1 - np.cos(grid)) / np.pi
    mass = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2)) * grid[1]
    assert abs(mass[-1] - 1) < 1e-5
    return lambda alpha: np.interp(alpha, grid, mass)


@pytest.mark.parametrize("tau", [1e-4, 0.3, 1.4, 1.6, 5.0])
def test_draws_have_the_density(tau):
    """Kolmogorov–Smirnov of 2¹⁶ angles, p above 10⁻⁵; of times 5% off below, while there is a
    difference to see. Axes uniform: their mean within 5 standard errors of 0."""
    keys = jax.random.split(jax.random.key(1), 2**16)
    draw = jax.jit(jax.vmap(draw_rotation_vector, (0, None)))
    omega = np.asarray(draw(keys, tau), np.float64)
    angles = np.linalg.norm(omega, axis=1)
    assert stats.kstest(angles, law_of_the_angle(tau)).pvalue > 1e-5
    if tau < 2:
        assert stats.kstest(angles, law_of_the_angle(1.05 * tau)).pvalue < 1e-5
    assert np.all(np.abs((omega / angles[:, None]).mean(0)) < 5 / 3**0.5 / 2**8)


@pytest.mark.usefixtures("x64")
def test_target_is_the_score():
    """The closed form of the target is the gradient of log q along the body's axes: 10⁻⁸."""
    process = dmm.RotationalBrownian(dmm.SO3())
    x0 = jnp.asarray(Rotation.random(rng=6).as_matrix())

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, None))
    def both(key, tau):
        x, target = process.noise(key, x0, tau)
        return target, process.score(lambda y: process.log_transition(y, x0, tau), x)

    for tau in (0.01, 0.4, 2.0):
        target, score = both(jax.random.split(jax.random.key(2), 8), tau)
        np.testing.assert_allclose(target, score, rtol=1e-8, atol=1e-8 / tau)


# --- A model -------------------------------------------------------------------------------------


def test_training_finds_a_known_law():
    """Two heat kernels: log-likelihood by flow within 0.04 nats of the truth, which lies 1.1 above
    the uniform law; samples are rotations and have the data's mean matrix to 5 standard errors."""
    process = dmm.RotationalBrownian(dmm.SO3())
    centres = jnp.asarray(Rotation.from_rotvec([[0.3, 0.0, 0.0], [0.0, 2.0, -1.0]]).as_matrix())

    def draw(key):
        which_key, key = jax.random.split(key)
        return process.draw(key, centres[jax.random.bernoulli(which_key).astype(int)], 0.3)

    def log_truth(x):
        each = jax.vmap(process.log_transition, (None, 0, None))(x, centres, 0.3)
        return jax.nn.logsumexp(each) - jnp.log(2)

    model = dmm.fit(
        dmm.Simulator(draw),
        space=dmm.SO3(),
        key=jax.random.key(0),
        steps=3000,
        learning_rate=3e-3,
        network=lambda *shapes: dmm.MLP(*shapes, width=64, depth=3),
    )
    test = jax.vmap(draw)(jax.random.split(jax.random.key(1), 400))
    truth = jax.vmap(log_truth)(test)
    assert float(truth.mean()) > 1.1
    assert abs(float((model.log_likelihood(test, steps=40) - truth).mean())) < 0.04
    bound = model.elbo(jax.random.key(3), test) - truth
    assert -0.12 < float(bound.mean()) < 0.05
    samples = model.sample(jax.random.key(2), 2000, steps=50)
    assert np.all(jax.vmap(dmm.SO3().contains)(samples))
    expected = jnp.exp(-0.3) * centres.mean(0)  # of degree 1: E x = e^{−τ} x_0
    error = samples.reshape(-1, 9) - expected.ravel()[None]
    assert np.all(np.abs(error.mean(0)) < 5 * error.std(0) / 2000**0.5 + 0.01)
