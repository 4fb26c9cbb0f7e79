"""The façade: a process, its schedule, and a network that knows its score."""

import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import storage
from ._batches import batched
from ._checks import at_least, instance, numbers
from ._types import Given, Key, Point, Score, Time
from .learned import Learned, Observed
from .likelihood import elbo, flow_log_likelihood, unexplained
from .networks import Observations, Reader
from .parameterisations import Conditioned, Parameterisation
from .parameterisations.chains import PredictsStates
from .processes import HasDensity, Noising, Tractable, supports
from .processes.coordinates import whole
from .samplers import Bridge, Clamped, Sampler, Trapezoidal, default_sampler, simulate
from .samplers.unmasking import Unmasking, has_masks
from .schedules import Schedule, ScheduleGrid
from .spaces import Units

__all__ = ["Model", "load"]


class Model(eqx.Module):
    """A fitted denoising Markov model. Points and densities are in the user's units."""

    process: Noising
    schedule: Schedule
    times: Schedule
    parameterisation: Parameterisation | Conditioned
    network: Any
    units: Units
    observations: Observations | None
    given_like: Any = eqx.field(static=True)
    drop_given: float = eqx.field(static=True, default=0.0)

    def score(
        self, x: Point, tau: Time, given: Given = None, present: Array | float = 1.0
    ) -> Score:
        """The score at a state x, in the process's units; frozen below the schedule's τ_min."""
        return whole(Learned(self, self.observed(given), present)(x, tau))

    def observed(self, given: Given) -> Observed | None:
        """What is made of one observation, once for all that is done with it."""
        if self.observations is None or given is None:
            return None
        encoded = self.observations.encode(given)
        reads = isinstance(self.network, Reader)
        return Observed(encoded, self.network.read(encoded) if reads else encoded)

    def sample(
        self,
        key: Key,
        n: int,
        *,
        given: Given = None,
        steps: int = 100,
        sampler: Sampler | None = None,
        grid: Any = None,
        guidance: float = 1.0,
        known: Point = None,
        where: Any = None,
        repeats: int = 1,
        path: bool = False,
        batch_size: int = 4096,
    ) -> Point:
        """n draws, stacked along a leading axis.

        `given` is one observation, or several stacked ones: then the draws have two leading axes,
        (observation, draw). `guidance` w scores by u + w(c − u), c with and u without the
        observation. With `path`, a further axis after the draws' holds the states at the grid's
        times, from the reference to the data.

        To fill in the rest of a point, pass it as `known`, with `where` true at the entries that
        are known (arrays like a point); or several, stacked, with one `where` or as many. Except
        for masks this is approximate, and better the more often each step is taken, `repeats`.
        """
        key = check_key(key)
        at_least(1, n=n, steps=steps, repeats=repeats, batch_size=batch_size)
        instance(Sampler, "dmm.Euler()", sampler=sampler)
        given, several = self.check_given(given)
        if guidance != 1.0 and (given is None or not self.drop_given):
            raise ValueError(
                "guidance: needs `given`, and a model fitted with drop_given > 0 to know the score "
                "without it"
            )
        hint, several_known = self._check_known(known, where, repeats)
        sampler = sampler or self._default_sampler()
        if has_masks(self.process):
            sampler = Unmasking(sampler)
        settings = _SampleSettings(sampler, grid or ScheduleGrid(), steps, guidance, repeats, path)
        stacks = ([given] if several else []) + ([hint] if several_known else [])
        counts = {len(jax.tree.leaves(stack)[0]) for stack in stacks}
        if len(counts) > 1:
            raise ValueError(f"known: has another length than `given`, {sorted(counts)}")
        count = counts.pop() if counts else 1
        keys = jax.random.split(key, count * n)
        which = jnp.repeat(jnp.arange(count), n)
        points = batched(
            lambda shared, *args: _sample(
                shared[0], settings, *args, (shared[1], several), (shared[2], several_known)
            ),
            (self, given, hint),
            (keys, which),
            batch_size,
            "sampling",
        )
        if stacks:
            points = jax.tree.map(lambda leaf: leaf.reshape(count, n, *leaf.shape[1:]), points)
        return points

    def elbo(
        self, key: Key, x: Point, *, given: Given = None, draws: int = 64, batch_size: int = 1024
    ) -> Float[Array, " n"]:
        """An unbiased estimate of the evidence bound at each of the stacked points, in nats."""
        process = self.process
        if not isinstance(process, Tractable):
            raise TypeError(
                f"elbo: {type(process).__name__} has no exact noising; use log_likelihood"
            )
        at_least(1, draws=draws, batch_size=batch_size)
        x, given = self._check_pairs(x, given)
        pilot_key, key = jax.random.split(check_key(key))
        n = len(jax.tree.leaves(x)[0])
        share = None
        if supports(process, HasDensity):
            # A pilot, with noise of its own, says how much the bound's control variate can do.
            pilots = min(n, 512)
            few = jax.tree.map(lambda leaf: leaf[:pilots], (x, given))
            pilot_keys = jax.random.split(pilot_key, pilots)
            share = _share(self, process, batch_size, pilot_keys, *few)
        args = (jax.random.split(key, n), x, given)
        return batched(
            lambda shared, *args: _elbo(shared[0], shared[0].process, draws, shared[1], *args),
            (self, share),
            args,
            batch_size,
            "bound",
        )

    def log_likelihood(
        self,
        x: Point,
        *,
        given: Given = None,
        steps: int | None = None,
        key: Key | None = None,
        probe: bool = False,
        draws: int = 16,
        batch_size: int = 1024,
    ) -> Float[Array, " n"]:
        """log p at each of the stacked points by the probability flow, in nats.

        Deterministic, unless `probe` asks for Hutchinson's divergence (many coordinates), or the
        process adds to the data (a velocity), which is then averaged over `draws`: both need a key.
        Unless given, `steps` is 100, or 400 where the process adds to the data: its flow is stiff.
        """
        at_least(1, steps=1 if steps is None else steps, draws=draws, batch_size=batch_size)
        x, given = self._check_pairs(x, given)
        n = len(jax.tree.leaves(x)[0])
        one = jax.tree.map(lambda leaf: leaf[0], x)
        lifted = jax.eval_shape(self.process.lift, jax.random.key(0), one)[0]
        lifts = jax.tree.map(jnp.shape, lifted) != jax.tree.map(jnp.shape, one)
        if key is None and (probe or lifts):
            raise ValueError("key: pass a random key, as in log_likelihood(x, key=...)")
        keys = jax.random.split(check_key(jax.random.key(0) if key is None else key), n)
        steps = steps or (400 if lifts else 100)
        settings, args = (steps, probe, draws if lifts else 1), (keys, x, given)
        return batched(
            lambda model, *args: _log_likelihood(model, settings, *args),
            self,
            args,
            batch_size,
            "likelihood",
        )

    def save(self, path: str | os.PathLike) -> None:
        """Settings and weights in one file, without pickle; `dmm.load` reads it."""
        storage.save_tree(path, self, kind="model")

    def _default_sampler(self) -> Sampler:
        sampler = default_sampler(self.process)
        looks_back = isinstance(self.parameterisation, PredictsStates)
        return Trapezoidal() if isinstance(sampler, Bridge) and not looks_back else sampler

    def check_given(self, given: Given) -> tuple[Given, bool]:
        """The observation as arrays, and whether there are several, stacked."""
        if self.given_like is None:
            if given is not None:
                raise ValueError("given: this model was fitted without observations; leave it out")
            return None, False
        if given is None:
            raise ValueError("given: this model was fitted with observations; pass given=...")
        wanted = self.given_like
        arrays = jax.tree.map(
            lambda leaf: jnp.asarray(numbers(leaf, "given")),
            given,
            is_leaf=_is_list,
        )
        if jax.tree.structure(arrays) != jax.tree.structure(wanted):
            raise ValueError(
                f"given: expected the structure {jax.tree.structure(wanted)}, as in fitting, got "
                f"{jax.tree.structure(arrays)}"
            )
        pairs = list(zip(jax.tree.leaves(arrays), jax.tree.leaves(wanted), strict=True))
        stacks = {leaf.shape[: leaf.ndim - len(like.shape)] for leaf, like in pairs}
        tails = [leaf.shape[leaf.ndim - len(like.shape) :] == like.shape for leaf, like in pairs]
        stack = stacks.pop()
        if stacks or not all(tails) or len(stack) > 1 or 0 in stack:
            raise ValueError(
                f"given: expected one observation of shape {_shapes(wanted)}, or at least one of "
                f"them stacked to the same length, got {_shapes(arrays)}"
            )
        assert self.observations is not None
        self.observations.check(arrays)
        return arrays, len(stack) == 1

    def _check_known(self, known: Point, where: Any, repeats: int) -> tuple[Any, bool]:
        """(known in the process's units, where), and whether there are several, stacked."""
        if known is None and where is None:
            if repeats > 1:
                raise ValueError("repeats: only filling in repeats steps; pass `known` and `where`")
            return None, False
        if known is None or where is None:
            raise ValueError("known, where: pass both, what is known and the entries that are")
        known = jax.tree.map(lambda leaf: numbers(leaf, "known"), known, is_leaf=_is_list)
        where = jax.tree.map(lambda leaf: np.asarray(leaf, bool), where, is_leaf=_is_list)
        if jax.tree.structure(where) != jax.tree.structure(known):
            raise ValueError("where: expected the structure of `known`, with booleans")
        # What is not known may be given as anything, such as −1 or NaN.
        where = jax.tree.map(_spread, where, known)
        known = jax.tree.map(lambda seen, leaf: np.where(seen, leaf, 0), where, known)
        where, data = jax.tree.map(jnp.asarray, where), self.process.data
        try:
            points = data.check(jax.tree.map(lambda leaf: leaf[None], known), "known")
        except ValueError as error:
            if "expected shape" not in str(error):
                raise
            points = data.check(known, "known")
            return (jax.vmap(self.units.forward)(points), where), True
        return (self.units.forward(jax.tree.map(lambda leaf: leaf[0], points)), where), False

    def _check_pairs(self, x: Point, given: Given) -> tuple[Point, Given]:
        x = self.process.data.check(x, "x")
        given, several = self.check_given(given)
        n = len(jax.tree.leaves(x)[0])
        if given is not None and not several:
            given = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (n, *leaf.shape)), given)
        lengths = {len(leaf) for leaf in jax.tree.leaves(given)}
        if lengths - {n}:
            raise ValueError(f"given: has length {lengths.pop()} but x has {n}; they must agree")
        return x, given


