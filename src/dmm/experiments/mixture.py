"""Two-dimensional densities with a known truth: a ring of Gaussians and two moons.

Fits a model of each from fresh draws and holds its samples, density and likelihood against the
truth.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp

import dmm
from dmm.datasets import GaussianMixture, TwoMoons
from dmm.diagnostics import c2st
from dmm.plots import density2d, paths, scatter2d

from ..runs import Run, Table

PRESETS = {
    "smoke": {"steps": 40, "width": 16, "batch_size": 32, "test_points": 50},
    "laptop": {},
    "paper": {"steps": 200_000, "width": 512, "batch_size": 1024, "test_points": 50_000},
}

TARGETS = {"ring": GaussianMixture.ring, "moons": TwoMoons}


def mixture(
    run: Run,
    *,
    target: Literal["ring", "moons", "both"] = "both",
    steps: int = 20_000,
    width: int = 256,
    batch_size: int = 512,
    test_points: int = 5_000,
    seed: int = 0,
) -> Table:
    """Samples, density and likelihood of a model of each target, against the truth."""
    names = list(TARGETS) if target == "both" else [target]
    settings = {"steps": steps, "width": width, "batch_size": batch_size}
    rows = []
    for i, name in enumerate(names):
        key = jax.random.fold_in(jax.random.key(seed), i)
        rows += compare(run, name, TARGETS[name](), key, test_points=test_points, **settings)
    return rows


def compare(
    run: Run, name: str, truth: Any, key: jax.Array, *,
    steps: int, width: int, batch_size: int, test_points: int,
) -> Table:  # fmt: skip
    """Fit one target and report on it."""
    fit_key, test_key, sample_key, bound_key, classify_key, path_key = jax.random.split(key, 6)
    model = dmm.fit(
        dmm.Simulator(truth.sample),
        space=dmm.Euclidean(2),
        key=fit_key,
        network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=4),
        steps=steps,
        batch_size=batch_size,
        run=run.folder(name),
    )
    test = jax.vmap(truth.sample)(jax.random.split(test_key, test_points))
    samples = model.sample(sample_key, test_points)
    run.save_samples(name, samples)

    log_truth = jax.vmap(truth.log_prob)(test)
    gap = model.log_likelihood(test, steps=50) - log_truth
    bound_gap = model.elbo(bound_key, test, draws=64) - log_truth
    accuracy = c2st(classify_key, samples[:5000], test[:5000])

    run.figure(f"{name}_samples", scatter2d({"data": test[:4000], "model": samples[:4000]}))
    run.figure(f"{name}_density", densities(truth, model, test))
    states, taus = model.sample(path_key, 2000, path=True), model.schedule.grid(100)
    shown = [0, 20, 40, 60, 100]
    run.figure(f"{name}_generation", scatter2d({f"τ = {taus[i]:.2g}": states[:, i] for i in shown}))
    flow = model.sample(path_key, 60, path=True, sampler=dmm.ProbabilityFlow())
    run.figure(f"{name}_flow", paths(taus, jnp.swapaxes(flow, 0, 1)))

    def error(values):
        return float(jnp.std(values) / jnp.sqrt(len(values)))

    def row(quantity, ours, truth, aim, standard_error=None):
        return {
            "target": name, "quantity": quantity, "ours": ours, "truth": truth, "aim": aim,
            "standard error": standard_error,
        }  # fmt: skip

    mean = float(jnp.mean(log_truth))
    return [
        row("log-likelihood (nats)", mean + float(gap.mean()), mean, "within 0.02", error(gap)),
        row("evidence bound (nats)", mean + float(bound_gap.mean()), mean, None, error(bound_gap)),
        row(f"C2ST of {min(test_points, 5000)} samples", accuracy, 0.5, "at most 0.53"),
    ]


def densities(truth: Any, model: dmm.Model, test: jax.Array, *, side: int = 72):
    """The true and the model's log-density over a square of the plane, as maps."""
    low, high = float(test.min()) - 0.5, float(test.max()) + 0.5
    axis = jnp.linspace(low, high, side)
    plane = jnp.stack(jnp.meshgrid(axis, axis), -1).reshape(-1, 2)
    learned = model.log_likelihood(plane, steps=40, batch_size=side**2)
    values = {
        "truth": jax.vmap(truth.log_prob)(plane),
        # In a corner far from all data the flow may diverge: no density to show.
        "model": jnp.where(jnp.isfinite(learned), learned, -jnp.inf),
    }
    return density2d({name: (axis, axis, v.reshape(side, side)) for name, v in values.items()})
