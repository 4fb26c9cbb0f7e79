"""`infer`: from a prior and a simulator to the posterior of every observation."""

import inspect
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import at_least, finite, instance, numbers
from .._types import Given, Key
from ..model import check_key
from ..networks import Observations, observe
from ..parameterisations import default_parameterisation
from ..parameterisations.guessed import is_isotropic
from ..processes import Noising, default_process
from ..spaces import Units
from ..training import Example, Simulator, fit
from .embeddings import by_feature, with_embedding
from .guess import linear_guess
from .posterior import Posterior
from .precision import in_full_precision
from .priors import Prior
from .rounds import Truncated, claim
from .seen import Seen
from .simulation import (
    SimulationError,
    as_arrays,
    finite_rows,
    run_simulations,
    traceable,
    traced_wrongly,
)
from .store import Store

LEAST, MOST = 2_000, 40_000  # steps of training
GUESSED = 100_000  # pairs at most that a regression looks at
PREVIEW = 20_000  # simulations that give the range of observations, where all are fresh


@in_full_precision
def infer(
    prior: Any,
    simulator: Callable | None = None,
    *,
    key: Key,
    simulations: int | tuple[Any, Given] | None = None,
    observation: Given = None,
    rounds: int = 1,
    embedding: Any = None,
    network: Any = None,
    width: int = 256,
    depth: int = 3,
    steps: int | None = None,
    batch_size: int = 256,
    learning_rate: float = 2e-3,
    weight_decay: float = 0.01,
    warmup: int | None = 100,
    early_stopping: int | None = 10,
    workers: int | None = None,
    timeout: float | None = 300.0,
    run: str | os.PathLike | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Posterior:
    """The posterior p(θ | x) of a simulator's parameters, amortised over observations.

    **What**: `prior` is a NumPyro distribution, or a dict or tuple of independent ones; the space
    follows from its support, which draws never leave (`Prior` says how). `simulator` is either a
    function of (key, theta) that JAX can trace, its first argument named `key`, or any Python
    function of (theta) or (theta, rng), rng a NumPy generator. It returns an array, or a dict of
    arrays.

    **Simulations**: a number of them, made first; or pairs (theta, x) made already, without a
    simulator; or None with a traceable simulator: fresh ones at every step of training. Python
    functions run in `workers` processes (all cores by default), each call at most `timeout`
    seconds; what fails is counted and left out, and what is not finite. With a folder `run`
    simulations are kept there as they come, and training too: called again, it goes on.

    **Rounds**: with one `observation` and `rounds` > 1, the simulations are shared among rounds,
    each drawn from the prior cut to where the posterior of the round before has its mass (Deistler
    et al., 2022): sharper near that observation, and no longer amortised over others.

    **How**: `embedding` reads the observation: "set" (exchangeable rows), "series", "image", or a
    module or function as for `Embedded`; without one, numbers enter the network: `Centred` of
    `depth` layers of `width`, which learns where the posterior lies. Where the model works on R^d,
    it corrects a linear regression (`Guessed`). `network`, `batch_size`, `early_stopping` and
    further settings are those of `fit`, such as `process`. Training takes at
    most `steps`: by default three for every four simulations, from 2,000 to 40,000; 20,000 where
    they are fresh. Products are taken in full single precision, which narrow posteriors need.
    """
    key = check_key(key)
    at_least(1, rounds=rounds, width=width, depth=depth, steps=1 if steps is None else steps)
    known = inspect.signature(fit).parameters.keys() - {"data", "given", "space"}
    if strange := sorted(settings.keys() - known):
        raise TypeError(f"{strange[0]}: is no setting of infer, nor of fit; leave it out")
    prior = prior if isinstance(prior, Prior) else Prior(prior)
    settings |= {"learning_rate": learning_rate, "warmup": warmup, "weight_decay": weight_decay}
    settings |= {"batch_size": batch_size, "progress": progress}
    # What is None is left to the defaults.
    settings = {name: value for name, value in settings.items() if value is not None}
    instance(Units, "dmm.Identity()", units=settings.get("units"))
    instance(Observations, "dmm.networks.observe(x)", observations=settings.get("observations"))
    settings["network"] = with_embedding(network, embedding, width, depth)
    process = settings.get("process")
    instance(Noising, "dmm.OrnsteinUhlenbeck(dmm.Euclidean(2))", process=process)
    if process is None:
        process = settings["process"] = default_process(prior.space)
    elif process.data != prior.space:
        raise ValueError(
            f"process: is of points of {process.data}, but the model works on "
            f"{prior.space}; dmm.Prior(prior, warp=False) makes that {prior.support}"
        )
    if network is not None and "parameterisation" not in settings:
        # Networks of the user's own expect the inputs of the process's own parameterisation.
        settings["parameterisation"] = default_parameterisation(process)
    if rounds > 1 and (observation is None or not isinstance(simulations, int)):
        raise ValueError("rounds: several need an `observation` and a number of `simulations`")
    if rounds == 1 and observation is not None:
        raise ValueError("observation: only rounds look at it; pass it to posterior.sample(given=)")
    draw_key, simulate_key, fit_key, cut_key = jax.random.split(key, 4)
    folder = None if run is None else Path(run)
    features = by_feature(embedding)
    if simulations is None:
        if simulator is None or not traceable(simulator):
            raise ValueError(
                "simulations: how many? Only a simulator that JAX can trace, a function of (key, "
                "theta), can go without a number"
            )
        run = None if folder is None else folder / "fit"
        settings["steps"] = steps or MOST // 2
        return _fit_fresh(prior, simulator, simulate_key, fit_key, features, run, settings)

    stops = None if settings.get("validation") == 0 else early_stopping
    settings |= {"early_stopping": stops, "steps": steps}
    if isinstance(simulations, tuple):
        if simulator is not None:
            raise ValueError("simulations: are made already; pass no simulator beside them")
        theta, x = simulations
        x = jax.tree.map(_numbers, x, is_leaf=lambda node: isinstance(node, list))
        theta, x = _finite(prior.parameters.check(theta), x)
        return _fit_pairs(prior, theta, x, fit_key, features, folder, settings)

    at_least(rounds, simulations=simulations)
    if simulator is None:
        raise ValueError("simulator: is needed to make simulations; or pass simulations=(theta, x)")
    options: dict[str, Any] = {"workers": workers, "timeout": timeout, "progress": progress}
    shares = _shares(simulations, rounds)
    if rounds > 1:
        observation = jax.tree.map(_observed, observation, is_leaf=lambda n: isinstance(n, list))
        if folder is not None:
            claim(folder, observation, shares)
    proposal: Prior | Truncated = prior
    made: list[tuple[Any, Any]] = []
    posterior = None
    for number, share in enumerate(shares):
        place = folder if folder is None or rounds == 1 else folder / f"round_{number + 1}"
        store = None if place is None else place / "simulations"
        theta = None if store is None or number == 0 else Store.parameters(store)
        if theta is None:
            theta = proposal.sample(jax.random.fold_in(draw_key, number), share)
        theta, x, _ = run_simulations(
            simulator, theta, jax.random.fold_in(simulate_key, number), folder=store, **options
        )
        if rounds > 1:
            _check_alike(observation, x)
            if folder is not None:
                claim(folder, observation, shares, note=True)
        made = [proposal.inside(*pairs) for pairs in made] + [(theta, x)]
        theta, x = jax.tree.map(lambda *leaves: np.concatenate(leaves), *made)
        posterior = _fit_pairs(
            prior, theta, x, jax.random.fold_in(fit_key, number), features, place, settings
        )
        if number + 1 < rounds:
            mass_key = jax.random.fold_in(cut_key, number)
            proposal = Truncated.around(prior, posterior, observation, mass_key)
    assert posterior is not None
    return posterior


def _fit_pairs(
    prior: Prior, theta: Any, x: Given, key: Key, features: bool, folder: Path | None,
    settings: dict,
) -> Posterior:  # fmt: skip
    """The posterior learned from pairs, stacked; kept in a folder named by their number."""
    points = jax.jit(jax.vmap(prior.parameters.point))(jax.tree.map(jnp.asarray, theta))
    x = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), x)
    observations = observe(x, by_feature=features)
    count = len(jax.tree.leaves(theta)[0])
    run = None if folder is None else folder / f"fit_{count}"
    steps = settings["steps"] or int(np.clip(0.75 * count, LEAST, MOST))
    # Of few simulations the best weights come early: they are looked for about fifty times.
    chosen = {"units": prior.parameters.units(points), "block": int(np.clip(steps // 50, 10, 100))}
    settings = chosen | {"observations": observations} | settings | {"steps": steps}
    model = fit(points, given=x, key=key, run=run, **_with_guess(key, points, x, settings))
    return Posterior(model, prior.parameters, Seen.of(model, x), prior)


def _fit_fresh(
    prior: Prior, simulator: Callable, simulate_key: Key, key: Key, features: bool, run: Any,
    settings: dict,
) -> Posterior:  # fmt: skip
    """The posterior learned from simulations that are fresh at every step."""

    def draw(key):
        prior_key, key = jax.random.split(key)
        theta = prior.draw(prior_key)
        return Example(prior.parameters.point(theta), given=as_arrays(simulator(key, theta)))

    keys = jax.random.split(simulate_key, PREVIEW)
    try:
        points, x = jax.jit(jax.vmap(draw))(keys)
    except SimulationError:
        raise
    except Exception as error:
        raise SimulationError(f"simulator: {traced_wrongly(error)}") from error
    bad = sum(np.sum(~np.isfinite(leaf.reshape(PREVIEW, -1)).all(1)) for leaf in jax.tree.leaves(x))
    if bad:
        raise SimulationError(
            f"simulator: {bad} of {PREVIEW} simulations hold NaN or infinity; pass a number of "
            "simulations, of which such are left out, or mend it"
        )
    observations = observe(x, by_feature=features)
    units = prior.parameters.units(points)
    settings = {"units": units, "observations": observations} | settings
    model = fit(Simulator(draw), key=key, run=run, **_with_guess(key, points, x, settings))
    return Posterior(model, prior.parameters, Seen.of(model, x), prior)


def _with_guess(key: Key, points: Any, x: Given, settings: dict) -> dict:
    """The settings with a guess to start from, unless the process or the user has another way."""
    if "parameterisation" in settings or not is_isotropic(settings["process"]):
        return settings
    every = -(-len(jax.tree.leaves(points)[0]) // GUESSED)
    points, x = jax.tree.map(lambda leaf: leaf[::every], (points, x))
    points = jax.jit(jax.vmap(settings["units"].forward))(points)
    observed = jax.jit(jax.vmap(settings["observations"].encode))(x)
    return settings | {"parameterisation": linear_guess(key, points, observed)}


def _finite(theta: Any, x: Given) -> tuple[Any, Given]:
    """Pairs, stacked, without those whose observation is not finite, of which a warning tells."""
    count = len(jax.tree.leaves(theta)[0])
    lengths = {len(leaf) for leaf in jax.tree.leaves(x)}
    if lengths != {count}:
        raise ValueError(f"simulations: x has lengths {sorted(lengths)}, theta has {count}")
    rows = np.flatnonzero(finite_rows(x))
    if len(rows) == count:
        return theta, x
    if not len(rows):
        raise ValueError("simulations: every x holds NaN or infinity; mend the simulator")
    warnings.warn(
        f"simulations: {count - len(rows)} of {count} hold NaN or infinity and are left out",
        stacklevel=4,
    )
    return jax.tree.map(lambda leaf: leaf[rows], (theta, x))


def _shares(simulations: int, rounds: int) -> list[int]:
    """The simulations of each round, as even as can be."""
    ends = [simulations * (i + 1) // rounds for i in range(rounds)]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]


def _observed(leaf: Any) -> np.ndarray:
    """The numbers of the observation that rounds look at."""
    array = np.asarray(numbers(leaf, "observation"), np.float64)
    finite(np.atleast_1d(array), "observation")
    return array


def _check_alike(observation: Given, x: Given) -> None:
    """That the observation has the form of the simulated ones, which are stacked."""
    wanted = jax.tree.map(lambda leaf: leaf.shape[1:], x)
    found = jax.tree.map(np.shape, observation)
    if found != wanted:
        raise ValueError(
            f"observation: expected shape {wanted} as simulated, got {found}; pass one like them"
        )


def _numbers(leaf: Any) -> np.ndarray:
    """An observation's numbers. Whole ones are numbers too, not classes."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"simulations: expected numbers in x, got an array of {array.dtype}")
    return np.asarray(array, np.float64)