def load(path: str | os.PathLike, *, classes=()) -> Model:
    """A model saved by `Model.save`. Pass your own classes (processes, networks) in `classes`."""
    return storage.load_tree(path, kind="model", classes=classes)


class _SampleSettings(eqx.Module):
    sampler: Sampler
    grid: Any
    steps: int = eqx.field(static=True)
    guidance: float = eqx.field(static=True)
    repeats: int = eqx.field(static=True)
    path: bool = eqx.field(static=True)


@eqx.filter_jit
def _sample(model: Model, settings: _SampleSettings, keys: Key, which: Array, given, hint):
    """A draw a key. `given` and `hint` are a condition and whether it is stacked: then `which`
    names the one of a draw."""
    process = model.process
    taus = settings.grid(model.schedule, settings.steps)
    observation, stacked = given
    observed = jax.vmap(model.observed)(observation) if stacked else model.observed(observation)

    def pick(condition, i):
        value, several = condition
        return jax.tree.map(lambda leaf: leaf[i], value) if several else value

    def draw(key, i):
        start_key, key = jax.random.split(key)
        score = Learned(model, pick((observed, stacked), i), guidance=settings.guidance)
        known = pick(hint, i)
        sampler = settings.sampler
        if known is not None:
            sampler = Clamped(sampler, *known, settings.repeats)
        end = simulate(
            key,
            sampler,
            lambda tau: process.reverse(score.at(tau)),
            process.reference.sample(start_key),
            taus,
            path=settings.path,
        )

        def finish(x):
            return model.units.inverse(process.drop(x))

        return jax.vmap(finish)(end) if settings.path else finish(end)

    return jax.vmap(draw)(keys, which)


