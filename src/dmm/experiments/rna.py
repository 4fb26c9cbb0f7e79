"""RNA: seven torsion angles of 9478 nucleotides, on a torus.

A model over several splits into 80% to train on, 10% to choose by and 10% to report on: of the
weights at ten moments of training those with the best likelihood of the second part. The test
log-likelihood beside published figures and a mixture of heat kernels, and every pair of angles.
"""

import jax
import numpy as np

import dmm
from dmm import datasets
from dmm.plots import torus_pairs

from ..runs import Run, Table
from ._fits import Best, kernel_mixture

PRESETS = {
    "smoke": {"splits": 1, "steps": 20, "width": 16, "octaves": 2, "flow_steps": 4},
    "laptop": {"splits": 1, "steps": 10_000, "width": 256},
    "paper": {},
}

# Test negative log-likelihoods in nats, as published: a mixture of diffusions (Huang et al., 2022)
# and Riemannian flow matching (Chen and Lipman, 2024).
PUBLISHED = (-3.70, -5.20)


def rna(
    run: Run,
    *,
    splits: int = 5,
    steps: int = 50_000,
    width: int = 512,
    depth: int = 5,
    batch_size: int = 512,
    octaves: int = 4,
    flow_steps: int = 100,
) -> Table:
    """Test likelihoods over splits."""
    points = datasets.rna()
    process = dmm.ToroidalBrownian(dmm.Torus(points.shape[1]))
    found, kernels = [], []
    for seed in range(splits):
        parts = datasets.split(points, seed)
        best = Best(run.folder(f"split_{seed}") / "best.dmm", parts.validation)
        dmm.fit(
            parts.train,
            process=process,
            parameterisation=dmm.WithWaves(dmm.Relative(), octaves),
            network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=depth),
            key=jax.random.key(seed),
            steps=steps,
            batch_size=batch_size,
            validation=0.0,
            monitor=best.consider,
            run=run.folder(f"split_{seed}_fit"),
        )
        model = dmm.load(best.path)
        found.append(-float(model.log_likelihood(parts.test, steps=flow_steps).mean()))
        kernels.append(-float(kernel_mixture(process, parts).mean()))
        run.log(split=seed, test_nll=found[-1], kernel_mixture=kernels[-1])
        if seed == 0:
            samples = model.sample(jax.random.key(100), 4_000, steps=100)
            run.save_samples("rna", samples)
            sets = {"data": parts.train[:4000], "model": np.asarray(samples)}
            run.figure("angles", torus_pairs(sets, names=datasets.ANGLES))
    error = float(np.std(found, ddof=1) / len(found) ** 0.5) if len(found) > 1 else None
    return [{
        "quantity": "test negative log-likelihood (nats)", "ours": float(np.mean(found)),
        "standard error over splits": error, "kernel mixture": float(np.mean(kernels)),
        "mixture of diffusions (2022)": PUBLISHED[0], "flow matching (2024)": PUBLISHED[1],
        "splits": splits, "points": len(points),
    }]  # fmt: skip
