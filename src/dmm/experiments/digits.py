"""Inpainting scikit-learn's digits on a finite space: 8×8 pixels of 17 ordered levels.

A chain on {0, …, 16}^{8×8}, a U-Net that sees the image without its centre, samples of the whole.
Also inpainting without having been trained for it: the model with its observation hidden, the
seen pixels clamped.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm import datasets
from dmm.plots import image_grid

from ..runs import Run, Table
from ._inpainting import inpaint, mean_fill, observe, scores, show, visible

PRESETS = {
    "smoke": {
        "steps": 10,
        "channels": 8,
        "batch_size": 8,
        "levels": 1,
        "draws": 2,
        "test": 4,
        "sampling_steps": 5,
    },
    "laptop": {},
    "paper": {"steps": 30_000, "channels": 64, "blocks": 2, "draws": 16},
}


def digits(
    run: Run,
    *,
    steps: int = 2500,
    channels: int = 32,
    levels: int = 2,
    blocks: int = 1,
    batch_size: int = 64,
    draws: int = 4,
    sampling_steps: int = 50,
    test: int = 297,
    seed: int = 0,
) -> Table:
    """PSNR and SSIM of inpaintings of the test images, against filling in the mean."""
    images = datasets.digits()
    greys, held_out = images.levels, images.test[:test]
    fit_key, sample_key, clamp_key, free_key, bound_key = jax.random.split(jax.random.key(seed), 5)
    model = dmm.fit(
        images.train,
        given=observe(images.train, greys),
        drop_given=0.1,
        space=dmm.Finite((8, 8), greys, ordered=True),
        key=fit_key,
        network=lambda *shapes: dmm.UNet(
            *shapes, channels=channels, multipliers=(1, 2, 2)[:levels], blocks=blocks
        ),
        steps=steps,
        batch_size=batch_size,
        run=run.folder("model"),
    )
    settings: dict[str, Any] = {"steps": sampling_steps}
    drawn = inpaint(model, sample_key, held_out, greys, draws=draws, **settings)
    run.save_samples("inpaintings", drawn)
    show(run, "inpaintings", drawn, held_out, greys)

    hint: dict[str, Any] = {"known": jnp.asarray(held_out), "where": visible(held_out)}
    few = {"steps": max(1, sampling_steps // 2), "repeats": 4}
    clamped = inpaint(model, clamp_key, held_out, greys, draws=draws, guidance=0.0, **hint, **few)
    show(run, "clamped", clamped, held_out, greys)

    # Without its observation the model is one of digits as such.
    blank = jnp.zeros((8, 8))
    free = np.asarray(model.sample(free_key, 48, given=blank, guidance=0.0, **settings))
    run.figure("samples", image_grid(list(free.reshape(8, 6, 8, 8)), top=greys - 1))

    bound = model.elbo(bound_key, held_out, given=observe(held_out, greys), draws=32)
    bits = dmm.bits_per_dimension(bound, 64)
    ways = {"ours": drawn, "ours, clamped": clamped, "mean fill": mean_fill(images)[:test]}
    found = {way: scores(images, held_out, greys) for way, images in ways.items()}
    table = [
        {"quantity": name, **{way: of.get(name) for way, of in found.items()}}
        for name in found["ours"]
    ]
    return [*table, {"quantity": "bits a pixel given the seen", "ours": float(bits.mean())}]
