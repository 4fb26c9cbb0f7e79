"""Independent draws of posteriors whose density is known but for a constant.

Both ways end in rejection: proposals of density q, near the posterior's p, are kept with chance
min(1, p/(cq)), where c is so large that the draws' law differs from p by 10⁻³ in total variation.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

CLIPPED = 1e-3  # the share of the posterior's mass where p > cq
ROUNDS = 200  # of proposals, before giving up
PARTICLES, KERNELS, MOVES = 1024, 512, 12
FREEDOM = 8.0  # degrees, of the kernels' Student law
# How far below the maximum, in nats, a coarse grid's cells are searched for the mass.
SLACKS = (2000.0, 500.0, 100.0, 40.0, 30.0)


def generator(key: PRNGKeyArray) -> np.random.Generator:
    """NumPy's generator of random numbers with the key as its seed."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())


def kept(
    random: np.random.Generator,
    propose: Callable[[], tuple[np.ndarray, np.ndarray]],
    n: int,
) -> np.ndarray:
    """n draws by rejection; `propose` returns points and log p/q, but for a constant."""
    points, logs = propose()
    top = np.max(logs)
    if not np.isfinite(top):
        raise RuntimeError("reference: no proposal has a positive density; is x of this task?")
    weights = np.sort(np.exp(logs - top))[::-1]
    # The mass above a level: the sum of what exceeds it.
    excess = np.cumsum(weights) - weights * np.arange(1, len(weights) + 1)
    allowed = np.flatnonzero(excess <= CLIPPED * weights.sum())[-1]
    level = math.log(max(weights[allowed], 1e-300)) + top
    found: list[np.ndarray] = []
    for _ in range(ROUNDS):
        found.append(points[np.log(random.uniform(size=len(logs))) < logs - level])
        if sum(map(len, found)) >= n:
            return np.concatenate(found)[:n]
        points, logs = propose()
    raise RuntimeError(
        f"reference: only {sum(map(len, found))} of {n} draws found; x is far from what θ gives"
    )


