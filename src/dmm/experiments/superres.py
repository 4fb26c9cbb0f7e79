"""Super-resolution: photographs from small versions of them, on {0, …, 255}^{n×n×3}.

Every pixel of the small image, which is given, is the mean of `factor` × `factor` pixels of the
large one (section 6.2 and appendix J.3 of the paper, which enlarge 64 × 64 to 256 × 256). A sample
should agree with the small image, be as sharp as the truth, and differ from the next sample by as
much as the truth does; bicubic enlargement, the baseline, agrees and is blurred.
"""

import functools
from collections.abc import Iterator
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dmm
from dmm.diagnostics import bicubic, consistency, diversity, psnr, sharpness, ssim
from dmm.plots import figure, image_grid

from ..runs import Run, Table
from ..training.costs import flops, peak_memory
from ._fits import timed_fit
from ._photographs import LEVELS, Photographs, encodings, photographs

PRESETS = {
    "smoke": {
        "data": "waves", "size": 8, "factor": 2, "channels": 8, "multipliers": "1,2",
        "attention": "1", "blocks": 1, "precision": "float32", "batch_size": 2, "steps": 4,
        "block": 2, "draws": 2, "test": 2, "few": 2, "sampling_steps": 2,
    },
    "laptop": {
        "size": 32, "factor": 2, "channels": 16, "multipliers": "1,2,2", "attention": "2",
        "blocks": 1, "precision": "float32", "batch_size": 16, "steps": 1000, "ema": 0.995,
        "learning_rate": 5e-4, "draws": 2, "test": 16, "sampling_steps": 25,
    },
    "tiny": {},
    "paper": {
        "data": "imagenet256", "stream": True, "size": 256, "channels": 192,
        "multipliers": "1,1,2,2,4,4", "attention": "3,4,5", "dropout": 0.0, "batch_size": 4,
        "learning_rate": 2e-5, "steps": 200_000, "ema": 0.9999, "sampler": "leaping",
        "sampling_steps": 1000, "test": 20, "few": 4,
    },
}  # fmt: skip

PSNR, SSIM = "PSNR (dB)", "SSIM"
CONSISTENCY = "distance of the downsampled image from the input (RMS levels)"
SHARPNESS = "sharpness over the truth's"
DIVERSITY = "diversity (RMS levels)"
CALIBRATION = "diversity over the truth's distance from the mean, 1 if calibrated"
CURVE = 10  # how often samples are judged while training
SAMPLERS = {"bridge": dmm.Bridge(), "leaping": dmm.TauLeaping()}
ROWS = 2**18  # coordinates whose laws are formed at a time, over a batch: 268 MB an array
TOP = LEVELS - 1


