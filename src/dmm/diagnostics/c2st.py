"""The classifier two-sample test."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from .points import matrices


def c2st(key: PRNGKeyArray, samples: PyTree, reference: PyTree, *, folds: int = 5) -> float:
    """Held-out accuracy of a classifier told to separate `samples` from `reference`.

    0.5 when the two laws cannot be told apart, 1 when they are separable. As in the benchmark of
    Lueckmann et al. (2021): both sets standardised by the reference's mean and standard deviation,
    a perceptron with two hidden layers of 10 d rectified units trained by Adam, and the mean
    accuracy over shuffled cross-validation folds. Unlike there, weights are averaged, decayed and
    chosen by a held-out tenth of the training folds (fifty looks in 2000 batches of 200): the
    benchmark's classifier overfits, which hides differences, so ours is the stricter judge.

    Points are arrays (n, ...), flattened a point; the leaves of a pytree are concatenated.
    """
    x, y = matrices(samples, reference)
    if len(x) != len(y):
        raise ValueError(
            f"samples hold {len(x)} points and reference {len(y)}, so that always naming the "
            f"larger set would beat 0.5: cut both to {min(len(x), len(y))}"
        )
    if not 2 <= folds <= len(x):
        raise ValueError(f"folds must lie between 2 and the number of points {len(x)}, not {folds}")
    mean, scale = y.mean(axis=0), y.std(axis=0, ddof=1)
    # A coordinate constant in the reference keeps its own unit: any departure from it shows.
    scale = np.where(scale > 0, scale, 1.0)
    inputs = (np.concatenate([x, y]) - mean) / scale
    labels = np.repeat([0, 1], len(x))
    order_key, train_key = jax.random.split(key)
    order = np.asarray(jax.random.permutation(order_key, len(inputs)))
    parts = np.stack(np.split(order[: len(order) // folds * folds], folds))
    accuracies = _accuracies(
        jax.random.split(train_key, folds),
        jnp.asarray(parts),
        jnp.asarray(inputs, jnp.float32),
        jnp.asarray(labels, jnp.float32),
    )
    return float(jnp.mean(accuracies))


@jax.jit
def _accuracies(keys, parts, inputs, labels):
    """Held-out accuracy with each part in turn held out."""

    def one(key, i):
        others = (i + 1 + jnp.arange(len(parts) - 1)) % len(parts)
        train = parts[others].ravel()
        held = max(1, len(train) // 10)
        params = _fit(key, inputs, labels, train[held:], train[:held])
        return _accuracy(params, inputs, labels, parts[i])

    return jax.vmap(one)(keys, jnp.arange(len(parts)))


def _fit(key, inputs, labels, train, held_out, *, rounds=50, steps=40, batch=200):
    """Averaged weights of rounds × steps batches: those most accurate on the held-out tenth."""
    d = inputs.shape[1]
    sizes = (d, 10 * d, 10 * d, 1)
    init_key, key = jax.random.split(key)
    params = [
        (jnp.sqrt(2 / n) * jax.random.normal(k, (n, m)), jnp.zeros(m))
        for k, n, m in zip(jax.random.split(init_key, 3), sizes[:-1], sizes[1:], strict=True)
    ]
    params[-1] = jax.tree.map(jnp.zeros_like, params[-1])  # start undecided
    adam = optax.adamw(1e-3, weight_decay=1.0)

    def loss(params, rows):
        logits = _logits(params, inputs[rows])
        return jnp.mean(optax.sigmoid_binary_cross_entropy(logits, labels[rows]))

    def step(carry, key):
        params, average, state = carry
        rows = train[jax.random.randint(key, (min(batch, len(train)),), 0, len(train))]
        updates, state = adam.update(jax.grad(loss)(params, rows), state, params)
        params = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda a, p: a + 0.01 * (p - a), average, params)
        return (params, average, state), None

    def round_(carry, key):
        current, best, most = carry
        current, _ = jax.lax.scan(step, current, jax.random.split(key, steps))
        value = _accuracy(current[1], inputs, labels, held_out)
        best = jax.tree.map(lambda a, b: jnp.where(value > most, a, b), current[1], best)
        return (current, best, jnp.maximum(value, most)), None

    start = ((params, params, adam.init(params)), params, jnp.zeros(()))
    return jax.lax.scan(round_, start, jax.random.split(key, rounds))[0][1]


def _accuracy(params, inputs, labels, rows):
    return jnp.mean((_logits(params, inputs[rows]) > 0) == (labels[rows] > 0.5))


def _logits(params, x):
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias[None])
    weight, bias = params[-1]
    return (x @ weight + bias[None])[:, 0]