@eqx.filter_jit
def _share(model: Model, process: Tractable, batch_size: int, keys, x, given):
    observed = None if given is None else jax.vmap(model.observed)(given)

    def score(i, y, tau):
        return Learned(model, jax.tree.map(lambda leaf: leaf[i], observed))(y, tau)

    x0 = jax.vmap(model.units.forward)(x)
    return unexplained(process, score, model.times, keys, x0, batch_size=batch_size)


@eqx.filter_jit
def _elbo(model: Model, process: Tractable, draws: int, share, keys, x, given):
    def one(key, x, given):
        bound = elbo(
            process,
            Learned(model, model.observed(given)),
            model.times,
            key,
            model.units.forward(x),
            draws=draws,
            share=share,
        )
        return bound + model.units.log_volume()

    return jax.vmap(one)(keys, x, given)


@eqx.filter_jit
def _log_likelihood(model: Model, settings: tuple, keys, x, given):
    steps, probe, draws = settings

    def one(key, x, given):
        observed = model.observed(given)

        def state(key):
            lift_key, probe_key = jax.random.split(key)
            y, added = model.process.lift(lift_key, model.units.forward(x))
            log_prob = flow_log_likelihood(
                model.process,
                Learned(model, observed),
                model.schedule,
                y,
                steps=steps,
                key=probe_key if probe else None,
            )
            return log_prob - added

        logs = jax.vmap(state)(jax.random.split(key, draws))
        return jax.nn.logsumexp(logs) - jnp.log(draws) + model.units.log_volume()

    return jax.vmap(one)(keys, x, given)


def check_key(key: Key) -> Key:
    """A random key, new style or old; a clear error for anything else."""
    if isinstance(key, jax.Array):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.ndim == 0:
            return key
        if key.dtype == jnp.uint32 and key.shape == (2,):
            return jax.random.wrap_key_data(key)
    raise ValueError(
        f"key: expected a JAX random key, as jax.random.key(0); got {type(key).__name__}"
    )


def _spread(where: np.ndarray, known: np.ndarray) -> np.ndarray:
    try:
        return np.broadcast_to(where, known.shape)
    except ValueError:
        raise ValueError(
            f"where: shape {where.shape} does not fit that of `known`, {known.shape}"
        ) from None


def _is_list(node: Any) -> bool:
    """A list of rows is one array."""
    return isinstance(node, list)


def _shapes(tree) -> str:
    return ", ".join(str(tuple(leaf.shape)) for leaf in jax.tree.leaves(tree))
