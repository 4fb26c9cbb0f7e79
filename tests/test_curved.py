"""Steps on curved spaces: the orders that flat ones have, kept."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import dmm
from dmm.likelihood import flow_log_likelihood
from dmm.processes.rotation_kernel import log_kernel
from dmm.spaces.rotations import exp_map
from table import ROWS, fitted_order

pytestmark = pytest.mark.usefixtures("x64")
CURVED = {row.name: row for row in ROWS if row.name in ("sphere", "rotations", "torus")}


# --- Vectors pulled back -------------------------------------------------------------------------


@pytest.mark.parametrize("name", CURVED)
def test_pull_is_the_change_of_the_vector(name):
    """exp(x, v + e pull(x, v, w)) moves as exp(exp(x, v), e w) does: one derivative, to 10⁻¹⁰; the
    two differ where the space is curved, so w itself is not the answer there."""
    row = CURVED[name]
    space, x = row.process.space, row.one_point()
    random = np.random.default_rng(0)
    v, w = (jnp.asarray(random.normal(size=space.zero(x).shape)) for _ in range(2))
    v = space.tangent(x, v)
    y = space.exp(x, v)
    w = space.tangent(y, w)
    pulled = space.pull(x, v, w)

    def speed(f):
        return jax.jvp(lambda e: space.features(f(e)), (jnp.zeros(()),), (jnp.ones(()),))[1]

    truth = speed(lambda e: space.exp(y, e * w))
    np.testing.assert_allclose(speed(lambda e: space.exp(x, v + e * pulled)), truth, atol=1e-10)
    off = jnp.max(jnp.abs(speed(lambda e: space.exp(x, v + e * w)) - truth))
    assert off < 1e-10 if name == "torus" else off > 1e-2


# --- A law that stays known ----------------------------------------------------------------------

RATES = {"sphere": 1.0, "rotations": 1.0, "torus": 0.5}


def log_law(name):
    """(x, τ) ↦ log π (1 + e^{−λτ}⟨a, u⟩), u the features: they decay at one rate λ, ½Δu = −λu."""
    row, rate = CURVED[name], RATES[name]
    p, size = row.process, row.process.space.features(row.one_point()).size
    a = jnp.asarray(np.random.default_rng(3).normal(size=size))
    highest = jnp.max(jnp.abs(jax.vmap(p.space.features)(row.nodes) @ a))

    def log_q(x, tau):
        share = jnp.exp(-rate * tau) * 0.9 / highest
        return p.reference.log_prob(x) + jnp.log1p(share * (p.space.features(x) @ a))

    return log_q


@pytest.mark.parametrize("name", CURVED)
def test_flow_likelihood_has_order_four(name):
    """log q₀ at four points against 8 to 32 steps: order four, fitted, from errors below 0.1 to
    some above 10⁻⁸."""
    row, log_q = CURVED[name], log_law(name)
    p, x = row.process, row.some_points(4)
    truth = jax.vmap(lambda x: log_q(x, 0.0))(x)
    schedule = dmm.Power(1e-9, 40.0, power=3.0)

    def score(x, tau):
        return p.score(lambda y: log_q(y, tau), x)

    def error(steps):
        flow = jax.vmap(lambda x: flow_log_likelihood(p, score, schedule, x, steps=steps))
        return float(jnp.max(jnp.abs(jax.jit(flow)(x) - truth)))

    sizes = [8, 16, 32]
    errors = [error(n) for n in sizes]
    assert 1e-8 < errors[-1] < errors[0] < 0.1, errors
    assert 3.6 < -fitted_order(sizes, errors) < 5.5, errors


# --- One step of the generative process ----------------------------------------------------------


@functools.cache
def turns(h):
    """Rotation vectors and weights of a quadrature for the heat kernel at time h."""
    radius = min(np.pi, 9 * h**0.5)
    places, weights = np.polynomial.legendre.leggauss(40)
    r, dr = radius / 2 * (places + 1), radius / 2 * weights
    heights, dz = np.polynomial.legendre.leggauss(10)
    around = np.pi / 10 * np.arange(20)
    z, angle = (a.ravel() for a in np.meshgrid(heights, around, indexing="ij"))
    sine = np.sqrt(1 - z**2)
    axes = np.stack([sine * np.cos(angle), sine * np.sin(angle), z], -1)
    kernel = np.exp(np.asarray(jax.vmap(lambda a: log_kernel(a, h))(jnp.asarray(r))))
    radial = dr * kernel * (1 - np.cos(r)) / np.pi
    weights = radial[:, None] * np.repeat(dz / 40, 20)[None]
    assert abs(weights.sum() - 1) < 1e-10
    return (r[:, None, None] * axes[None]).reshape(-1, 3), weights.ravel()


def test_splitting_is_of_second_order_on_rotations():
    """One step with a nonlinear score against f + hLf + ½h²L²f, the noise by quadrature: an error
    of order h³, fitted over steps of 0.2 to 0.05."""
    row = CURVED["rotations"]
    p, wave, log_q = row.process, row.wave(row.theta(31)), log_law("rotations")
    generative = p.reverse(lambda x: p.score(lambda y: log_q(y, 0.0), x))
    x = jnp.asarray(Rotation.from_rotvec([0.4, -0.3, 0.8]).as_matrix())

    def after(h):
        vectors, weights = turns(h)

        def step(omega):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(dmm.RotationalBrownian, "draw", lambda *at: at[2] @ exp_map(omega))
                key = jax.random.key(0)
                return wave(dmm.Splitting().step(key, lambda tau: generative, x, h, 0.0))

        return weights @ np.asarray(jax.jit(jax.vmap(step))(jnp.asarray(vectors)))

    once = functools.partial(generative.generator, wave)
    first, second = jax.jit(lambda x: (once(x), generative.generator(once, x)))(x)
    sizes = [0.2, 0.1, 0.05]
    errors = [after(h) - (wave(x) + h * first + 0.5 * h**2 * second) for h in sizes]
    assert 2.7 < fitted_order(sizes, errors) < 3.4, errors


def test_splitting_refuses_what_it_cannot_split():
    flat = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
    step = functools.partial(dmm.Splitting().step, jax.random.key(0))
    with pytest.raises(TypeError, match="Splitting needs exact noising and an invariant reference"):
        step(lambda tau: flat.reverse(jnp.negative), jnp.zeros(1), 1.0, 0.5)
    with pytest.raises(TypeError, match="Splitting runs generative processes only"):
        step(lambda tau: flat, jnp.zeros(1), 1.0, 0.5)
