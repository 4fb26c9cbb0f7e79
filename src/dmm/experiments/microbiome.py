"""Gut bacteria: compositions of 130 groups, 1151 samples of 1006 adults.

Zeros become half of the smallest proportion that was seen. A Wright–Fisher model, its evidence
bound on a tenth of the samples beside that of one Dirichlet law fitted to the others, and how well
it keeps the groups' means, spreads and correlations.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma, polygamma

import dmm
from dmm import datasets
from dmm.plots import figure, marginals
from dmm.processes import Dirichlet

from ..runs import Run, Table

PRESETS = {
    "smoke": {"steps": 20, "width": 16, "draws": 2, "sampling_steps": 4},
    "laptop": {},
    "paper": {"steps": 50_000, "width": 512},
}


def microbiome(
    run: Run,
    *,
    steps: int = 10_000,
    width: int = 256,
    batch_size: int = 256,
    mutation: float = 1.0,
    early_stopping: int = 10,
    draws: int = 256,
    sampling_steps: int = 100,
    seed: int = 0,
) -> Table:
    """The bound beside a Dirichlet law's likelihood, and moments of samples beside the data's."""
    counts, names = datasets.microbiome()
    proportions = counts / counts.sum(1, keepdims=True)
    smallest = float(proportions[proportions > 0].min())
    parts = datasets.split(dmm.closure(counts, zeros=smallest / 2), seed)
    known = np.concatenate([parts.train, parts.validation])
    process = dmm.WrightFisher(dmm.Simplex(len(names)), mutation)
    model = dmm.fit(
        known,
        process=process,
        network=lambda *shapes: dmm.MLP(*shapes, width=width, depth=4),
        key=jax.random.key(seed),
        steps=steps,
        batch_size=batch_size,
        validation=len(parts.validation) / len(known),
        early_stopping=early_stopping,
        run=run.folder("model"),
    )
    bound_key, sample_key = jax.random.split(jax.random.key(seed + 1))
    bound = model.elbo(bound_key, parts.test, draws=draws)
    law = fitted_dirichlet(known)
    baseline = jax.vmap(law.log_prob)(jnp.asarray(parts.test, bound.dtype))
    samples = np.asarray(model.sample(sample_key, 2_000, steps=sampling_steps), np.float64)
    run.save_samples("model", samples)
    _draw(run, parts.test, known, samples, names)

    def row(quantity, ours, baseline, error=None):
        return {"quantity": quantity, "ours": ours, "one Dirichlet law": baseline,
                "standard error": error}  # fmt: skip

    gain = bound - baseline
    alone = np.asarray(jax.vmap(law.sample)(jax.random.split(sample_key, 2_000)), np.float64)
    return [
        row("test evidence bound, for the Dirichlet law the likelihood (nats)",
            float(bound.mean()), float(baseline.mean()), float(gain.std() / len(gain) ** 0.5)),
        *(row(f"error of the groups' {name}", off(samples), off(alone))
          for name, off in _errors(known).items()),
    ]  # fmt: skip


def fitted_dirichlet(data: np.ndarray, *, iterations: int = 200) -> Dirichlet:
    """The Dirichlet law of highest likelihood, by Minka's fixed point ψ(α) = ψ(|α|) + mean log."""
    logs = jnp.asarray(np.log(data).mean(0))

    def inverse_digamma(y):
        a = jnp.where(y > -2.22, jnp.exp(y) + 0.5, -1 / (y - digamma(1.0)))
        for _ in range(5):
            a = a - (digamma(a) - y) / polygamma(1, a)
        return a

    def improve(_, a):
        return inverse_digamma(digamma(jnp.sum(a)) + logs)

    start = jnp.asarray(data.mean(0) * 50)
    return Dirichlet(tuple(jax.lax.fori_loop(0, iterations, improve, start).tolist()))


def _errors(known: np.ndarray) -> dict:
    """Root mean square errors of moments of log-proportions against the data's."""
    logs = np.log(known)
    correlation = np.corrcoef(logs.T)
    above = np.triu_indices(len(correlation), 1)

    def rms(a, b):
        return float(np.sqrt(np.mean((a - b) ** 2)))

    return {
        "mean log-proportions": lambda s: rms(np.log(s).mean(0), logs.mean(0)),
        "standard deviations of them": lambda s: rms(np.log(s).std(0), logs.std(0)),
        "correlations of them": lambda s: rms(np.corrcoef(np.log(s).T)[above], correlation[above]),
    }


def _draw(run: Run, test, known, samples, names) -> None:
    largest = [int(i) for i in np.argsort(-known.mean(0))[:6]]
    sets = {"data": np.log10(known), "model": np.log10(samples)}
    short = [f"log₁₀ {name[:22]}" for name in names]
    run.figure("marginals", marginals(sets, columns=largest, names=short))
    order = np.argsort(-known.mean(0))
    result, axes = figure(1, 2, size=(3.4, 3.0))
    for ax, (title, rows) in zip(axes[0], {"data": known, "model": samples}.items(), strict=True):
        correlation = np.corrcoef(np.log(rows).T)[np.ix_(order, order)]
        ax.imshow(correlation, cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set(title=f"{title}: correlation of log-proportions", xticks=[], yticks=[])
    run.figure("correlations", result)
