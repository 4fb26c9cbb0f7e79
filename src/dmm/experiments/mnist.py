"""Inpainting MNIST: the centre 14×14 of 28×28 pixels, discrete against continuous.

The discrete model is a chain on {0, …, 255}^{28×28} (section 6.2 and appendix J.2 of the paper),
the continuous one an Ornstein–Uhlenbeck process on [−1, 1]^{28×28} with the same network and
training. PSNR and SSIM are over whole images, means of the images' values over the test set.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm import datasets

from ..runs import Run, Table
from ._inpainting import inpaint, mean_fill, observe, scores, show

PRESETS = {
    "smoke": {
        "steps": 4, "channels": 8, "batch_size": 4, "draws": 2, "test": 2, "sampling_steps": 2,
        "validation": 0.0, "precision": "float32",
    },
    "laptop": {"steps": 2000, "channels": 16, "batch_size": 32, "test": 100, "draws": 2,
               "sampling_steps": 50, "precision": "float32"},
    "paper": {},
}  # fmt: skip

PAPER = {
    "PSNR of a sample (dB)": {"discrete": 16.63, "continuous": 16.72, "rounded": 16.75},
    "SSIM of a sample": {"discrete": 0.757, "continuous": 0.706, "rounded": 0.723},
}
LEVELS, SHAPE = 256, (28, 28)


def mnist(
    run: Run,
    *,
    kind: Literal["discrete", "continuous", "both"] = "both",
    steps: int = 1_000_000,
    channels: int = 64,
    batch_size: int = 128,
    draws: int = 4,
    sampling_steps: int = 1000,
    sampler: Literal["bridge", "tau-leaping"] = "bridge",
    test: int = 10_000,
    validation: float = 0.05,
    precision: Literal["float32", "bfloat16"] = "bfloat16",
    seed: int = 0,
) -> Table:
    """PSNR and SSIM of inpaintings, beside the paper's."""
    images = datasets.mnist()
    held_out = images.test[:test]
    settings: dict[str, Any] = {
        "steps": steps, "batch_size": batch_size, "channels": channels, "validation": validation,
    }  # fmt: skip
    kinds = ["discrete", "continuous"] if kind == "both" else [kind]
    found = {"mean fill": scores(mean_fill(images)[:test], held_out, LEVELS)}
    for i, name in enumerate(kinds):
        fit_key, key = jax.random.split(jax.random.fold_in(jax.random.key(seed), i))
        model = train(run, name, images.train, fit_key, precision=precision, **settings)
        leap = name == "discrete" and sampler == "tau-leaping"
        drawn = inpaint(
            model, key, held_out, LEVELS, draws=draws, steps=sampling_steps, batch_size=2000,
            sampler=dmm.TauLeaping() if leap else None,
        )  # fmt: skip
        if name == "continuous":
            drawn = (drawn + 1) * (LEVELS - 1) / 2
            found["rounded"] = scores(np.clip(np.rint(drawn), 0, 255), held_out, LEVELS)
        found[name] = scores(drawn, held_out, LEVELS)
        run.save_samples(name, drawn[:100])
        show(run, f"{name}_inpaintings", np.clip(drawn, 0, LEVELS - 1), held_out, LEVELS)
    return [
        {"quantity": quantity, "model": name, "ours": of[quantity],
         "paper": PAPER.get(quantity, {}).get(name)}
        for name, of in found.items() for quantity in of
    ]  # fmt: skip


def train(
    run: Run, kind: str, images: np.ndarray, key: jax.Array, *,
    steps: int, batch_size: int, channels: int, validation: float, precision: str,
) -> dmm.Model:  # fmt: skip
    """A conditional model of images given what is seen of them, by the paper's settings."""
    how: dict[str, Any]
    if kind == "discrete":
        space = dmm.Finite(SHAPE, LEVELS, ordered=True)
        how = {"space": space, "schedule": dmm.Exponential()}
        how["process"] = dmm.OrdinalChain(space, horizon=float(how["schedule"].tau_max))
        data = images
    else:
        how = {"space": dmm.Euclidean(SHAPE), "units": dmm.Identity()}
        data = 2 * images.astype(np.float32) / (LEVELS - 1) - 1
    return dmm.fit(
        data,
        given=observe(images, LEVELS),
        key=key,
        network=lambda *shapes: dmm.UNet(*shapes, channels=channels, dtype=jnp.dtype(precision)),
        steps=steps,
        batch_size=batch_size,
        learning_rate=2e-4,
        warmup=min(5000, steps // 10),
        clip=1.0,
        ema=0.9999 if steps > 50_000 else 0.999,
        validation=validation,
        run=run.folder(kind),
        **how,
    )
