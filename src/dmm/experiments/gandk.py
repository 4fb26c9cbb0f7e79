"""Posteriors of the four parameters of g-and-k laws, against NUTS on the inverted density.

Order statistics of N = 250 numbers, and 100 of N = 10,000, simulated afresh at every step. Side by
side: Ornstein–Uhlenbeck on R⁴, as in the paper, Jacobi on the box of the prior, and
Ornstein–Uhlenbeck on normal quantiles of the box, as `infer` does: the last two cannot leave it.
Wasserstein-1 distances of the marginals to the reference on five data sets, beside other methods'
where `benchmarks/peers.py` has measured them; calibration over draws of the prior.
"""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm.datasets import GAndK
from dmm.datasets.gandk import HIGH, LOW, PARAMETERS, TRUTH, features
from dmm.diagnostics import c2st, sbc, wasserstein1
from dmm.networks import observe
from dmm.plots import marginals, pairs, rank_ecdf, rank_histograms, truths_against_draws
from dmm.spaces import default_units

from .._checks import whole_numbers
from ..runs import SAMPLES, Run, Table
from ._fits import timed_fit

PRESETS = {
    "smoke": {
        "sizes": "20", "observations": 1, "steps": 30, "width": 16, "batch_size": 32,
        "noisings": 2, "samples": 200, "reference_samples": 0, "calibrations": 60,
        "calibration_draws": 20, "sampling_steps": 5,
    },
    "laptop": {},
    "paper": {
        "sizes": "250,10000", "steps": 400_000, "width": 512, "batch_size": 1024, "noisings": 4,
        "samples": 20_000, "reference_samples": 10_000, "sampling_steps": 400,
        "calibrations": 1_000, "calibration_draws": 200,
    },
}  # fmt: skip

PREVIEW = 20_000  # simulations to take units and a first guess from
STATISTICS = 100  # kept of more than 1000 numbers
PROCESSES = {
    "quantiles": "Ornstein–Uhlenbeck on normal quantiles",
    "box": "Jacobi on the box",
    "real": "Ornstein–Uhlenbeck on R⁴",
}
CLIP = 200.0  # of gradients: the targets' own noise makes norms of 50 at the laptop preset
PEERS = 2  # that a figure shows beside ours and the reference
PLOTTED = 5_000
AMORTISED = (512, 8)  # truths, and draws for each, of the paper's figure


def gandk(
    run: Run,
    *,
    sizes: str = "250",
    network: Literal["centred", "plain"] = "centred",
    steps: int = 20_000,
    width: int = 256,
    batch_size: int = 256,
    noisings: int = 4,
    learning_rate: float = 1e-3,
    observations: int = 5,
    samples: int = 5_000,
    sampling_steps: int = 100,
    reference_samples: int = 2_000,
    calibrations: int = 300,
    calibration_draws: int = 100,
    peers: str = "results/gandk",
    seed: int = 0,
) -> Table:
    """Distances, calibration and leakage; `peers` is a folder with what other methods reached, and
    with `reference_N.npz` where reference draws were made before.

    On R⁴ and on quantiles the model corrects a linear regression (`dmm.Guessed`). The network is
    `Centred`, or with `plain` a perceptron of five layers, about as large as the
    paper's. Without `reference_samples` there are no distances.
    """
    rows: Table = []
    settings = {
        "steps": steps, "batch_size": batch_size, "noisings": noisings,
        "learning_rate": learning_rate, "clip": CLIP,
    }  # fmt: skip
    for size in whole_numbers(sizes=sizes):
        task = GAndK(size, STATISTICS if size > 1_000 else None)
        observed = np.stack([task.observation(i) for i in range(observations)])
        truth = reference(run, task, observed, reference_samples, Path(peers))
        draws, results = {}, {}
        for kind in PROCESSES:
            model, pace = fit(run, f"{kind}_{size}", task, kind, network, width, seed, settings)
            with jax.default_matmul_precision("float32"):
                found = sample(model, observed, samples, sampling_steps, seed)
                truths, calibration = calibrate(
                    model, task, calibrations, calibration_draws, sampling_steps, seed
                )
            run.save_samples(f"{kind}_{size}", found)
            draws[kind] = found
            results[kind] = judge(found, truth, truths, calibration) | {"ms a step": 1e3 * pace}
            run.log(size=size, process=kind, **results[kind])
            draw_calibration(run, f"{kind}_{size}", truths, calibration)
        others, clouds = read_peers(Path(peers) / f"peers_{size}.json")
        first = {} if truth is None else {"NUTS": truth[0]}
        first |= {PROCESSES[kind]: drawn[0] for kind, drawn in draws.items()}
        draw_posteriors(run, size, first, clouds)
        if truth is not None:
            rows += distances(size, results, others, noise(truth, samples))
        rows += table(size, results)
    return rows


