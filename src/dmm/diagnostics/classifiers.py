"""Perceptrons that tell two sets of points apart, for the classifier two-sample test.

Two hidden layers of 10 d rectified units, trained by Adam on batches of 200. Each function takes a
key, all standardised points, their labels and the rows to train on.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

BATCH = 200


def fit_averaged(key, inputs, labels, rows, *, rounds=50, steps=40):
    """Averaged weights of rounds × steps batches: those most accurate on a held-out tenth."""
    held = max(1, len(rows) // 10)
    train, held_out = rows[held:], rows[:held]
    init_key, key = jax.random.split(key)
    sizes = _sizes(inputs)
    params = [
        (jnp.sqrt(2 / n) * jax.random.normal(k, (n, m)), jnp.zeros(m))
        for k, n, m in zip(jax.random.split(init_key, 3), sizes[:-1], sizes[1:], strict=True)
    ]
    params[-1] = jax.tree.map(jnp.zeros_like, params[-1])  # start undecided
    adam = optax.adamw(1e-3, weight_decay=1.0)

    def step(carry, key):
        params, average, state = carry
        batch = train[jax.random.randint(key, (min(BATCH, len(train)),), 0, len(train))]
        gradient = jax.grad(_loss)(params, inputs[batch], labels[batch])
        updates, state = adam.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        average = jax.tree.map(lambda a, p: a + 0.01 * (p - a), average, params)
        return (params, average, state), None

    def round_(carry, key):
        current, best, most = carry
        current, _ = jax.lax.scan(step, current, jax.random.split(key, steps))
        value = accuracy(current[1], inputs, labels, held_out)
        best = jax.tree.map(lambda a, b: jnp.where(value > most, a, b), current[1], best)
        return (current, best, jnp.maximum(value, most)), None

    start = ((params, params, adam.init(params)), params, jnp.zeros(()))
    return jax.lax.scan(round_, start, jax.random.split(key, rounds))[0][1]


class _Training(NamedTuple):
    params: list
    state: tuple
    epoch: jax.Array
    best: jax.Array
    stale: jax.Array


def fit_until_flat(
    key, inputs, labels, rows, *, epochs=10_000, patience=10, tolerance=1e-4, decay=1e-4
):
    """The classifier of Lueckmann et al. (2021): scikit-learn's `MLPClassifier`, but for its
    layers and epochs by its defaults.

    Whole epochs over shuffled rows, until the mean loss has not fallen by the tolerance for more
    than `patience` of them. What a last batch lacks to a full one is left out of an epoch.
    """
    init_key, key = jax.random.split(key)
    size, adam = min(BATCH, len(rows)), optax.adam(1e-3)
    params = _glorot(init_key, _sizes(inputs), inputs.dtype)

    def decayed(params, batch):
        squares = sum(jnp.sum(weight**2) for weight, _ in params)
        return _loss(params, inputs[batch], labels[batch]) + 0.5 * decay * squares / size

    def step(carry, batch):
        params, state = carry
        loss, gradient = jax.value_and_grad(decayed)(params, batch)
        updates, state = adam.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), loss

    def one_epoch(now: _Training) -> _Training:
        order = jax.random.permutation(jax.random.fold_in(key, now.epoch), rows)
        batches = order[: len(rows) // size * size].reshape(-1, size)
        (params, state), losses = jax.lax.scan(step, (now.params, now.state), batches)
        loss = jnp.mean(losses)
        stale = jnp.where(loss > now.best - tolerance, now.stale + 1, 0)
        return _Training(params, state, now.epoch + 1, jnp.minimum(loss, now.best), stale)

    def goes_on(now: _Training):
        return (now.epoch < epochs) & (now.stale <= patience)

    zero = jnp.zeros((), int)
    start = _Training(params, adam.init(params), zero, jnp.asarray(jnp.inf, inputs.dtype), zero)
    return jax.lax.while_loop(goes_on, one_epoch, start).params


def accuracy(params, inputs, labels, rows):
    """The share of rows named right."""
    return jnp.mean((_logits(params, inputs[rows]) > 0) == (labels[rows] > 0.5))


def _sizes(inputs) -> tuple[int, ...]:
    d = inputs.shape[1]
    return d, 10 * d, 10 * d, 1


def _glorot(key, sizes, dtype):
    """Weights and biases uniform within √(6/(inputs + outputs))."""
    params = []
    for n, m in itertools.pairwise(sizes):
        weight_key, bias_key, key = jax.random.split(key, 3)
        bound = (6 / (n + m)) ** 0.5
        weight = jax.random.uniform(weight_key, (n, m), dtype, -bound, bound)
        params.append((weight, jax.random.uniform(bias_key, (m,), dtype, -bound, bound)))
    return params


def _loss(params, x, y):
    return jnp.mean(optax.sigmoid_binary_cross_entropy(_logits(params, x), y))


def _logits(params, x):
    for weight, bias in params[:-1]:
        x = jax.nn.relu(x @ weight + bias[None])
    weight, bias = params[-1]
    return (x @ weight + bias[None])[:, 0]
