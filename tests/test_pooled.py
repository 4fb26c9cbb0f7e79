"""Targets averaged over the batch: the same minimiser, less noise."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.objectives.pooled import BATCH, log_density_and_target
from dmm.processes import supports
from dmm.spaces.rotations import log_map, log_quaternion, product, to_quaternion, turn_between
from table import TRACTABLE, over

KEY = jax.random.key(0)
OU = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
SPREAD = 0.5  # standard deviation of Gaussian data


def known(process):
    """Whether its transition density is."""
    return supports(process, dmm.HasDensity) or isinstance(process, dmm.RotationalBrownian)


def noise_of(objective, tau, batches=200, n=32):
    """Slope and mean square of ∂loss/∂c at s = c × the true score, c = 1, over many batches.

    The slope has mean 0 where the targets have the score for conditional mean.
    """
    variance = SPREAD**2 * math.exp(-tau) - math.expm1(-tau)

    def gradient(key):
        data_key, key = jax.random.split(key)
        x0 = SPREAD * jax.random.normal(data_key, (n, 1))

        def loss(c, key, x0):
            return objective(OU, lambda x, tau: -c * x / variance, key, x0, tau)

        each = jax.vmap(jax.grad(loss), (None, 0, 0), axis_name=BATCH)
        return each(1.0, jax.random.split(key, n), x0).mean()

    slopes = jax.jit(jax.vmap(gradient))(jax.random.split(KEY, batches))
    return float(slopes.mean()), float(slopes.std())


@pytest.mark.parametrize("size", [1, 8, 100])
@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_the_mean_of_the_target_stays_the_score(size, tau):
    """Five standard errors: false by chance once in two million."""
    mean, deviation = noise_of(dmm.Pooled(size), tau, batches=4000)
    assert abs(mean) < 5 * deviation / 4000**0.5


def test_there_is_less_noise():
    """At τ = 0.5 kernels are wider than the data: where x_0 was is most of the noise."""
    _, alone = noise_of(dmm.denoising, 0.5)
    _, pooled = noise_of(dmm.Pooled(), 0.5)
    assert pooled < 0.8 * alone


@over([row for row in TRACTABLE if known(row.process)])
@pytest.mark.usefixtures("x64")
def test_a_pair_has_the_density_and_the_target_of_the_process(row):
    """At a state that x_0 led to: the density up to a constant, the target that of its score."""
    process, x0, tau = row.process, row.starts[0], jnp.asarray(row.tau)
    x, other = (process.noise(jax.random.fold_in(KEY, i), x0, tau).x for i in range(2))
    log_density, target = log_density_and_target(process, x, x0, tau)
    exact = process.log_transition(x, x0, tau)
    shift = process.log_transition(other, x0, tau)
    shift = shift - log_density_and_target(process, other, x0, tau)[0]
    assert np.allclose(log_density + shift, exact, rtol=1e-9)
    score = process.score(lambda y: process.log_transition(y, x0, tau), x)
    found, wanted = jax.tree.leaves(target), jax.tree.leaves(process.mean(score))
    for one, two in zip(found, wanted, strict=True):
        assert np.allclose(one, two, rtol=1e-7, atol=1e-9)


def test_points_that_cannot_have_led_to_a_state_do_not_count():
    """Masked chains: what is not masked tells its x_0."""
    process = dmm.AbsorbingChain(dmm.Finite(3, 4))
    x0 = jnp.array([[0, 1, 2], [3, 2, 1], [0, 0, 0], [1, 1, 1]])

    def loss(key, x0):
        def nothing_known(x, tau):
            return jax.tree.map(jnp.zeros_like, process.noise(key, x0, tau).target)

        return dmm.Pooled()(process, nothing_known, key, x0, jnp.asarray(0.5))

    each = jax.vmap(loss, axis_name=BATCH)(jax.random.split(KEY, 4), x0)
    assert np.all(np.isfinite(each))


def test_a_turn_is_that_between_two_rotations():
    space = dmm.SO3()
    draw = dmm.RotationalBrownian(space).reference.sample
    x, y = jax.vmap(jax.vmap(draw))(jax.random.split(KEY, (2, 50)))
    near = jax.vmap(lambda r: space.exp(r, jnp.array([1e-4, 0.0, 2e-4])))(x)
    for other in (y, near):
        wanted = jax.vmap(lambda a, b: log_map(product(a.T, b)))(x, other)
        p, q = jax.vmap(to_quaternion)(x), jax.vmap(to_quaternion)(other)
        found = jax.vmap(lambda a, b: log_quaternion(turn_between(a, b)))(p, q)
        assert np.allclose(found, wanted, atol=3e-6)


def test_a_mixture_is_learned():
    """Two narrow laws on the circle of rotations about one axis."""
    points = dmm.SO3().exp(jnp.eye(3), jnp.array([0.0, 0.0, 0.5]))

    def draw(key):
        noise_key, key = jax.random.split(key)
        x = dmm.SO3().exp(jnp.eye(3), 0.2 * jax.random.normal(noise_key, (3,)))
        return jnp.where(jax.random.bernoulli(key), x, product(points, x))

    model = dmm.fit(
        dmm.Simulator(draw), space=dmm.SO3(), key=KEY, steps=300, batch_size=64,
        objective=dmm.Pooled(), learning_rate=5e-3, progress=False,
        network=lambda *shapes: dmm.MLP(*shapes, width=32, depth=2),
    )  # fmt: skip
    drawn = model.sample(KEY, 500, steps=50)
    angles = jax.vmap(dmm.SO3().distance, (0, None))(drawn, jnp.eye(3))
    assert float(jnp.mean(angles < 1.3)) > 0.95


@pytest.mark.parametrize("settings", [{"noisings": 2}, {"given": jnp.zeros((10, 1))}])
def test_examples_that_are_not_alike_are_refused(settings):
    with pytest.raises(ValueError, match="objective: Pooled averages over independent points"):
        dmm.fit(
            jnp.zeros((10, 1)), space=dmm.Euclidean(1), key=KEY, steps=1,
            objective=dmm.Pooled(), **settings,
        )  # fmt: skip


def test_a_process_without_a_density_is_refused():
    with pytest.raises(ValueError, match="Pooled needs a transition density"):
        dmm.fit(
            jnp.full((10, 3), 1 / 3), space=dmm.Simplex(3), key=KEY, steps=1, batch_size=4,
            objective=dmm.Pooled(),
        )  # fmt: skip
    with pytest.raises(ValueError, match="size: must be at least 1"):
        dmm.Pooled(0)