def fit(
    run: Run, name: str, task: GAndK, kind: str, network: str, width: int, seed: int, settings: dict
) -> tuple[dmm.Posterior, float]:
    """The posterior, and the seconds that a step of its training took."""
    parameters = dmm.Prior(task.prior).parameters
    points = {"box": inside, "quantiles": parameters.point, "real": lambda theta: theta}

    def draw(key):
        theta, x = task.sample(key)
        return dmm.Example(points[kind](theta), given=features(x))

    fit_key = jax.random.fold_in(jax.random.key(seed), task.size)
    if kind == "box":
        process: Any = dmm.Jacobi(BOX)
        schedule = dmm.default_schedule(process)
    else:
        process = dmm.OrnsteinUhlenbeck(dmm.Euclidean(4))
        # Posteriors are down to a thousandth as wide as the prior.
        schedule = dmm.Geometric(1e-7, process.horizon)
        settings = settings | guessed(draw, kind, fit_key)
    made: Any = dmm.Centred if network == "centred" else dmm.MLP
    depth = 3 if network == "centred" else 5
    # Where products lose digits, as on accelerators, a narrow posterior would be blurred.
    with jax.default_matmul_precision("float32"):
        model, pace = timed_fit(
            run,
            name,
            dmm.Simulator(draw),
            process=process,
            schedule=schedule,
            key=fit_key,
            network=functools.partial(made, width=width, depth=depth),
            **settings,
        )
    return dmm.Posterior(model, parameters if kind == "quantiles" else None), pace


def guessed(draw: Callable, kind: str, key: jax.Array) -> dict[str, Any]:
    """Units, encoding and linear guess, from simulations; the quantiles are standard already."""
    first = jax.jit(jax.vmap(draw))(jax.random.split(key, PREVIEW))
    units = dmm.Identity() if kind == "quantiles" else default_units(dmm.Euclidean(4), first.x)
    observations = observe(first.given)
    observed = jax.vmap(observations.encode)(first.given)
    guess = dmm.linear_guess(key, jax.vmap(units.forward)(first.x), observed)
    return {"units": units, "observations": observations, "parameterisation": guess}


BOX = dmm.Box([LOW] * 4, [HIGH] * 4)


def inside(theta: jax.Array) -> jax.Array:
    """θ off the bounds: a uniform draw may be 0."""
    return BOX.project(theta)


def sample(model: dmm.Posterior, observed: np.ndarray, n: int, steps: int, seed: int) -> np.ndarray:
    """n draws for each of the data sets."""
    key = jax.random.fold_in(jax.random.key(seed), 1)
    given = jax.vmap(features)(jnp.asarray(observed))
    return np.asarray(model.sample(key, n, given=given, steps=steps))


def calibrate(
    model: dmm.Posterior, task: GAndK, n: int, draws: int, steps: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """n draws of the prior, and draws of the model for what is simulated from each."""
    key, sample_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), 2))
    theta, x = jax.jit(jax.vmap(task.sample))(jax.random.split(key, n))
    given = jax.vmap(features)(x)
    return np.asarray(theta), np.asarray(model.sample(sample_key, draws, given=given, steps=steps))


def reference(
    run: Run, task: GAndK, observed: np.ndarray, n: int, known: Path
) -> np.ndarray | None:
    """Draws of the true posteriors (data set, draw, parameter), made once a run if not known."""
    if n == 0:
        return None
    name = f"reference_{task.size}"
    path = known / f"{name}.npz"
    if path.is_file():
        found = np.load(path)["samples"]
        if len(found) >= len(observed) and found.shape[1] >= n:
            return found[: len(observed), :n]
    path = run.path / SAMPLES / path.name
    if not path.exists():
        keys = jax.random.split(jax.random.key(11), len(observed))
        each = [task.reference(key, x, n) for key, x in zip(keys, observed, strict=True)]
        run.save_samples(name, np.stack(each))
    return np.load(path)["samples"]


