"""The classifier two-sample test."""

import functools
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .classifiers import accuracy, fit_averaged, fit_until_flat
from .points import matrices

CLASSIFIERS = {"averaged": fit_averaged, "benchmark": fit_until_flat}


def c2st(
    key: PRNGKeyArray,
    samples: PyTree,
    reference: PyTree,
    *,
    folds: int = 5,
    classifier: Literal["averaged", "benchmark"] = "averaged",
) -> float:
    """Held-out accuracy of a classifier told to separate `samples` from `reference`.

    0.5 when the two laws cannot be told apart, 1 when they are separable. As in the benchmark of
    Lueckmann et al. (2021): both sets standardised by the reference's mean and standard deviation,
    a perceptron with two hidden layers of 10 d rectified units trained by Adam, and the mean
    accuracy over shuffled cross-validation folds. Unlike there, weights are averaged, decayed and
    chosen by a held-out tenth of the training folds (fifty looks in 2000 batches of 200): the
    benchmark's classifier overfits, which hides differences, so ours is the stricter judge. With
    `classifier="benchmark"` it is trained as there, for comparison with published figures.

    Points are arrays (n, ...), flattened a point; the leaves of a pytree are concatenated.
    """
    if classifier not in CLASSIFIERS:
        raise ValueError(f"classifier: choose from {', '.join(CLASSIFIERS)}, got {classifier!r}")
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
        CLASSIFIERS[classifier],
        jax.random.split(train_key, folds),
        jnp.asarray(parts),
        jnp.asarray(inputs, jnp.float32),
        jnp.asarray(labels, jnp.float32),
    )
    return float(jnp.mean(accuracies))


@functools.partial(jax.jit, static_argnums=0)
def _accuracies(fit, keys, parts, inputs, labels):
    """Held-out accuracy with each part in turn held out."""

    def one(key, i):
        others = (i + 1 + jnp.arange(len(parts) - 1)) % len(parts)
        params = fit(key, inputs, labels, parts[others].ravel())
        return accuracy(params, inputs, labels, parts[i])

    return jax.vmap(one)(keys, jnp.arange(len(parts)))
