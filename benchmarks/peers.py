"""Other methods of inference beside ours, on the same simulations: errors, time and memory.

    pip install .[peers]
    python benchmarks/peers.py --task gandk --simulations 10000 --json FILE
    python benchmarks/peers.py --task gandk --methods ours,npse     # the head-to-head
    python benchmarks/peers.py --merge FILE FILE --json FILE        # of methods run apart

Methods: `ours`; semi-automatic ABC and Wasserstein SMC-ABC, written here; NPE with a neural spline
flow, NLE, NRE and NPSE of the package `sbi`. Each runs in a process of its own, on the CPU; those
of `sbi` on a GPU with `--device cuda`. Give runs side by side cores of their own by `taskset`.
Errors are to reference draws of the true posterior, made once and kept with `--references FILE`:
Wasserstein-1 distances of the marginals in units of their standard deviations, and the accuracy of
a classifier (0.5 is perfect). With `--json FILE`, draws for the first observation go to FILE.npz.
"""

import argparse
import json
import multiprocessing
import os
import platform
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import abc_peers
import jax
import numpy as np
import sbi_peers
from peer import TASKS, Outcome, Problem, Settings, make_problem

from dmm.diagnostics import c2st, wasserstein1

METHODS = {
    "ours": sbi_peers.ours,
    "semi_automatic": abc_peers.semi_automatic,
    "wasserstein_smc": abc_peers.wasserstein_smc,
    "npe": sbi_peers.npe,
    "nle": sbi_peers.nle,
    "nre": sbi_peers.nre,
    "npse": sbi_peers.npse,
}
SHOWN = 2_000  # draws kept for pictures
NOT_KEPT = ("references", "json", "merge")  # of the settings


def measured(name: str, problem: Problem, settings: Settings) -> tuple[Outcome, float]:
    """What a method gave, and the most memory its process took, in MB."""
    outcome = METHODS[name](problem, settings)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in KiB, on macOS in bytes
    return outcome, most / (1024**2 if platform.system() == "Darwin" else 1024)


def row(name: str, outcome: Outcome, memory: float, references: np.ndarray) -> dict:
    """A method's figures, means over observations."""
    distances, accuracies = [], []
    for i, (draws, truth) in enumerate(zip(outcome.draws, references, strict=True)):
        distances.append(wasserstein1(draws, truth) / truth.std(0))
        n = min(len(draws), len(truth))
        accuracies.append(c2st(jax.random.key(i), draws[:n], truth[:n]))
    return {
        "method": name,
        "wasserstein1_over_sd": np.mean(distances, 0).tolist(),
        "each_observation": np.array(distances).tolist(),
        "c2st": float(np.mean(accuracies)),
        "training_seconds": outcome.training_seconds,
        "sampling_seconds": outcome.sampling_seconds,
        "simulations": outcome.simulations,
        "peak_memory_mb": memory,
        **outcome.extra,
    }


def reference_draws(problem: Problem, n: int, path: str | None) -> np.ndarray:
    """Draws of the true posteriors (observation, draw, parameter), read from a file if there is."""
    if path and Path(path).exists():
        found = np.load(path)["samples"]
        if len(found) < len(problem.observed):
            raise SystemExit(f"--references: {path} holds {len(found)} observations; raise them")
        return found[: len(problem.observed)]
    task, key = problem.task, jax.random.key(11)
    each = [
        task.reference(jax.random.fold_in(key, i), x, n) for i, x in enumerate(problem.observed)
    ]
    if path:
        np.savez(path, samples=np.stack(each))
    return np.stack(each)


def compare(one: dict, other: dict) -> str:
    """Ours against another method, in words."""
    training = other["training_seconds"] / one["training_seconds"]
    sampling = other["sampling_seconds"] / one["sampling_seconds"]
    return (
        f"ours against {other['method']}: training {training:.1f} times faster, sampling "
        f"{sampling:.1f} times faster, C2ST {one['c2st']:.3f} against {other['c2st']:.3f}"
    )


def save(path: str, record: dict, clouds: dict[str, np.ndarray]) -> None:
    """The figures as JSON, the draws beside them."""
    Path(path).write_text(json.dumps(record, indent=1))
    np.savez_compressed(Path(path).with_suffix(".npz"), **clouds)


