"""The training loop: compiled scans over blocks of steps, with donated buffers."""

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from .._progress import training_bar
from .._types import Key
from . import ahead, hosts
from .checkpoints import Checkpoints
from .costs import Tracing, meter
from .data import Arrays, Example, Source, Stream
from .devices import Layout
from .metrics import Metrics

ONE_DEVICE = Layout()
AHEAD_STEPS, AHEAD_BYTES = 50, 2**24  # the most that is computed before it is needed


class NonFiniteError(ArithmeticError):
    """Training met a loss or a gradient that is not finite."""


class Losses(NamedTuple):
    """The mean loss of a batch, and each example's loss and time."""

    mean: Array
    each: Array
    tau: Array


# (params, key, batch), and where a batch is taken in parts, what picks the rows of one.
LossFn = Callable[..., Losses]


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
    accumulate: int = 1  # parts of a batch, taken one after the other
    profile: Path | None = None  # where to leave a trace of the device's work
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
    layout: Layout = ONE_DEVICE,
) -> PyTree:
    """Minimise the mean loss; returns the averaged weights, or the best with early stopping.

    `validation` is the loss to judge by, which may differ in its dropout, and the data held out;
    `monitor` is shown the step and the averaged weights at the same times.
    A step depends on its number and the key alone, and blocks are cut at the same steps whenever
    a run resumes: so it ends with the same bits, however often it was interrupted. On several
    devices, as `layout` says, sums are taken in another order: the rest is the same.
    """
    train_key, validation_key = jax.random.split(key)
    restore: Callable[[PyTree], PyTree] = _copied
    if settings.flat:
        params, restore = as_vector(params)
        loss_fn = of_vector(loss_fn, restore)
        validation = validation and (of_vector(validation[0], restore), validation[1])
    state = layout.place(initial_state(layout.place(params), settings))
    if checkpoints is not None:
        state = checkpoints.latest(state) or state
    source = source.placed(layout)
    advance = compile_advance(loss_fn, source, train_key, settings, layout)
    validate = _validate(validation, validation_key, settings, layout)

    def measured(state, block):
        loss, at = loss_of_step(loss_fn, source, train_key, settings, layout), state.step
        args = state.params, at, at, at, block
        rows = settings.batch_size
        if isinstance(source, Stream):
            rows = jax.tree.leaves(block)[0].shape[1]
        return meter(rows, layout.size, settings.accumulate, loss, *args)

    step, validated, stale = int(state.step), int(state.validated), int(state.stale)
    saved, unread = time.monotonic(), None
    writes = layout.hosts == 1 or hosts.first()

    with (
        Metrics(checkpoints.folder if checkpoints and writes else None, step) as metrics,
        training_bar(settings.steps, step, settings.progress if writes else False) as show,
        Tracing(settings.profile if writes else None) as tracing,
        checkpoints or contextlib.nullcontext(),
    ):
        try:
            while True:
                if settings.validates_at(step) and validated < step:
                    validated = step
                    if validate:
                        state, loss = validate(state)
                        stale, metrics.validation = int(state.stale), float(loss)
                    if monitor:
                        monitor(step, restore(layout.home(state.average)))
                stopped = settings.early_stopping is not None and stale >= settings.early_stopping
                if step >= settings.steps or stopped:
                    break
                length = min(settings.block, settings.steps - step)
                block = source.block(step, length)
                if metrics.meter is None:
                    metrics.meter = measured(state, block)
                tracing.begin(last=step + length == settings.steps)
                state, report = advance(state, block, length)
                tracing.end(report)
                # Read the last block's report while this one runs: the device need not wait.
                if unread is not None:
                    _read(unread, metrics, show)
                unread, step = (step, report), step + length
                if checkpoints and layout.agreed(
                    time.monotonic() - saved > settings.checkpoint_seconds
                ):
                    _read(unread, metrics, show)
                    checkpoints.save(step, state)
                    saved, unread = time.monotonic(), None
            if unread is not None:
                _read(unread, metrics, show)
        except KeyboardInterrupt:
            # A block cut short leaves no state; the last checkpoint is then where to resume.
            with contextlib.suppress(RuntimeError, NonFiniteError):
                if checkpoints and unread is not None and layout.hosts == 1:
                    _read(unread, metrics, show)
                    checkpoints.save(int(state.step), state)
            raise
        except jax.errors.JaxRuntimeError as error:
            if layout.hosts > 1:
                raise hosts.lost(error) from error
            raise
        if checkpoints:
            checkpoints.save(step, state)
    best = settings.early_stopping is not None and validate
    return restore(layout.home(state.best if best else state.average))


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
    return lambda vector, *args: loss_fn(restore(vector), *args)


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


