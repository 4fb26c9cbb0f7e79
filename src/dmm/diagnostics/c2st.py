"""The classifier two-sample test."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from .points import matrices


def c2st(key: PRNGKeyArray, samples: PyTree, reference: PyTree, *, folds: int = 5) -> float:
    """Held-out accuracy of a classifier told to separate `samples` from `reference`.

    0.5 when the two laws cannot be told apart, 1 when they are separable. As in the benchmark of
    Lueckmann et al. (2021): both sets standardised by the reference's mean and standard deviation,
    a perceptron with two hidden layers of 10 d rectified units trained by Adam, and the mean
    accuracy over shuffled cross-validation folds.

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
    seed = int(jax.random.randint(key, (), 0, np.iinfo(np.int32).max, dtype=jnp.int32))
    return _accuracy(inputs.astype(np.float32), labels, folds, seed)


def _accuracy(inputs: np.ndarray, labels: np.ndarray, folds: int, seed: int) -> float:
    """Mean accuracy over the folds; float32 inputs make scikit-learn train in float32."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier

    width = 10 * inputs.shape[1]
    classifier = MLPClassifier(
        hidden_layer_sizes=(width, width),
        activation="relu",
        solver="adam",
        max_iter=1000,
        random_state=seed,
    )
    split = KFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(np.mean(cross_val_score(classifier, inputs, labels, cv=split)))