def merged(paths: list[str]) -> tuple[dict, dict[str, np.ndarray]]:
    """What several runs saved as one; settings that differ go to the methods."""
    records, clouds = [], {}
    for path in paths:
        records.append(json.loads(Path(path).read_text()))
        clouds |= np.load(Path(path).with_suffix(".npz"))
    first = records[0]
    alike = {
        name: value
        for name, value in first["settings"].items()
        if all(record["settings"].get(name) == value for record in records)
    }
    rows = []
    for record in records:
        own = {k: v for k, v in record["settings"].items() if k not in (*alike, "methods")}
        rows += [own | row for row in record["methods"]]
    return first | {"settings": alike, "methods": rows}, clouds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", default="gandk", choices=TASKS)
    parser.add_argument("--simulations", type=int, default=10_000)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--observations", type=int, default=5)
    parser.add_argument("--samples", type=int, default=10_000, help="draws an observation")
    parser.add_argument("--reference-samples", type=int, default=2_000)
    parser.add_argument("--references", help="a file of reference draws, written if there is none")
    parser.add_argument("--width", type=int, default=0, help="of networks; 0: their own defaults")
    parser.add_argument("--epochs", type=int, default=0, help="at most, for sbi; 0: its default")
    parser.add_argument("--batch-size", type=int, default=0, help="for sbi; 0: its default")
    parser.add_argument("--minutes", type=float, default=0, help="of training, at most, for sbi")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="for sbi")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write the figures to this file, a method at a time")
    parser.add_argument("--merge", nargs="+", metavar="FILE", help="join these; run nothing")
    chosen = parser.parse_args()
    if chosen.merge:
        if not chosen.json:
            parser.error("--merge: name the file to write with --json")
        save(chosen.json, *merged(chosen.merge))
        return
    methods = chosen.methods.split(",")
    if unknown := set(methods) - set(METHODS):
        parser.error(f"--methods: {', '.join(sorted(unknown))}; choose from {', '.join(METHODS)}")
    if hasattr(os, "sched_setaffinity"):  # what is started below inherits it
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: chosen.threads])
    problem = make_problem(chosen.task, chosen.simulations, chosen.observations, chosen.seed)
    references = reference_draws(problem, chosen.reference_samples, chosen.references)
    chosen.reference_samples = references.shape[1]
    settings = Settings(**{f.name: getattr(chosen, f.name) for f in fields(Settings)})
    rows: list[dict] = []
    clouds = {"reference": references[0][:SHOWN].astype(np.float32)}
    fresh = multiprocessing.get_context("spawn")
    for name in methods:
        load = os.getloadavg()[0]
        with ProcessPoolExecutor(1, mp_context=fresh) as process:
            outcome, memory = process.submit(measured, name, problem, settings).result()
        rows.append(row(name, outcome, memory, references) | {"load_before": load})
        clouds[name] = outcome.draws[0][:SHOWN].astype(np.float32)
        found = rows[-1]
        distances = " ".join(f"{d:.3f}" for d in found["wasserstein1_over_sd"])
        print(
            f"{name:16} W1/sd {distances}  C2ST {found['c2st']:.3f}  training "
            f"{found['training_seconds']:.1f} s  sampling {found['sampling_seconds']:.2f} s  "
            f"{memory:.0f} MB",
            flush=True,
        )
        if chosen.json:
            kept = {k: v for k, v in vars(chosen).items() if k not in NOT_KEPT}
            save(chosen.json, {"settings": kept, **about(), "methods": rows}, clouds)
    if rows[0]["method"] == "ours":
        for other in rows[1:]:
            if other["training_seconds"] > 0:
                print(compare(rows[0], other))


def about() -> dict:
    """Where and with what this was measured."""
    versions = {"python": platform.python_version()}
    for package in ("jax", "torch", "sbi"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    when = time.strftime("%Y-%m-%d")
    return {"cores": os.cpu_count(), "date": when, "versions": versions}


if __name__ == "__main__":
    # Ours too: the comparison is of methods, not of devices.
    os.environ["JAX_PLATFORMS"] = "cpu"  # for the processes to come
    jax.config.update("jax_platforms", "cpu")
    main()