def loss_of_step(loss_fn: LossFn, source: Source, key: Key, settings: Settings, layout: Layout):
    """A function (params, step, index, part, block) → (loss, worst τ) of a part of a batch."""

    def loss(params, step, index, part, block):
        batch_key, loss_key = jax.random.split(jax.random.fold_in(key, step))
        batch = layout.split(source.batch(block, index, batch_key, settings.batch_size))
        pick = functools.partial(_part, part, settings.accumulate)
        losses = loss_fn(params, loss_key, batch, *([pick] if settings.accumulate > 1 else []))
        return losses.mean, losses.tau[_worst(losses.each)]

    return loss


def compile_advance(
    loss_fn: LossFn, source: Source, key: Key, settings: Settings, layout: Layout = ONE_DEVICE
):
    """A compiled function (state, block, length) → (state, report).

    What does not depend on the weights is computed for several steps at once, as far as it takes
    no more than `AHEAD_BYTES`.
    """
    loss, parts = loss_of_step(loss_fn, source, key, settings, layout), settings.accumulate

    def body(state: State, ready, rest):
        (mean, worst_tau), gradient = _gradient(rest, state.params, ready, parts)
        updates, optimiser = settings.optimiser.update(gradient, state.optimiser, state.params)
        params = optax.apply_updates(state.params, updates)
        decay = jnp.minimum(settings.ema, (1 + state.step) / (10 + state.step))
        average = jax.tree.map(lambda a, p: a + (1 - decay) * (p - a), state.average, params)
        state = state._replace(
            step=state.step + 1, params=params, average=average, optimiser=optimiser
        )
        return layout.keep(state), layout.whole((mean, _norm(gradient), worst_tau))

    @functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
    def advance(state: State, block, length: int):
        counts = (state.step, state.step, state.step)
        prepare, rest = ahead.split(loss, state.params, *counts, block)
        one = parts * ahead.size(jax.eval_shape(prepare, *counts, block))
        if parts > 1:
            prepare = _each_part(prepare, parts)
        most = max(1, min(AHEAD_STEPS, layout.size * AHEAD_BYTES // max(one, 1)))
        chunk = max(n for n in range(1, most + 1) if length % n == 0)

        def several(state, start):
            each = jnp.arange(chunk)
            numbers = state.step + each, start + each, jnp.zeros_like(each)
            ready = jax.vmap(prepare, (0, 0, 0, None))(*numbers, block)
            return jax.lax.scan(functools.partial(body, rest=rest), state, ready)

        state, each = jax.lax.scan(several, state, jnp.arange(0, length, chunk))
        return state, Report(*map(jnp.ravel, each), layout.whole(_norm(state.params)))

    return advance


def _gradient(rest: Callable, params: PyTree, ready: PyTree, parts: int) -> tuple:
    """((loss, worst τ), gradient) of a batch: the means of its parts, one after the other."""
    value_and_grad = jax.value_and_grad(rest, has_aux=True)
    if parts == 1:
        return value_and_grad(params, ready)

    def add(total, part):
        (mean, worst_tau), gradient = value_and_grad(params, part)
        return jax.tree.map(lambda t, g: t + g / parts, total, gradient), (mean, worst_tau)

    gradient, (means, taus) = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), ready)
    return (jnp.mean(means), taus[_worst(means)]), gradient


def _each_part(prepare: Callable, parts: int) -> Callable:
    """What is ahead of each part of a batch, stacked; what they share is computed once."""

    def several(step, index, part, block):
        return jax.vmap(prepare, (None, None, 0, None))(
            step, index, jnp.arange(parts, dtype=step.dtype), block
        )

    return several


def _part(part: Array, parts: int, tree: PyTree) -> PyTree:
    """One row in `parts` of stacked arrays, so that every device has some of each part."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, parts, *leaf.shape[1:])[:, part], tree)


def _worst(each: Array) -> Array:
    return jnp.argmax(jnp.where(jnp.isfinite(each), each, jnp.inf))


def _copied(params: PyTree) -> PyTree:
    """The next block takes over the state's own arrays."""
    return jax.tree.map(jnp.copy, params)


def _norm(tree: PyTree) -> Array:
    return jnp.sqrt(sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree)))


def _validate(
    validation: tuple[LossFn, Arrays] | None, key: Key, settings: Settings, layout: Layout
):
    """A compiled function state → (state, loss of the averaged weights on all held-out data)."""
    if validation is None:
        return None
    loss_fn, held_out = validation
    held_out = held_out.placed(layout)
    n = min(len(held_out), settings.batch_size // settings.accumulate)
    # The same times and noise at every validation, and enough of them to compare losses by.
    batches = -(-max(len(held_out), 4096) // n)

    def rows(examples, index):
        at = (index * n + jnp.arange(n)) % len(held_out)
        return layout.split(jax.tree.map(lambda leaf: leaf[at], examples))

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
        return layout.keep(state), layout.whole(loss)

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
