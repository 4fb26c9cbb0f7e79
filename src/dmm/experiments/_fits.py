"""What experiments share about fitting: timing a fit, and choosing weights by held-out data."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmm

from ..datasets import Parts
from ..runs import Run


def timed_fit(
    run: Run, name: str, data: Any, *, monitor: Callable | None = None, **settings: Any
) -> tuple[dmm.Model, float]:
    """A model fitted in the run's folder of that name, and the seconds that a step of its training
    took; compiling and the monitor are left out."""
    ticks, watching = [(time.perf_counter(), 0)], 0.0

    def tick(step: int, model: dmm.Model) -> None:
        nonlocal watching
        jax.block_until_ready(model)
        now = time.perf_counter()
        ticks.append((now - watching, step))
        if monitor:
            monitor(step, model)
            watching += time.perf_counter() - now

    model = dmm.fit(data, monitor=tick, run=run.folder(name), **settings)
    known = [line["pace"] for line in run.metrics() if line.get("fit") == name]
    if known:  # the fit was finished before the run was resumed
        return model, known[0]
    # The first stretch also compiles, so it counts only where it is the only one.
    (start, first), (end, last) = ticks[min(1, len(ticks) - 2)], ticks[-1]
    pace = (end - start) / max(last - first, 1)
    run.log(fit=name, pace=pace)
    return model, pace


class Best:
    """The model that makes held-out points most likely of those it was shown, kept in a file.

    It looks at every fifth, and at the first. `likelihood` gives the log-likelihoods of points.
    """

    def __init__(
        self,
        path: Path,
        points: np.ndarray,
        *,
        every: int = 5,
        likelihood: Callable = lambda model, points: model.log_likelihood(points, steps=40),
    ):
        self.path, self.points, self.every, self.calls = path, points, every, 0
        self.likelihood = likelihood
        # A file from before an interruption stays unless a better model comes.
        self.level = self._level(dmm.load(path)) if path.exists() else -np.inf

    def consider(self, step: int, model: dmm.Model) -> None:
        """A `monitor` of `fit`."""
        self.calls += 1
        if self.calls % self.every and self.path.exists():
            return
        level = self._level(model)
        if level > self.level or not self.path.exists():
            self.level = level
            model.save(self.path)

    def _level(self, model: dmm.Model) -> float:
        return float(jnp.mean(self.likelihood(model, self.points)))


def kernel_mixture(process: Any, parts: Parts) -> jax.Array:
    """log of Σ_k w_k mean_i q_{τ_k}(x | x_i) at the test points, x_i the points to train on.

    The weights of the 25 widths, τ from 10⁻⁷ to 0.3, and of the uniform law are those that make
    the held-out points most likely. A baseline without any learning.
    """
    taus = jnp.geomspace(1e-7, 0.3, 25)
    train = jnp.asarray(parts.train)

    @jax.jit
    def logs(points):
        def at(x):
            every = jax.vmap(jax.vmap(process.log_transition, (None, 0, None)), (None, None, 0))
            kernels = jax.nn.logsumexp(every(x, train, taus), 1) - jnp.log(len(train))
            return jnp.append(kernels, process.reference.log_prob(x))

        return jax.lax.map(at, points, batch_size=32)

    held_out = logs(jnp.asarray(parts.validation))

    def improve(_, log_weights):
        shares = jax.nn.softmax(log_weights + held_out, 1)
        return jnp.log(jnp.maximum(shares.mean(0), 1e-4))[None]

    log_weights = jax.lax.fori_loop(0, 300, improve, jnp.zeros((1, held_out.shape[1])))
    log_weights = jax.nn.log_softmax(log_weights)
    return jax.nn.logsumexp(log_weights + logs(jnp.asarray(parts.test)), 1)
