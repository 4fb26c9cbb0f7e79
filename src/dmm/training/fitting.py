"""`fit`: from data on a space to a model."""

import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from .._checks import at_least, instance, positive, share
from .._types import Given, Key, Point
from ..learned import Learned
from ..model import Model, check_key, load
from ..networks import MLP, Observations, observe
from ..networks.flat import like
from ..objectives import DiscreteTime, Pooled, denoising, implicit
from ..objectives.pooled import BATCH
from ..parameterisations import Conditioned, Parameterisation, default_parameterisation
from ..processes import (
    HasDensity,
    Noising,
    Process,
    Tractable,
    default_process,
    supports,
)
from ..schedules import Geometric, Schedule, default_schedule, likelihood_weighting
from ..spaces import Space, Units, default_units
from . import hosts
from .checkpoints import Checkpoints
from .costs import profiled
from .data import Arrays, Example, Simulator, Source, Stream, check_examples
from .devices import Layout
from .devices import layout as layout_of
from .identity import classes_of, digest, identity_of, name_of
from .loop import Losses, LossFn, Settings, has_many_leaves, train


def fit(
    data: Point | Source,
    *,
    key: Key,
    space: Space | None = None,
    given: Given = None,
    process: Process | None = None,
    schedule: Schedule | None = None,
    times: Schedule | None = None,
    parameterisation: Parameterisation | Conditioned | None = None,
    network: Any = None,
    units: Units | None = None,
    observations: Observations | None = None,
    objective: Callable | None = None,
    weighting: Callable = likelihood_weighting,
    drop_given: float = 0.0,
    steps: int = 10_000,
    batch_size: int = 256,
    noisings: int = 1,
    learning_rate: float = 1e-3,
    warmup: int | None = None,
    clip: float = 10.0,
    weight_decay: float = 0.0,
    ema: float = 0.999,
    optimiser: optax.GradientTransformation | None = None,
    validation: float = 0.1,
    early_stopping: int | None = None,
    run: str | os.PathLike | None = None,
    checkpoint_seconds: float = 30.0,
    monitor: Callable[[int, Model], None] | None = None,
    block: int | None = None,
    devices: int | Sequence[Any] | None = None,
    shard_weights: bool = False,
    accumulate: int = 1,
    profile: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> Model:
    """Fit a denoising Markov model.

    **What**: `data` are points stacked along a leading axis (a tuple of such for a product), or a
    `Simulator`, or a `Stream`. `space` says where they live; `given` holds an observation a point
    for a conditional model, any pytree of stacked arrays.

    **How**: `process`, `schedule` (time grid and τ_min), `times` (the schedule that training times
    are drawn from, by importance with exact weights), `parameterisation`, `network` (an Equinox
    module, or a function of (key, inputs, outputs, given) that makes one), `units`,
    `observations` (how `given` enters networks; see `observe`) and `objective` are chosen from the
    space unless passed. `weighting` is `likelihood_weighting` or `variance_weighting`. With
    `drop_given` > 0 that share of observations is hidden in training, so that
    `sample(..., guidance=...)` can be used.

    **Training**: Adam with linear warm-up and cosine decay, gradients clipped to norm `clip`,
    weights decayed by `weight_decay` a unit of learning rate and averaged with rate `ema`; or any
    Optax `optimiser`. Each example of a batch is noised
    `noisings` times, each at a time of its own: worth it where an observation is dear to embed
    (`Embedded`). A share `validation` of the data is held out; with `early_stopping` training ends
    after that many validations (of about 50) without a better loss, and the best weights are
    returned. `monitor(step, model)` is called at the same times, with the averaged weights: to
    draw samples or keep figures as training goes on.

    **Runs**: with a folder `run`, training can be killed at any moment and called again to go on,
    to the same bits; the finished model is kept there as `model.dmm`.

    **Scale**: a batch is shared among all `devices` (a number or a list of them takes fewer), and
    those of all processes after `distribute`; with `shard_weights` the weights, their averages and
    what the optimiser keeps are too. With `accumulate` > 1 a batch is taken in so many parts, one
    after the other. None of this changes what is learned but by rounding. A profiler's trace of
    some steps is left in the folder `profile`.
    """
    key = check_key(key)
    positive(learning_rate=learning_rate, clip=clip)
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay: must not be negative, got {weight_decay}")
    at_least(0, warmup=0 if warmup is None else warmup)
    at_least(1, noisings=noisings, accumulate=accumulate)
    share(drop_given=drop_given, validation=validation, ema=ema)
    instance(Schedule, "dmm.Cosine()", schedule=schedule, times=times)
    if not isinstance(parameterisation, Conditioned):
        instance(Parameterisation, "dmm.Preconditioned()", parameterisation=parameterisation)
    instance(Units, "dmm.Identity()", units=units)
    instance(Observations, "dmm.networks.observe(given)", observations=observations)
    noising = _noising(space, process)
    source = _source(data, given, noising.data)
    settings = Settings(
        steps=steps,
        batch_size=batch_size,
        optimiser=optimiser or adam(learning_rate, warmup, clip, steps, weight_decay),
        ema=ema,
        early_stopping=early_stopping,
        block=(10 if isinstance(source, Stream) else 100) if block is None else block,
        checkpoint_seconds=checkpoint_seconds,
        progress=progress,
        accumulate=accumulate,
        profile=profiled(profile),
    )
    layout = layout_of(devices, shard_weights=shard_weights)
    objective = _objective(objective, noising)
    schedule = schedule or default_schedule(noising)
    times = _times(times, schedule)

    preview_key, split_key, network_key, train_key = jax.random.split(key, 4)
    preview = source.preview(preview_key)
    if isinstance(source, Simulator):
        preview = check_examples(noising.data, preview)
    in_arrays = isinstance(source, Arrays)
    _check_settings(settings, drop_given, preview.given, in_arrays and validation > 0)
    _check_batch(settings, layout, source, preview)
    if isinstance(parameterisation, Conditioned) and preview.given is None:
        raise ValueError(
            f"parameterisation: {type(parameterisation).__name__} looks at observations; pass "
            "given=..., or another"
        )
    if isinstance(objective, Pooled) and (noisings > 1 or preview.given is not None):
        raise ValueError(
            "objective: Pooled averages over independent points without observations, each noised "
            "once; pass objective=dmm.denoising, or no `given` and noisings=1"
        )
    if observations is not None:
        if preview.given is None:
            raise ValueError("observations: there is no `given` to encode; pass given=... too")
        observations.check(preview.given)
    units = units or default_units(noising.data, preview.x)
    model = Model(
        process=noising,
        schedule=schedule,
        times=times,
        parameterisation=parameterisation or default_parameterisation(noising),
        network=None,
        units=units,
        observations=None if preview.given is None else observations or observe(preview.given),
        given_like=like(jax.tree.map(lambda leaf: leaf[0], preview.given)),
        drop_given=drop_given,
    )
    model = _with_network(model, network, network_key, preview)

    if isinstance(source, Stream):
        # Of a batch each process has its own rows.
        own = jax.tree.map(lambda leaf: leaf[: len(leaf) // layout.hosts], preview)
        source = source.checked(_batch_check(noising.data, own, model.observations))

    checkpoints = None
    if run is not None:
        identity = identity_of(settings, model, objective, weighting, data, given, key)
        identity |= {"validation": validation, "noisings": noisings}
        if observations is not None:
            encoding = jax.tree.leaves(observations)
            identity["observations"] = digest(str(jax.tree.structure(observations)), encoding)
        if shard_weights:
            identity["shard_weights"] = True  # weights are then not kept as one vector
        if optimiser is None:
            identity |= {"learning_rate": learning_rate, "warmup": warmup, "clip": clip}
            identity |= {"weight_decay": weight_decay} if weight_decay else {}
        checkpoints = Checkpoints(run, identity)
        finished = Path(run) / "model.dmm"
        if finished.exists():
            checkpoints.close()
            return load(finished, classes=classes_of(model))
    held_out = None
    if isinstance(source, Arrays) and validation > 0 and len(source) > 1:
        source, held_out = source.split(split_key, validation)

    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    flat = optimiser is None and not shard_weights and has_many_leaves(params)
    settings = dataclasses.replace(settings, flat=flat)
    loss = functools.partial(loss_function, model, static, objective, weighting, noisings=noisings)
    loss_fn, plain = loss(), loss(dropout=False)

    def with_weights(params) -> Model:
        return _replace_network(model, eqx.combine(params, static))

    params = train(
        params,
        loss_fn,
        source,
        train_key,
        settings,
        validation=None if held_out is None else (plain, held_out),
        checkpoints=checkpoints,
        monitor=monitor and (lambda step, params: monitor(step, with_weights(params))),
        layout=layout,
    )
    fitted = with_weights(params)
    if run is not None and hosts.first():
        fitted.save(Path(run) / "model.dmm")
    return fitted


def loss_function(
    model: Model, static: Any, objective: Callable, weighting: Callable,
    *, noisings: int = 1, dropout: bool = True,
) -> LossFn:  # fmt: skip
    """The weighted objective over a batch, each noising of each example at a time of its own."""

    def loss_fn(params, key, batch: Example, pick: Callable = lambda rows: rows) -> Losses:
        current = _replace_network(model, eqx.combine(params, static))
        n = len(jax.tree.leaves(batch.x)[0])
        times_key, drop_key, key = jax.random.split(key, 3)
        tau, weight = model.times.draw(times_key, n * noisings)
        present = jax.random.bernoulli(drop_key, 1 - model.drop_given, (n,)).astype(tau.dtype)
        keys = jax.random.split(key, n * noisings)
        # All is drawn for the whole batch, of which this may be one part.
        batch, present, keys, tau, weight = pick((batch, present, keys, tau, weight))
        n = len(present)
        # What does not depend on the time is computed once for all noisings of an example.
        x0 = jax.vmap(model.units.forward)(batch.x)
        observed = jax.vmap(current.observed, axis_size=n)(batch.given)

        def one(key, x0, observed, present, tau):
            key, dropout_key = jax.random.split(key)
            score = Learned(current, observed, present, dropout_key if dropout else None)
            return objective(model.process, score, key, x0, tau)

        # Times are stratified: an example gets one of every n in a row. One flat batch: products
        # of stacked ones take a third longer on a CPU.
        examples = _copies((x0, observed, present), noisings)
        each = jax.vmap(one, axis_name=BATCH)(keys, *examples, tau)
        lam = jax.vmap(lambda t: weighting(model.process, model.schedule, t))(tau)
        return Losses(jnp.mean(weight * lam * each), each, tau)

    return loss_fn


def _copies(stacked: Any, number: int) -> Any:
    """A stack of points, and again, as many times."""
    return jax.tree.map(lambda leaf: jnp.concatenate([leaf] * number), stacked)


def _replace_network(model: Model, network: Any) -> Model:
    return eqx.tree_at(lambda m: m.network, model, network, is_leaf=lambda leaf: leaf is None)


def _with_network(model: Model, network: Any, key: Key, preview: Example) -> Model:
    """The model with its network: made if need be, and checked on one example."""
    x, given = jax.tree.map(lambda leaf: leaf[0], preview)
    process, head = model.process, model.parameterisation

    def shapes(x, given):
        state = process.draw(jax.random.key(0), model.units.forward(x), 1.0)
        encoded = model.observations.encode(given) if model.observations else None
        made = head.given(encoded, 1.0) if isinstance(head, Conditioned) else head
        return made.inputs(process, state, 1.0), made.outputs(process, state), encoded

    inputs, outputs, encoded = jax.eval_shape(shapes, x, given)
    if network is None:
        network = MLP
    if not callable(network):
        raise ValueError(
            "network: expected an Equinox module, or a function of (key, inputs, outputs, given) "
            "that makes one"
        )
    if not isinstance(network, eqx.Module):
        network = network(key, inputs, outputs, encoded)
    made_model = _replace_network(model, network)

    def called(inputs, given):
        _, read = made_model.observed(given) or (None, None)
        return network(inputs, jnp.ones(()), read, jnp.ones(()))

    try:
        made = jax.eval_shape(called, inputs, given)
    except TypeError as error:
        raise ValueError(
            f"network: could not be called with (inputs, tau, given, present): {error}"
        ) from error
    wanted, found = (jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (outputs, made))
    if wanted != found:
        raise ValueError(
            f"network: returns arrays of shape {found} where the parameterisation needs {wanted}"
        )
    return made_model


def _noising(space: Space | None, process: Process | None) -> Any:
    instance(Space, "dmm.Euclidean(2)", space=space)
    instance(Process, "dmm.OrnsteinUhlenbeck(dmm.Euclidean(2))", process=process)
    if process is None:
        if space is None:
            raise ValueError("space: say where the data live, as in space=dmm.Euclidean(2)")
        process = default_process(space)
    if not isinstance(process, Noising):
        raise ValueError(
            f"process: {type(process).__name__} does not say how to noise data; derive it from "
            "dmm.Simulated too and give it a horizon, a reference and substeps"
        )
    if space is not None and space != process.data:
        raise ValueError(f"space: {space} is not the process's, {process.data}; pass one of them")
    return process


def _source(data: Point | Source, given: Given, space: Space) -> Source:
    if isinstance(data, Source):
        if given is not None:
            raise ValueError("given: a simulator or stream gives its own, in dmm.Example(x, given)")
        return data.checked(_batch_check(space)) if isinstance(data, Stream) else data
    if callable(data):
        raise ValueError("data: wrap a function that draws points in dmm.Simulator(...)")
    return Arrays(check_examples(space, Example(data, given)))


def _batch_check(
    space: Space, first: Example | None = None, observations: Observations | None = None
) -> Callable[[Example, int], Example]:
    """A check of a stream's batches: points of the space, each batch like the first."""

    def check(example: Example, step: int) -> Example:
        checked = check_examples(space, example)
        if first is None:
            return checked
        for name, wanted, found in zip(("data", "given"), like(first), like(checked), strict=True):
            if wanted != found:
                raise ValueError(
                    f"{name}: the batch of step {step} has another shape or type than the first, "
                    f"{found} against {wanted}; make all batches alike"
                )
        if observations is not None:
            observations.check(checked.given)
        return checked

    return check


def _objective(objective: Callable | None, process: Noising) -> Callable:
    if objective is None:
        return denoising if isinstance(process, Tractable) else implicit
    if not callable(objective) or isinstance(objective, type):
        raise ValueError("objective: expected a function, as dmm.denoising or dmm.DiscreteTime()")
    exact = isinstance(process, Tractable) if objective is denoising else True
    if isinstance(objective, DiscreteTime):
        exact = supports(process, HasDensity)
    if not exact:
        raise ValueError(
            f"objective: {type(process).__name__} is not exact enough for {name_of(objective)}; "
            "pass objective=dmm.implicit"
        )
    return objective


def _times(times: Schedule | None, schedule: Schedule) -> Schedule:
    low, high = float(schedule.tau_min), float(schedule.tau_max)
    if times is None:
        return Geometric(low, high)
    if float(times.tau_min) > 1.001 * low or float(times.tau_max) < 0.999 * high:
        raise ValueError(
            f"times: draws τ in [{float(times.tau_min):.3g}, {float(times.tau_max):.3g}] but the "
            f"schedule samples in [{low:.3g}, {high:.3g}]; make it cover that"
        )
    return times


def adam(
    learning_rate: float, warmup: int | None, clip: float, steps: int, weight_decay: float = 0.0
):
    """Adam with clipped gradients, linear warm-up and cosine decay; weights decay."""
    warmup = min(1000, steps // 10) if warmup is None else warmup
    rate = optax.warmup_cosine_decay_schedule(0.0, learning_rate, warmup, max(steps, warmup + 1))
    adam = optax.adamw(rate, weight_decay=weight_decay) if weight_decay else optax.adam(rate)
    return optax.chain(optax.clip_by_global_norm(clip), adam)


def _check_batch(settings: Settings, layout: Layout, source: Source, preview: Example) -> None:
    """Refuse batches that do not divide; a stream's are as large as they come."""
    name, rows = "batch_size", settings.batch_size
    if isinstance(source, Stream):
        name, rows = "data", len(jax.tree.leaves(preview.x)[0])
    layout.check_batch(name, rows, settings.accumulate)


def _check_settings(settings: Settings, drop_given: float, given: Given, held_out: bool) -> None:
    at_least(1, steps=settings.steps, batch_size=settings.batch_size, block=settings.block)
    if drop_given and given is None:
        raise ValueError("drop_given: there is no `given` to drop; leave it out or pass given=...")
    if settings.early_stopping is not None:
        at_least(1, early_stopping=settings.early_stopping)
        if not held_out:
            raise ValueError("early_stopping: needs data in arrays and validation > 0 to judge by")
