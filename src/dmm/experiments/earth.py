"""Events on the globe: floods, fires, earthquakes and eruptions of volcanoes.

A model of each on the sphere, over several splits into 80% to train on, 10% to choose by and 10%
to report on: of inputs with waves down to several lengths, and of the weights at ten moments of
training, those with the best likelihood of the second part. The test log-likelihood beside
published figures and a mixture of heat kernels, and maps.
"""

from typing import Literal

import jax
import numpy as np

import dmm
from dmm import datasets
from dmm.plots import sphere_map

from .._checks import whole_numbers
from ..runs import Run, Table
from ._fits import Best, kernel_mixture

PRESETS = {
    "smoke": {
        "events": "flood", "splits": 1, "steps": 20, "width": 16, "octaves": "2", "flow_steps": 4,
    },
    "laptop": {"splits": 1, "events": "flood", "steps": 10_000, "width": 256, "octaves": "8"},
    "paper": {},
}  # fmt: skip

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
    steps: int = 30_000,
    width: int = 512,
    batch_size: int = 512,
    octaves: str = "6,9,12",
    flow_steps: int = 100,
) -> Table:
    """Test likelihoods over splits. The volcanoes are reported: 267 places allow no judgement."""
    process, finest_waves = dmm.SphericalBrownian(dmm.Sphere(2)), whole_numbers(octaves=octaves)
    rows: Table = []
    for name in NAMES if events == "all" else [events]:
        points = datasets.earth(name)
        found, kernels = [], []
        for seed in range(splits):
            parts = datasets.split(points, seed)
            name_of_split = f"{name}_split_{seed}"
            best = Best(run.folder(name_of_split) / "best.dmm", parts.validation)
            for finest in finest_waves:
                dmm.fit(
                    parts.train,
                    process=process,
                    # The first time is that at which noise begins to hide the finest waves.
                    schedule=dmm.Geometric(0.5 * 4.0**-finest, process.horizon),
                    parameterisation=dmm.WithWaves(dmm.Relative(), finest),
                    network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=4),
                    key=jax.random.key(seed),
                    steps=steps,
                    batch_size=batch_size,
                    validation=0.0,
                    monitor=best.consider,
                    run=run.folder(f"{name_of_split}_octaves_{finest}"),
                )
            model = dmm.load(best.path)
            found.append(-float(model.log_likelihood(parts.test, steps=flow_steps).mean()))
            kernels.append(-float(kernel_mixture(process, parts).mean()))
            chosen = model.parameterisation.octaves
            run.log(events=name, split=seed, test_nll=found[-1], octaves=chosen,
                    kernel_mixture=kernels[-1])  # fmt: skip
            if seed == 0:
                _draw(run, name, model, parts, flow_steps)
        first, best = PUBLISHED.get(name, (None, None))
        error = float(np.std(found, ddof=1) / len(found) ** 0.5) if len(found) > 1 else None
        rows.append({
            "events": name, "quantity": "test negative log-likelihood (nats)",
            "ours": float(np.mean(found)), "standard error over splits": error,
            "kernel mixture": float(np.mean(kernels)),
            "score-based (2022)": first, "flow matching (2024)": best,
            "splits": splits, "points": len(points),
        })  # fmt: skip
    return rows


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
