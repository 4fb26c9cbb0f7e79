"""The training loop: compiled scans over blocks of steps, with donated buffers."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._progress import training_bar
from .._types import Key
from . import ahead
from .checkpoints import Checkpoints
from .data import Arrays, Example, Source
from .metrics import Metrics

AHEAD_STEPS, AHEAD_BYTES = 50, 2**24  # the most that is computed before it is needed


class NonFiniteError(ArithmeticError):
    """Training met a loss or a gradient that is not finite."""


class Losses(NamedTuple):
    """The mean loss of a batch, and each example's loss and time."""

    mean: Array
    each: Array
    tau: Array


LossFn = Callable[[PyTree, Key, Example], Losses]


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train. `block` steps make one compiled call; everything else falls between blocks."""

    steps: int
    batch_size: int
    optimiser: optax.GradientTransformation
    ema: float = 0.999
    early_stopping: int | None = None
    validations: int = 50
    block: int = 100
    checkpoint_seconds: float = 30.0
    progress: bool | None = None
    flat: bool = False  # train the weights as one vector; not for optimisers that look at leaves

    def validates_at(self, step: int) -> bool:
        """About `validations` times in all, at ends of blocks and after the last step."""
        blocks = max(1, self.steps // (self.block * self.validations))
        return step == self.steps or (step > 0 and step % (blocks * self.block) == 0)


class State(NamedTuple):
    """All that training carries from step to step, and all that a checkpoint holds."""

    step: Array
    params: PyTree
    average: PyTree
    optimiser: PyTree
    best: PyTree
    best_loss: Array
    validated: Array  # the step of the last validation
    stale: Array  # validations since the best one


class Report(NamedTuple):
    """What the steps of a block tell the host."""

    loss: Array
    gradient: Array
    worst_tau: Array
    weights: Array  # their norm after the last step: at each it would be a pass more over all


def train(
    params: PyTree,
    loss_fn: LossFn,
    source: Source,
    key: Key,
    settings: Settings,
    *,
    validation: tuple[LossFn, Arrays] | None = None,
    checkpoints: Checkpoints | None = None,
    monitor: Callable[[int, PyTree], None] | None = None,
) -> PyTree:
    """Minimise the mean loss; returns the averaged weights, or the best with early stopping.

    `validation` is the loss to judge by, which may differ in its dropout, and the data held out;
    `monitor` is shown the step and the averaged weights at the same times.
    A step depends on its number and the key alone, and blocks are cut at the same steps whenever
    a run resumes: so it ends with the same bits, however often it was interrupted.
    """
    train_key, validation_key = jax.random.split(key)
    restore: Callable[[PyTree], PyTree] = _copied
    if settings.flat:
        params, restore = as_vector(params)
        loss_fn = of_vector(loss_fn, restore)
        validation = validation and (of_vector(validation[0], restore), validation[1])
    state = initial_state(params, settings)
    if checkpoints is not None:
        state = checkpoints.latest(state) or state
    advance = compile_advance(loss_fn, source, train_key, settings)
    validate = _validate(validation, validation_key, settings)
    step, validated, stale = int(state.step), int(state.validated), int(state.stale)
    saved, unread = time.monotonic(), None

    with (
        Metrics(checkpoints.folder if checkpoints else None, step) as metrics,
        training_bar(settings.steps, step, settings.progress) as show,
        contextlib.closing(checkpoints) if checkpoints else contextlib.nullcontext(),
    ):
        try:
            while True:
                if settings.validates_at(step) and validated < step:
                    validated = step
                    if validate:
                        state, loss = validate(state)
                        stale, metrics.validation = int(state.stale), float(loss)
                    if monitor:
                        monitor(step, restore(state.average))
                stopped = settings.early_stopping is not None and stale >= settings.early_stopping
                if step >= settings.steps or stopped:
                    break
                length = min(settings.block, settings.steps - step)
                state, report = advance(state, source.block(step, length), length)
                # Read the last block's report while this one runs: the device need not wait.
                if unread is not None:
                    _read(unread, metrics, show)
                unread, step = (step, report), step + length
                if checkpoints and time.monotonic() - saved > settings.checkpoint_seconds:
                    _read(unread, metrics, show)
                    checkpoints.save(step, state)
                    saved, unread = time.monotonic(), None
            if unread is not None:
                _read(unread, metrics, show)
        except KeyboardInterrupt:
            # A block cut short leaves no state; the last checkpoint is then where to resume.
            with contextlib.suppress(RuntimeError, NonFiniteError):
                if checkpoints and unread is not None:
                    _read(unread, metrics, show)
                    checkpoints.save(int(state.step), state)
            raise
        if checkpoints:
            checkpoints.save(step, state)
    best = settings.early_stopping is not None and validate
    return restore(state.best if best else state.average)


def has_many_leaves(params: PyTree) -> bool:
    """Whether to train as one vector: with few leaves, cutting it up costs more than it saves."""
    return len(jax.tree.leaves(params)) > 32


def as_vector(params: PyTree) -> tuple[Array, Callable[[Array], PyTree]]:
    """All weights in one vector, and the way back.

    Filled up to a multiple of 16: on CPUs a vector of odd length makes a step take twice as long.
    """
    vector, restore = ravel_pytree(params)
    size = len(vector)
    return jnp.pad(vector, (0, -size % 16)), lambda filled: restore(filled[:size])


def of_vector(loss_fn: LossFn, restore: Callable[[Array], PyTree]) -> LossFn:
    """The loss of weights in one vector.

    What an optimiser does is then a few kernels, not a few a leaf: on a GPU each takes some
    microseconds, and a U-Net has nearly two hundred leaves.
    """
    return lambda vector, key, batch: loss_fn(restore(vector), key, batch)


def initial_state(params: PyTree, settings: Settings) -> State:
    """The state before the first step."""
    # The loop donates its buffers: the state owns copies, none shared with the caller's.
    copy = functools.partial(jax.tree.map, jnp.array)
    return State(
        step=jnp.zeros((), jnp.int32),
        params=copy(params),
        average=copy(params),
        optimiser=settings.optimiser.init(copy(params)),
        best=copy(params),
        best_loss=jnp.full((), jnp.inf, jnp.result_type(float)),
        validated=jnp.zeros((), jnp.int32),
        stale=jnp.zeros((), jnp.int32),
    )


def compile_advance(loss_fn: LossFn, source: Source, key: Key, settings: Settings):
    """A compiled function (state, block, length) → (state, report).

    What does not depend on the weights is computed for several steps at once, as far as it takes
    no more than `AHEAD_BYTES`.
    """

    def loss(params, step, index, block):
        batch_key, loss_key = jax.random.split(jax.random.fold_in(key, step))
        batch = source.batch(block, index, batch_key, settings.batch_size)
        losses = loss_fn(params, loss_key, batch)
        worst = jnp.argmax(jnp.where(jnp.isfinite(losses.each), losses.each, jnp.inf))
        return losses.mean, losses.tau[worst]

    def body(state: State, ready, rest):
        value_and_grad = jax.value_and_grad(rest, has_aux=True)
        (mean, worst_tau), gradient = value_and_grad(state.params, ready)
        updates, optimiser = settings.optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, updates)
        decay = jnp.minimum(settings.ema, (1 + state.step) / (10 + state.step))
        average = jax.tree.map(lambda a, p: a + (1 - decay) * (p - a), state.average, params)
        state = state._replace(
            step=state.step + 1, params=params, average=average, optimiser=optimiser
        )
        return state, (mean, _norm(gradient), worst_tau)

    @functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
    def advance(state: State, block, length: int):
        prepare, rest = ahead.split(loss, state.params, state.step, state.step, block)
        one = ahead.size(jax.eval_shape(prepare, state.step, state.step, block))
        most = max(1, min(AHEAD_STEPS, AHEAD_BYTES // max(one, 1)))
        chunk = max(n for n in range(1, most + 1) if length % n == 0)

        def several(state, start):
            each = jnp.arange(chunk)
            ready = jax.vmap(prepare, (0, 0, None))(state.step + each, start + each, block)
            return jax.lax.scan(functools.partial(body, rest=rest), state, ready)

        state, each = jax.lax.scan(several, state, jnp.arange(0, length, chunk))
        return state, Report(*map(jnp.ravel, each), _norm(state.params))

    return advance


def _copied(params: PyTree) -> PyTree:
    """The next block takes over the state's own arrays."""
    return jax.tree.map(jnp.copy, params)