def grid(
    random: np.random.Generator,
    log_density: Callable[[np.ndarray], np.ndarray],
    low: np.ndarray,
    high: np.ndarray,
    cells: int,
) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """Proposals for a density on a box of two or three dimensions, constant in each cell of a grid.

    The grid closes in on the mass in five steps. The function returned draws m points and gives log
    q there; `log_density` takes points (m, d).
    """
    low, high = np.array(low, float), np.array(high, float)
    for slack in SLACKS:
        centres, width = _cells(low, high, cells)
        logs = log_density(centres)
        inside = centres[logs > np.max(logs) - slack]
        low = np.maximum(low, inside.min(0) - 1.5 * width)
        high = np.minimum(high, inside.max(0) + 1.5 * width)
    centres, width = _cells(low, high, cells)
    logs = log_density(centres)
    sums = np.cumsum(np.exp(logs - np.max(logs)))

    def draw(m: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.searchsorted(sums, random.uniform(size=m) * sums[-1])
        return centres[rows] + width * random.uniform(-0.5, 0.5, (m, len(width))), logs[rows]

    return draw


def _cells(low: np.ndarray, high: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """The middles of a grid's cells, and their widths."""
    width = (high - low) / cells
    axes = [a + w * (np.arange(cells) + 0.5) for a, w in zip(low, width, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes)), width


def tempered(
    key: PRNGKeyArray,
    log_likelihood: Callable[[Array, Array], Array],
    dim: int,
    x: Any,
    n: int,
) -> Float[np.ndarray, "n dim"]:
    """n draws of z | x for z ~ N(0, I) and any likelihood of (z, x), in double precision.

    Particles of the prior are taken to the posterior by sequential Monte Carlo (Del Moral et al.,
    2006), the likelihood's power rising from 0 to 1; a Student kernel around each, shrunk to the
    mean as in Liu and West (2001), gives the proposals for `kept`.
    """
    with jax.enable_x64(True):
        key = jax.random.wrap_key_data(jax.random.key_data(key))
        x = jnp.asarray(np.asarray(x, np.float64))
        keys = jax.random.split(key, ROUNDS + 2)
        particles = _particles(log_likelihood, keys[0], x, dim)
        batches = iter(keys[2:])

        def propose():
            z, logs = _proposals(log_likelihood, next(batches), x, particles, 4 * n)
            return np.asarray(z), np.asarray(logs)

        return kept(generator(keys[1]), propose, n)


@eqx.filter_jit
def _particles(log_likelihood: Callable, key: Array, x: Array, dim: int) -> Array:
    """Particles of the posterior, by powers that halve the effective size at each step."""
    start_key, key = jax.random.split(key)
    z = jax.random.normal(start_key, (PARTICLES, dim))
    log_l = functools.partial(_finite, log_likelihood, x)

    def more(state):
        return state[-1] < 1

    def raise_power(state):
        key, z, logs, power = state
        key, resample_key, move_key = jax.random.split(key, 3)
        step = _next_step(logs, 1 - power)
        power = power + step
        places = (jnp.arange(len(z)) + jax.random.uniform(resample_key)) / len(z)
        sums = jnp.cumsum(jax.nn.softmax(step * logs))
        rows = jnp.searchsorted(sums / sums[-1], places)
        z, logs = z[rows], logs[rows]
        root = _root(z)

        def move(state, key):
            return _moved(log_l, key, *state, power, root), None

        (z, logs), _ = jax.lax.scan(move, (z, logs), jax.random.split(move_key, MOVES))
        return key, z, logs, power

    state = (key, z, jax.vmap(log_l)(z), jnp.zeros(()))
    return jax.lax.while_loop(more, raise_power, state)[1]


def _finite(log_likelihood: Callable, x: Array, z: Array) -> Array:
    value = log_likelihood(z, x)
    return jnp.where(jnp.isfinite(value), value, -1e30)


def _next_step(logs: Array, most: Array) -> Array:
    """The rise in power at which half of the particles count, at most what is left of it."""

    def size(step):
        return 1 / jnp.sum(jax.nn.softmax(step * logs) ** 2)

    def halve(_, ends):
        low, high = ends
        middle = 0.5 * (low + high)
        enough = size(middle) > 0.5 * len(logs)
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, 60, halve, (jnp.zeros(()), most))
    return jnp.where(size(most) > 0.5 * len(logs), most, jnp.maximum(low, 1e-12))


def _root(z: Array) -> Array:
    """A root of the particles' covariance."""
    spread = jnp.cov(z, rowvar=False) + 1e-12 * jnp.eye(z.shape[1])
    return jnp.linalg.cholesky(spread)


def _moved(
    log_l: Callable, key: Array, z: Array, logs: Array, power: Array, root: Array
) -> tuple[Array, Array]:
    """One Metropolis step of every particle, its length one of four."""
    noise_key, length_key, accept_key = jax.random.split(key, 3)
    halvings = jax.random.randint(length_key, (len(z), 1), 0, 4)
    length = 2.38 / z.shape[1] ** 0.5 * 0.5**halvings
    proposed = z + length * (jax.random.normal(noise_key, z.shape) @ root.T)
    new = jax.vmap(log_l)(proposed)
    gain = power * (new - logs) - 0.5 * jnp.sum(proposed**2 - z**2, 1)
    taken = jnp.log(jax.random.uniform(accept_key, gain.shape)) < gain
    return jnp.where(taken[:, None], proposed, z), jnp.where(taken, new, logs)


@eqx.filter_jit
def _proposals(
    log_likelihood: Callable, key: Array, x: Array, particles: Array, m: int
) -> tuple[Array, Array]:
    """m draws of the kernels, and log p/q there."""
    count, d = KERNELS, particles.shape[1]
    which_key, normal_key, chi_key = jax.random.split(key, 3)
    h = (4 / ((d + 2) * count)) ** (1 / (d + 4))  # Silverman's width
    mean, root = jnp.mean(particles, 0), _root(particles)
    centres = mean[None] + (1 - h**2) ** 0.5 * (particles[:count] - mean[None])
    noise = jax.random.normal(normal_key, (m, d))
    chi = jax.random.chisquare(chi_key, FREEDOM, (m, 1))
    rows = jax.random.randint(which_key, (m,), 0, count)
    z = centres[rows] + h * (noise * jnp.sqrt(FREEDOM / chi)) @ root.T

    def whiten(points):
        return jax.scipy.linalg.solve_triangular(root, points.T, lower=True).T / h

    white, white_centres = whiten(z), whiten(centres)

    def log_ratio(z, w):
        squares = jnp.sum((w[None] - white_centres) ** 2, 1)
        log_q = jax.nn.logsumexp(-0.5 * (FREEDOM + d) * jnp.log1p(squares / FREEDOM))
        return _finite(log_likelihood, x, z) - 0.5 * jnp.sum(z**2) - log_q

    return z, jax.lax.map(lambda pair: log_ratio(*pair), (z, white), batch_size=4096)
