"""Characters of Shakespeare: chains on text, by masks or by noise.

Windows of 128 characters out of 65, a bidirectional transformer, bits a character on held-out
text (an upper bound), and samples. Needs tinyshakespeare (see `dmm.datasets`).
"""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm import datasets

from ..runs import Run, Table

PRESETS = {
    "smoke": {"steps": 4, "length": 8, "width": 16, "depth": 1, "batch_size": 4, "test": 4,
              "draws": 2, "sampling_steps": 4, "precision": "float32"},
    "laptop": {"steps": 5000, "length": 64, "width": 128, "depth": 3, "batch_size": 32, "test": 200,
               "draws": 16, "precision": "float32"},
    "paper": {},
}  # fmt: skip

PROCESSES = {"absorbing": dmm.AbsorbingChain, "uniform": dmm.UniformChain}


def shakespeare(
    run: Run,
    *,
    kind: Literal["absorbing", "uniform", "both"] = "both",
    steps: int = 15_000,
    length: int = 128,
    width: int = 384,
    depth: int = 6,
    batch_size: int = 128,
    test: int = 800,
    draws: int = 64,
    sampling_steps: int = 200,
    precision: Literal["float32", "bfloat16"] = "bfloat16",
    seed: int = 0,
) -> Table:
    """Bits a character on held-out text, and samples."""
    text = datasets.shakespeare()
    space = dmm.Finite(length, len(text.alphabet))
    held_out = datasets.windows(text.test, length)[:test]
    rows = []
    for i, name in enumerate(PROCESSES if kind == "both" else [kind]):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i), 3)
        model = dmm.fit(
            dmm.Simulator(Crops(jnp.asarray(text.train), length)),
            process=PROCESSES[name](space),
            key=keys[0],
            network=lambda *shapes: dmm.Transformer(
                *shapes, width=width, depth=depth, dropout=0.1, dtype=jnp.dtype(precision)
            ),
            steps=steps,
            batch_size=batch_size,
            learning_rate=5e-4,
            run=run.folder(name),
        )
        bound = model.elbo(keys[1], held_out, draws=draws, batch_size=64)
        bits = dmm.bits_per_dimension(bound, length)
        samples = np.asarray(model.sample(keys[2], 4, steps=sampling_steps))
        run.save_samples(name, samples)
        run.save_text(name, "\n\n---\n\n".join(text.decode(s) for s in samples))
        rows.append(
            {"process": name, "quantity": "bits a character (bound)", "ours": float(bits.mean()),
             "standard error": float(jnp.std(bits) / jnp.sqrt(len(bits)))}
        )  # fmt: skip
    counts = np.bincount(text.train, minlength=len(text.alphabet)) + 1
    frequency = np.log2(counts / counts.sum())
    rows.append(
        {"process": "independent characters", "quantity": "bits a character",
         "ours": float(-frequency[held_out].mean())}
    )  # fmt: skip
    return rows


class Crops:
    """A window of the text at a random place."""

    def __init__(self, text: jax.Array, length: int):
        self.text, self.length = text, length

    def __call__(self, key: jax.Array) -> jax.Array:
        start = jax.random.randint(key, (), 0, len(self.text) - self.length + 1)
        return jax.lax.dynamic_slice_in_dim(self.text, start, self.length)