def judge(
    draws: np.ndarray, truth: np.ndarray | None, truths: np.ndarray, calibration: np.ndarray
) -> dict[str, Any]:
    """Calibration, leakage, and distances in units of posterior standard deviations."""
    ranks = sbc(truths, calibration, names=PARAMETERS, key=jax.random.key(5))
    everything = np.concatenate([draws.reshape(-1, 4), calibration.reshape(-1, 4)])
    outside = ((everything < LOW) | (everything > HIGH)).any(1)
    found: dict[str, Any] = {"p_value": ranks.p_value, "leakage": float(outside.mean())}
    if truth is None:
        return found
    pairs = list(zip(draws, truth, strict=True))
    each = [wasserstein1(d, t) / t.std(0) for d, t in pairs]
    n = min(draws.shape[1], truth.shape[1], PLOTTED)
    scores = [c2st(jax.random.key(i), d[:n], t[:n]) for i, (d, t) in enumerate(pairs)]
    return found | {"distances": np.mean(each, 0), "worst": np.max(each, 0), "c2st": scores}


def noise(truth: np.ndarray, samples: int) -> np.ndarray:
    """The distances that exact draws would have, by halves of the reference.

    They fall as the root of the number of draws: by theory of order √(1/n + 1/m).
    """
    n = truth.shape[1] // 2
    halves = [wasserstein1(t[:n], t[n:]) / t.std(0) for t in truth]
    return np.mean(halves, 0) * np.sqrt((1 / samples + 1 / truth.shape[1]) / (2 / n))


def read_peers(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Other methods' distances, and some of their draws for the first data set."""
    if not path.is_file():
        return {}, {}
    rows = json.loads(path.read_text(encoding="utf-8"))["methods"]
    found = {r["method"]: np.array(r["wasserstein1_over_sd"]) for r in rows}
    found.pop("ours", None)
    drawn = path.with_suffix(".npz")
    arrays = np.load(drawn) if drawn.is_file() else {}
    return found, {name: arrays[name] for name in found if name in arrays}


def distances(
    size: int, results: dict[str, dict], others: dict[str, np.ndarray], floor: np.ndarray
) -> Table:
    """A row a parameter, and one for the classifier."""
    rows: Table = []
    for i, name in enumerate(PARAMETERS):
        row: dict[str, Any] = {"N": size, "quantity": f"W1 of {name} over posterior sd"}
        row |= {PROCESSES[kind]: float(r["distances"][i]) for kind, r in results.items()}
        row |= {"exact draws": float(floor[i])}
        rows.append(row | {method: float(d[i]) for method, d in others.items()})
    row = {"N": size, "quantity": "C2ST, mean over data sets"}
    row |= {PROCESSES[kind]: float(np.mean(r["c2st"])) for kind, r in results.items()}
    return [*rows, row | {"exact draws": 0.5}]


def table(size: int, results: dict[str, dict]) -> Table:
    """What needs no reference."""
    quantities = {
        "p-value of ranks, all tests": "p_value",
        "share of draws outside the prior": "leakage",
        "ms a step": "ms a step",
    }
    return [
        {"N": size, "quantity": quantity}
        | {PROCESSES[kind]: float(r[entry]) for kind, r in results.items()}
        for quantity, entry in quantities.items()
    ]


def draw_posteriors(
    run: Run, size: int, ours: dict[str, np.ndarray], others: dict[str, np.ndarray]
) -> None:
    """The first data set's marginals by all methods, a few a figure, and pairs."""
    clouds = {name: values[:PLOTTED] for name, values in ours.items()}
    look = {"truth": np.array(TRUTH), "names": PARAMETERS}
    run.figure(f"marginals_{size}", marginals(clouds, **look))
    run.figure(f"pairs_{size}", pairs(clouds, **look))
    named = list(others.items())
    for start in range(0, len(named), PEERS):
        shown = clouds | dict(named[start : start + PEERS])
        run.figure(f"methods_{size}_{start // PEERS + 1}", marginals(shown, **look))


def draw_calibration(run: Run, name: str, truths: np.ndarray, draws: np.ndarray) -> None:
    """Ranks, and truths against draws as in the paper."""
    ranks = sbc(truths, draws, names=PARAMETERS, key=jax.random.key(5))
    run.figure(f"ranks_{name}", rank_histograms(ranks.ranks, ranks.draws, names=PARAMETERS))
    run.figure(f"ecdf_{name}", rank_ecdf(ranks.ranks, ranks.draws, names=PARAMETERS))
    n, m = AMORTISED
    shown = truths_against_draws(truths[:n], draws[:n, :m], names=PARAMETERS)
    run.figure(f"amortised_{name}", shown)
