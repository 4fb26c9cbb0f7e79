"""Events on the globe: floods, fires, earthquakes and eruptions of volcanoes.

A model of each on the sphere, over several splits into 80% to train on, 10% to choose by and 10%
to report on: of the weights at ten moments of training, those with the best likelihood of the
second part. The test log-likelihood beside published figures, and maps.
"""

from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm import datasets
from dmm.plots import sphere_map

from ..runs import Run, Table

PRESETS = {
    "smoke": {"events": "flood", "splits": 1, "steps": 20, "width": 16, "flow_steps": 4},
    "laptop": {"splits": 1, "events": "flood"},
    "paper": {"steps": 100_000, "width": 512},
}

Events = Literal["all", "flood", "fire", "earthquake", "volcano"]
NAMES = ("flood", "fire", "earthquake", "volcano")

# Test negative log-likelihoods w.r.t. the area, as published: Riemannian score-based models
# (De Bortoli et al., 2022), and Riemannian flow matching (Chen and Lipman, 2024).
PUBLISHED = {"flood": (0.48, 0.42), "fire": (-1.33, -1.86), "earthquake": (-0.19, -0.28)}


def earth(
    run: Run,
    *,
    events: Events = "all",
    splits: int = 5,
    steps: int = 10_000,
    width: int = 256,
    batch_size: int = 512,
    octaves: int = 8,
    flow_steps: int = 100,
) -> Table:
    """Test likelihoods over splits. The volcanoes are reported: 267 places allow no judgement."""
    rows: Table = []
    for name in NAMES if events == "all" else [events]:
        points = datasets.earth(name)
        found = []
        for seed in range(splits):
            parts, process = datasets.split(points, seed), dmm.SphericalBrownian(dmm.Sphere(2))
            folder = run.folder(f"{name}_split_{seed}")
            best = Best(folder / "best.dmm", parts.validation)
            dmm.fit(
                parts.train,
                process=process,
                # The first time is that at which noise begins to hide the finest waves.
                schedule=dmm.Geometric(0.5 * 4.0**-octaves, process.horizon),
                parameterisation=dmm.WithWaves(dmm.Relative(), octaves),
                network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=4),
                key=jax.random.key(seed),
                steps=steps,
                batch_size=batch_size,
                validation=0.0,
                monitor=best.consider,
                run=folder,
            )
            model = dmm.load(best.path)
            log_p = model.log_likelihood(parts.test, steps=flow_steps)
            found.append(-float(log_p.mean()))
            run.log(events=name, split=seed, test_nll=found[-1])
            if seed == 0:
                _draw(run, name, model, parts, flow_steps)
        first, best = PUBLISHED.get(name, (None, None))
        error = float(np.std(found, ddof=1) / len(found) ** 0.5) if len(found) > 1 else None
        rows.append({
            "events": name, "quantity": "test negative log-likelihood (nats)",
            "ours": float(np.mean(found)), "standard error over splits": error,
            "score-based (2022)": first, "flow matching (2024)": best,
            "splits": splits, "points": len(points),
        })  # fmt: skip
    return rows


class Best:
    """The model that makes held-out points most likely of those it was shown, kept in a file."""

    def __init__(self, path: Path, points: np.ndarray, *, every: int = 5):
        self.path, self.points, self.every, self.calls = path, points, every, 0

    def consider(self, step: int, model: dmm.Model) -> None:
        """Look at every fifth model; a file from before an interruption stays if it is better."""
        self.calls += 1
        if self.calls % self.every and self.path.exists():
            return
        if not self.path.exists() or self.likelihood(model) > self.likelihood(dmm.load(self.path)):
            model.save(self.path)

    def likelihood(self, model: dmm.Model) -> float:
        return float(jnp.mean(model.log_likelihood(self.points, steps=40)))


def _draw(run: Run, name: str, model: dmm.Model, parts: datasets.Parts, steps: int) -> None:
    samples = model.sample(jax.random.key(100), 4_000, steps=50)
    run.save_samples(name, samples)

    def log_density(x):
        return model.log_likelihood(x[None], steps=min(steps, 50))[0]

    panels = {
        f"{name}: data to train on": parts.train[:4000],
        "samples": samples,
        "log-density": log_density,
    }
    run.figure(name, sphere_map(panels, log=True))
