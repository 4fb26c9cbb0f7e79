"""Inpainting MNIST: the centre 14×14 of 28×28 pixels, discrete against continuous.

The discrete model is a chain on {0, …, 255}^{28×28} (section 6.2 and appendix J.2 of the paper),
the continuous one an Ornstein–Uhlenbeck process on [−1, 1]^{28×28} with the same network and
training. PSNR and SSIM are over whole images, means of the images' values: of a sample over the
test set, of the mean of several samples over its first images.
"""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm import datasets
from dmm.plots import figure

from ..runs import Run, Table
from ._inpainting import inpaint, likeness, mean_fill, observe, scores, show

PRESETS = {
    "smoke": {
        "steps": 4, "channels": 8, "batch_size": 4, "draws": 2, "test": 2, "few": 2,
        "sampling_steps": 2, "compare": False, "validation": 0.0, "precision": "float32",
    },
    "laptop": {"steps": 2000, "channels": 16, "batch_size": 32, "test": 100, "few": 100,
               "draws": 2, "sampling_steps": 50, "compare": False, "precision": "float32"},
    "paper": {},
}  # fmt: skip

PSNR, SSIM = "PSNR of a sample (dB)", "SSIM of a sample"
PAPER = {
    PSNR: {"discrete": 16.63, "continuous": 16.72, "rounded": 16.75},
    SSIM: {"discrete": 0.757, "continuous": 0.706, "rounded": 0.723},
}
LEVELS, SHAPE = 256, (28, 28)
CURVE = 10  # how often samples are judged while training
COMPARED = [  # samplers of the discrete model, and their steps
    (dmm.Bridge(), 25), (dmm.Bridge(), 1000), (dmm.TauLeaping(), 1000),
]  # fmt: skip
KINDS = ("discrete", "continuous")


def mnist(
    run: Run,
    *,
    kind: Literal["discrete", "continuous", "both"] = "both",
    steps: int = 1_000_000,
    channels: int = 64,
    batch_size: int = 128,
    draws: int = 4,
    sampling_steps: int = 250,
    compare: bool = True,
    test: int = 10_000,
    few: int = 1000,
    validation: float = 0.05,
    precision: Literal["float32", "bfloat16"] = "bfloat16",
    seed: int = 0,
) -> Table:
    """PSNR and SSIM of inpaintings, beside the paper's."""
    images = datasets.mnist()
    held_out, first = images.test[:test], images.test[:few]
    settings: dict[str, Any] = {
        "steps": steps, "batch_size": batch_size, "channels": channels, "validation": validation,
    }  # fmt: skip
    found = {"mean fill": scores(mean_fill(images)[:test], held_out, LEVELS)}
    # Ten bits are enough for what a network in half precision says of the states.
    products = "tensorfloat32" if precision == "bfloat16" else "float32"
    with jax.default_matmul_precision(products):
        for i, name in enumerate(KINDS):
            if kind not in (name, "both"):
                continue
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), i), 4)
            monitor = _judge(run, name, first, max(1, steps // CURVE), min(100, sampling_steps))
            model = train(
                run, name, images.train, keys[0], precision=precision, monitor=monitor, **settings
            )
            one = fill(model, keys[1], held_out, draws=1, steps=sampling_steps)
            several = fill(model, keys[2], first, draws=draws, steps=sampling_steps)
            for label, levels in _readings(name).items():
                found[label] = scores(levels(one), held_out, LEVELS)
                found[label] |= likeness(
                    levels(several).mean(1), first, LEVELS, f"the mean of {draws}"
                )
            run.save_samples(name, several[:100])
            show(run, f"{name}_inpaintings", _rounded(several), first, LEVELS)
            if compare and name == "discrete":
                for sampler, n in COMPARED:
                    drawn = fill(model, keys[3], first, draws=1, steps=n, sampler=sampler)
                    label = f"discrete, {type(sampler).__name__} in {n} steps, {len(first)} images"
                    found[label] = scores(drawn, first, LEVELS)
    _curves(run)
    return [
        {"quantity": quantity, "model": name, "ours": of[quantity],
         "paper": PAPER.get(quantity, {}).get(name)}
        for name, of in found.items() for quantity in of
    ]  # fmt: skip


def fill(model: dmm.Model, key: jax.Array, images: np.ndarray, **settings: Any) -> np.ndarray:
    """Draws of images given what is seen of them, in grey levels, (n, draws, 28, 28)."""
    drawn = inpaint(model, key, images, LEVELS, batch_size=2000, **settings)
    return drawn if isinstance(model.process.data, dmm.Finite) else (drawn + 1) * (LEVELS - 1) / 2


def _rounded(drawn: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(drawn), 0, LEVELS - 1)


def _readings(kind: str) -> dict[str, Callable]:
    """What a model's draws are scored as: a continuous one's as they are, and rounded to levels."""
    as_drawn = {kind: lambda drawn: drawn}
    return as_drawn if kind == "discrete" else as_drawn | {"rounded": _rounded}


def _judge(run: Run, kind: str, images: np.ndarray, every: int, steps: int) -> Callable:
    """A monitor that logs PSNR and SSIM of samples about `every` so many steps."""
    last = [0]

    def monitor(step: int, model: dmm.Model) -> None:
        if step - last[0] < every:
            return
        last[0] = step
        drawn = fill(model, jax.random.key(step), images, draws=1, steps=steps)
        for name, levels in _readings(kind).items():
            run.log(step=step, model=name, **scores(levels(drawn), images, LEVELS))

    return monitor


def _curves(run: Run) -> None:
    """PSNR and SSIM against iterations; dashed, the paper's after a million."""
    logged = run.metrics()
    result, axes = figure(1, 2, size=(3.6, 2.9))
    for ax, quantity in zip(axes[0], (PSNR, SSIM), strict=True):
        for i, (name, paper) in enumerate(PAPER[quantity].items()):
            steps = [row["step"] for row in logged if row.get("model") == name]
            if not steps:
                continue
            values = [row[quantity] for row in logged if row.get("model") == name]
            ax.plot(steps, values, "o-", color=f"C{i}", label=name)
            ax.axhline(paper, color=f"C{i}", linestyle="--", linewidth=1)
        ax.set(xlabel="iteration", title=quantity)
    axes[0, 0].legend()
    run.figure("curves", result)


def train(
    run: Run | None, kind: str, images: np.ndarray, key: jax.Array, *,
    steps: int, batch_size: int, channels: int, validation: float, precision: str,
    monitor: Callable | None = None,
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
        run=run and run.folder(kind),
        monitor=monitor,
        **how,
    )
