"""Random draws without rejection loops, in log space: the same work for every entry.

`jax.random`'s own loops until the slowest entry of a batch is accepted, which on a GPU takes longer
than a network's training step.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._types import Key

FEW = 16  # the mean count below which laws of counts are summed term by term


def log_gamma(key: Key, shape: Array, scale: Array | float = 1.0, *, small: bool = True) -> Array:
    """log(G/scale) for G ~ Gamma(shape) of rate 1, entry by entry; any shape > 0.

    Marsaglia and Tsang (2000) for shapes of 1 and more: the first of two proposals to be accepted,
    or a third as it comes. That happens once in 400 draws for shapes near 1 and far less often
    beyond, and is right to 5%: an error of 10⁻⁴ in total variation. Below 1, for which `small` must
    be true, G(a) = G(a + 1) U^{1/a}. A scale like the shape keeps the digits of G − E G where
    shapes are large.
    """
    normal_key, uniform_key, boost_key = jax.random.split(key, 3)
    dtype = shape.dtype
    boosted = shape < 1 if small else jnp.zeros(shape.shape, bool)
    d = jnp.where(boosted, shape + 1, shape) - 1 / 3
    c = 1 / jnp.sqrt(9 * d)
    z = jax.random.normal(normal_key, (3, *shape.shape), dtype)
    step = c[None] * z
    log_v = 3 * jnp.log1p(jnp.maximum(step, -0.999))
    u = _uniform(uniform_key, (2, *shape.shape), dtype)
    bound = 0.5 * z[:2] ** 2 + d[None] * (log_v[:2] - jnp.expm1(log_v[:2]))
    first, second = (step[:2] > -0.999) & (jnp.log(u) < bound)
    found = jnp.log(d / scale) + jnp.where(first, log_v[0], jnp.where(second, log_v[1], log_v[2]))
    if small:
        boost = jnp.log(_uniform(boost_key, shape.shape, dtype)) / jnp.where(boosted, shape, 1.0)
        found = jnp.where(boosted, found + boost, found)
    return settled(found)


def log_dirichlet(key: Key, shape: Array, *, small: bool = True) -> Array:
    """log p for p ~ Dirichlet(shape), along the last axis; `small` as for `log_gamma`."""
    total = jnp.sum(shape, -1, keepdims=True)
    return jax.nn.log_softmax(log_gamma(key, shape, total, small=small))


def log_beta(key: Key, a: Array, b: Array, *, small: bool = True) -> tuple[Array, Array]:
    """log y and log(1 − y) for y ~ Beta(a, b), entry by entry; `small` as for `log_gamma`."""
    logs = log_dirichlet(key, jnp.stack(jnp.broadcast_arrays(a, b), -1), small=small)
    return logs[..., 0], logs[..., 1]


def multinomial(key: Key, count: Array, probabilities: Array, most: int) -> Array:
    """Counts of `count` things in the classes of `probabilities` (along its only axis), as floats.

    The first `count` of `most` uniform numbers, each put in its class: exact. Where there are more
    than `most`, correlated Gaussians, rounded, and for classes of few the binomial quantiles of
    them: every class has its own law, and all sum to `count`.
    """
    uniform_key, normal_key = jax.random.split(key)
    dtype = probabilities.dtype
    sums = jnp.cumsum(probabilities)
    u = jax.random.uniform(uniform_key, (most,), dtype) * sums[-1]
    used = jnp.arange(most, dtype=dtype) < count
    below = jnp.sum(used[:, None] & (u[:, None] < sums[None]), 0, dtype=dtype)
    # The last sum is all of them, whatever rounding says of it.
    below = below.at[-1].set(jnp.minimum(count, most).astype(dtype))
    few = jnp.diff(below, prepend=jnp.zeros(1, dtype))
    many = _many(normal_key, count, probabilities / sums[-1])
    return settled(jnp.where(count <= most, few, many))


def _many(key: Key, count: Array, p: Array) -> Array:
    root = jnp.sqrt(p)
    z = jax.random.normal(key, p.shape, p.dtype)
    z = z - root * jnp.sum(root * z)  # of variance 1 − p, as a count is of count · p (1 − p)
    large = jnp.round(count * p + jnp.sqrt(count) * root * z)
    few = jnp.minimum(count * p, FEW) / count
    quantile = jax.scipy.stats.norm.cdf(z / jnp.sqrt(jnp.maximum(1 - p, 1e-6)))
    # Next to 1 rounding of the sums would decide.
    drawn = _binomial(jnp.minimum(quantile, 1 - 2e-6), count, few)
    found = jnp.where(count * p < FEW, drawn, jnp.maximum(large, 0.0))
    biggest = jnp.arange(len(p)) == jnp.argmax(p)
    rest = jnp.sum(jnp.where(biggest, 0.0, found))
    return jnp.where(biggest, jnp.maximum(count - rest, 0.0), found)


def _binomial(u: Array, count: Array, p: Array) -> Array:
    """The quantile u of Binomial(count, p) of mean up to 16, by adding probabilities up."""
    odds = p / (1 - p)
    term = jnp.exp(count * jnp.log1p(-p))
    total, found = term, (term < u).astype(u.dtype)
    for k in range(1, 3 * FEW):
        term = term * odds * (jnp.maximum(count - k + 1, 0.0) / k)
        total = total + term
        found = found + (total < u)
    return found


def poisson(key: Key, mean: Array) -> Array:
    """N ~ Poisson(mean), entry by entry, as floats; any mean ≥ 0.

    Below a mean of 16 by sums of probabilities from the far end, so that rare events have all
    their digits. Beyond, ⌊Q(W)⌋ for W normal and Q the expansion of Cornish and Fisher with five
    cumulants and the lattice's correction: within 3·10⁻⁵ in total variation at 16, and 1/mean as
    fast at least beyond, to the precision of floats.
    """
    uniform_key, normal_key = jax.random.split(key)
    mean = jnp.asarray(mean, jnp.result_type(float, mean))
    small, large = jnp.minimum(mean, FEW), jnp.maximum(mean, FEW)
    few = _counted(uniform_key, jnp.exp(-small), lambda i: small / i)
    many = _expanded(normal_key, large, large, large, large, large)
    return settled(jnp.where(mean < FEW, few, many))


def binomial(key: Key, count: Array, p: Array, q: Array | None = None) -> Array:
    """N ~ Binomial(count, p), entry by entry, as floats. Made as `poisson`, of the rarer outcome.

    Where p may be so close to 1 that 1 − p loses its digits, pass that as q.
    """
    uniform_key, normal_key = jax.random.split(key)
    dtype = jnp.result_type(float, p)
    q = 1 - p if q is None else q
    count, p, q = jnp.broadcast_arrays(*(jnp.asarray(v, dtype) for v in (count, p, q)))
    flipped = p > q
    p, q = jnp.minimum(p, q), jnp.maximum(p, q)
    mean = count * p
    share = jnp.minimum(p, FEW / jnp.maximum(count, FEW))  # only as large as the sums can take
    none = jnp.exp(count * jnp.log1p(-share))
    few = _counted(
        uniform_key,
        none,
        lambda i: share / (1 - share) * jnp.maximum(count - i + 1, 0.0) / i,
    )
    pq = p * q
    variance = jnp.maximum(mean * q, FEW / 2)
    cumulants = (variance * (q - p), variance * (1 - 6 * pq), variance * (q - p) * (1 - 12 * pq))
    many = _expanded(normal_key, mean, variance, *cumulants)
    rarer = jnp.minimum(jnp.where(mean < FEW, few, many), count)
    return settled(jnp.where(flipped, count - rarer, rarer))


def _counted(key: Key, none: Array, ratio) -> Array:
    """The number whose probabilities are `none` at 0 and ratio(i) times the last at i = 1, 2, …"""
    term, terms = none, []
    for i in range(1, 3 * FEW):
        term = term * ratio(i)
        terms.append(term)
    u = jax.random.uniform(key, (2, *none.shape), none.dtype)
    u = u[0] + jnp.finfo(none.dtype).eps * u[1]  # with the digits of what is near 0
    above, found = jnp.zeros_like(none), jnp.zeros_like(none)
    for term in reversed(terms):
        above = above + term
        found = found + (u < above)
    return found


def _expanded(key: Key, mean: Array, *cumulants: Array) -> Array:
    """⌊Q(W)⌋, W normal: a whole number with this mean and these cumulants, from second to fifth.

    A law on whole numbers is that of a smooth one at k + ½, of variance less by 1/12 and fourth
    cumulant more by 1/120.
    """
    second, third, fourth, fifth = cumulants
    w = jax.random.normal(key, mean.shape, mean.dtype)
    variance = second - 1 / 12
    spread = jnp.sqrt(variance)
    a, b = third / variance / spread, (fourth + 1 / 120) / variance**2
    c = fifth / variance**2 / spread
    w2 = w**2
    terms = w + a / 6 * (w2 - 1) + b / 24 * w * (w2 - 3) - a**2 / 36 * w * (2 * w2 - 5)
    terms += c / 120 * (w2**2 - 6 * w2 + 3) - a * b / 24 * (w2**2 - 5 * w2 + 2)
    terms += a**3 / 324 * (12 * w2**2 - 53 * w2 + 17)
    return jnp.maximum(jnp.floor(mean + (0.5 + spread * terms)), 0.0)


def settled(drawn: Array) -> Array:
    """`drawn`, computed once: compilers would draw anew for every use of it."""
    return jax.lax.optimization_barrier(drawn)


def _uniform(key: Key, shape: tuple[int, ...], dtype) -> Array:
    """Uniform in (0, 1): the middle of a cell, so that its logarithm is finite."""
    return jax.random.uniform(key, shape, dtype) + jnp.finfo(dtype).eps / 2