def _norm(tree: PyTree) -> Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def _validate(validation: tuple[LossFn, Arrays] | None, key: Key, settings: Settings):
    """A compiled function state → (state, loss of the averaged weights on all held-out data)."""
    if validation is None:
        return None
    loss_fn, held_out = validation
    n = min(len(held_out), settings.batch_size)
    # The same times and noise at every validation, and enough of them to compare losses by.
    batches = -(-max(len(held_out), 4096) // n)

    def rows(examples, index):
        at = (index * n + jnp.arange(n)) % len(held_out)
        return jax.tree.map(lambda leaf: leaf[at], examples)

    @functools.partial(jax.jit, donate_argnums=0)
    def validate(state: State, examples: Example):
        def one(index):
            return loss_fn(
                state.average, jax.random.fold_in(key, index), rows(examples, index)
            ).mean

        loss = jnp.mean(jax.lax.map(one, jnp.arange(batches)))
        better = loss < state.best_loss
        best = jax.tree.map(lambda a, b: jnp.where(better, a, b), state.average, state.best)
        state = state._replace(
            best=best,
            best_loss=jnp.where(better, loss, state.best_loss).astype(state.best_loss.dtype),
            validated=state.step,
            stale=jnp.where(better, 0, state.stale + 1),
        )
        return state, loss

    return lambda state: validate(state, held_out.examples)


def _read(unread: tuple[int, Report], metrics: Metrics, show) -> None:
    """Log a block's losses; stop at the first that is not finite."""
    start, report = unread
    loss, gradient = np.asarray(report.loss), np.asarray(report.gradient)
    values = {"loss": loss, "gradient": gradient}
    if np.isfinite(loss + gradient).all():  # then the last update alone can have gone wrong
        values = {"update": np.append(np.zeros(len(loss) - 1), report.weights)}
    bad = np.flatnonzero(~np.isfinite(sum(values.values())))
    if len(bad):
        what = next(name for name, value in values.items() if not np.isfinite(value[bad[0]]))
        raise NonFiniteError(
            f"the {what} is not finite at step {start + bad[0]}, worst at τ = "
            f"{float(report.worst_tau[bad[0]]):.3g}. Likely causes: a learning rate too high "
            "(lower learning_rate or clip), outliers in the data, or a schedule whose τ_min is too "
            "small. The last good checkpoint, if there is a run folder, is kept."
        )
    step = start + len(loss)
    show(step, float(loss.mean()), metrics.validation)
    metrics.log(step, float(loss.mean()), float(gradient.mean()))