def superres(
    run: Run,
    *,
    data: Literal["tiny_imagenet", "imagenet256", "waves"] = "tiny_imagenet",
    images: str | None = None,
    weights: str | None = None,
    stream: bool = False,
    size: int = 64,
    factor: int = 4,
    channels: int = 96,
    multipliers: str = "1,2,3,4",
    attention: str = "2,3",
    blocks: int = 2,
    dropout: float = 0.1,
    remat: bool = False,
    precision: Literal["float32", "bfloat16"] = "bfloat16",
    batch_size: int = 64,
    steps: int = 20_000,
    block: int = 10,
    learning_rate: float = 2e-4,
    ema: float = 0.9995,
    sampler: Literal["bridge", "leaping"] = "bridge",
    sampling_steps: int = 200,
    draws: int = 4,
    test: int = 256,
    few: int = 16,
    seed: int = 0,
) -> Table:
    """How good enlarged photographs are, beside bicubic enlargement; and what training cost."""
    shown = photographs(data, images, size=size, factor=factor, test=test)
    keys = jax.random.split(jax.random.key(seed), 2)
    how = {"sampler": SAMPLERS[sampler], "batch_size": batch_size}
    watch = Watch(
        run, shown.first(few), max(1, steps // CURVE), steps=min(50, sampling_steps), **how
    )
    # Ten bits are enough for what a network in half precision says of the states.
    products_in = "tensorfloat32" if precision == "bfloat16" else "float32"
    with jax.default_matmul_precision(products_in):
        model, pace = timed_fit(
            run,
            "superres",
            shown.source(batch_size=batch_size, seed=seed, stream=stream),
            key=keys[0],
            steps=steps,
            batch_size=batch_size,
            block=block,
            learning_rate=learning_rate,
            warmup=min(5000, steps // 10),
            clip=1.0,
            ema=ema,
            checkpoint_seconds=120.0,  # at full size each has six gigabytes
            monitor=watch,
            **design(
                size, shown.classes, batch_size,
                channels=channels, multipliers=numbers(multipliers, "multipliers"),
                attention=numbers(attention, "attention"), blocks=blocks, dropout=dropout,
                remat=remat, precision=precision, weights=weights,
            ),
        )  # fmt: skip
        drawn = enlarge(model, keys[1], shown, draws=draws, steps=sampling_steps, **how)
    small, cubic = shown.small, bicubic(shown.small, factor, top=TOP)
    run.save_samples("superres", drawn[:16].astype(np.uint8))
    run.save_samples("truth", shown.test[:16])
    show(run, "enlarged", drawn, shown.test, small, cubic, rows=8 if size < 256 else 4)
    curves(run)
    judged = [*scores(drawn[:, 0], shown.test, small, "a sample")]
    judged += [*spread(drawn, shown.test)]
    judged += [*scores(drawn.mean(1), shown.test, small, f"the mean of {draws}")]
    judged += [*scores(cubic, shown.test, small, "bicubic")]
    return [*judged, *costs(run, model, pace, steps, batch_size)]


def design(
    size: int, classes: int, batch_size: int, *,
    weights: str | None = None, precision: str = "float32", **network: Any,
) -> dict[str, Any]:  # fmt: skip
    """Process and network, as settings of `fit`."""
    schedule = dmm.Exponential()
    process = dmm.OrdinalChain(
        dmm.Finite((size, size, 3), LEVELS, ordered=True),
        horizon=float(schedule.tau_max),
        chunk=max(1, ROWS // batch_size),
    )

    def make(key, *shapes):
        relaxation = process.horizon / 10
        network_of = functools.partial(
            dmm.Upsampler, relaxation=relaxation, dtype=jnp.dtype(precision), **network
        )
        if weights is None:
            return network_of(key, *shapes)
        return dmm.load_published(eqx.filter_eval_shape(network_of, key, *shapes), weights)

    encoded = encodings(classes)
    return {"process": process, "schedule": schedule, "network": make, "observations": encoded}


def numbers(text: str, name: str) -> tuple[int, ...]:
    """Whole numbers from text such as "1,2,3,4"; none from an empty one."""
    try:
        return tuple(int(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise ValueError(f'{name}: expected numbers such as "1,2,3", got {text!r}') from None


def enlarge(
    model: dmm.Model, key: jax.Array, shown: Photographs, *, draws: int, **settings: Any
) -> np.ndarray:
    """Draws of held-out photographs given what is seen of them, (n, draws, height, width, 3)."""
    return np.asarray(model.sample(key, draws, given=shown.given, **settings))


class Watch:
    """A monitor that logs how good a few samples are, about `every` so many steps."""

    def __init__(self, run: Run, shown: Photographs, every: int, **sampling: Any):
        self.run, self.shown, self.every, self.sampling = run, shown, every, sampling
        self.last = 0

    def __call__(self, step: int, model: dmm.Model) -> None:
        memory = peak_memory()
        if self.last == 0 and memory is not None:  # before there are samples: of training alone
            self.run.log(step=step, memory=memory)
        if step - self.last < self.every:
            return
        self.last = step
        drawn = enlarge(model, jax.random.key(step), self.shown, draws=1, **self.sampling)
        found = scores(drawn[:, 0], self.shown.test, self.shown.small, "a sample")
        self.run.log(step=step, **{row["quantity"]: row["value"] for row in found})


def scores(images: np.ndarray, truth: np.ndarray, small: np.ndarray, what: str) -> Iterator[dict]:
    """Rows of the table: means over the images."""
    found = {
        PSNR: psnr(images, truth, top=TOP),
        SSIM: ssim(images, truth, top=TOP),
        CONSISTENCY: consistency(images, small),
        SHARPNESS: sharpness(images, truth),
    }
    for quantity, values in found.items():
        yield {"quantity": quantity, "of": what, "value": float(values.mean())}


def spread(drawn: np.ndarray, truth: np.ndarray) -> Iterator[dict]:
    """How far draws of one input are apart.

    Where truth and K draws are alike, the truth's mean square distance from the draws' mean is
    1 + 1/K times their variance.
    """
    if drawn.shape[1] < 2:
        return
    yield {"quantity": DIVERSITY, "of": "samples", "value": float(diversity(drawn).mean())}
    variance = float((diversity(drawn) ** 2).mean()) * (1 + 1 / drawn.shape[1])
    distance = float(((truth - drawn.mean(1)) ** 2).mean())
    yield {"quantity": CALIBRATION, "of": "samples", "value": (variance / distance) ** 0.5}


def costs(run: Run, model: dmm.Model, pace: float, steps: int, batch_size: int) -> Iterator[dict]:
    """Rows of the table: size and speed. A gradient takes twice the operations of its function."""
    found = {
        "weights (millions)": weights_of(model) / 1e6,
        "iterations": steps,
        "time a step (ms)": 1e3 * pace,
        "images a second": batch_size / pace,
        "products and convolutions of the network (TFLOP/s)": (
            3e-12 * batch_size * operations(model) / pace
        ),
    }
    held = [row["memory"] for row in run.metrics() if "memory" in row]
    if held:
        found["most memory held (GB)"] = max(held) / 1e9
    for quantity, value in found.items():
        yield {"quantity": quantity, "of": "training", "value": value}


def weights_of(model: dmm.Model) -> int:
    """How many weights the network has."""
    return sum(leaf.size for leaf in jax.tree.leaves(model.network) if eqx.is_array(leaf))


def operations(model: dmm.Model) -> float:
    """Floating-point operations of the network at one point."""
    image = jax.ShapeDtypeStruct(model.process.data.shape, jnp.float32)

    def call(image, given):
        observed = model.observed(given)
        return model.network(image, jnp.ones(()), observed and observed.read)

    return float(flops(call, image, model.given_like))


def show(
    run: Run, name: str, drawn: np.ndarray, truth: np.ndarray, small: np.ndarray,
    cubic: np.ndarray, *, rows: int,
) -> None:  # fmt: skip
    """What is given, its bicubic enlargement, some draws, their mean and the truth, a row each."""
    factor = truth.shape[1] // small.shape[1]
    nearest = small.repeat(factor, 1).repeat(factor, 2)
    columns = {"given": nearest, "bicubic": cubic}
    columns |= {f"draw {i + 1}": drawn[:, i] for i in range(min(3, drawn.shape[1]))}
    columns |= {"mean": drawn.mean(1), "truth": truth}
    columns = {title: images[:rows] for title, images in columns.items()}
    side = float(np.clip(truth.shape[1] / 70, 0.62, 1.8))  # inches, at 150 pixels each
    run.figure(name, image_grid(columns, top=TOP, side=side))


def curves(run: Run) -> None:
    """How good samples are against iterations."""
    logged = [row for row in run.metrics() if PSNR in row]
    result, axes = figure(1, 2, size=(3.6, 2.9))
    for ax, quantity in zip(axes[0], (PSNR, CONSISTENCY), strict=True):
        ax.plot([row["step"] for row in logged], [row[quantity] for row in logged], "o-")
        ax.set(xlabel="iteration", title=quantity.partition(" from")[0])
    run.figure("curves", result)
