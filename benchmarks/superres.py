"""What super-resolution costs at the paper's full size, 64 × 64 to 256 × 256 pixels.

    python benchmarks/superres.py [--json FILE]

The experiment's preset `paper`, on photographs read from files: weights; time, memory and loss of
training steps; the time of one sample. The file is written again as each part is known. On a CPU:
`--size 32 --channels 8 --batch 2 --steps 4 --block 2 --sampling-steps 2`.
"""

import argparse
import json
import platform
import time
from typing import Any

import equinox as eqx
import jax
import numpy as np

import dmm
from dmm.diagnostics import consistency
from dmm.experiments import superres
from dmm.experiments._photographs import photographs
from dmm.networks.flat import like
from dmm.training import fitting, loop
from dmm.training.costs import peak_memory

MULTIPLIERS, ATTENTION = (1, 1, 2, 2, 4, 4), (3, 4, 5)
MEAN_OF = 50  # steps at the start and at the end whose losses are averaged


def model_of(example: dmm.Example, arguments) -> dmm.Model:
    """The experiment's model, untrained."""
    how = superres.design(
        arguments.size, 0, arguments.batch,
        channels=arguments.channels, multipliers=MULTIPLIERS, attention=ATTENTION,
        remat=arguments.remat, precision="bfloat16",
    )  # fmt: skip
    process, schedule = how["process"], how["schedule"]
    one = like(jax.tree.map(lambda leaf: leaf[0], example))
    head = dmm.PriorLogistic()
    outputs = jax.eval_shape(lambda x: head.outputs(process, x), one.x)
    network = how["network"](jax.random.key(0), one.x, outputs, one.given)
    return dmm.Model(
        process=process,
        schedule=schedule,
        times=dmm.Geometric(float(schedule.tau_min), float(schedule.tau_max)),
        parameterisation=head,
        network=network,
        units=dmm.Identity(),
        observations=how["observations"],
        given_like=one.given,
    )


def train(model: dmm.Model, source, arguments, tell) -> dmm.Model:
    """The model after training as `fit` does it; `tell` is told of time, memory and loss."""
    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    params, restore = loop.as_vector(params)
    loss_fn = fitting.loss_function(model, static, dmm.denoising, dmm.likelihood_weighting)
    optimiser = fitting.adam(2e-5, min(5000, arguments.steps // 10), 1.0, 200_000)
    settings = loop.Settings(10**9, arguments.batch, optimiser, ema=0.99)
    loss_fn = loop.of_vector(loss_fn, restore)
    advance = loop.compile_advance(loss_fn, source, jax.random.key(1), settings)
    state = loop.initial_state(params, settings)
    size, start, waiting, losses = arguments.block, time.perf_counter(), None, []
    first = 0.0
    for step in range(0, arguments.steps, size):
        state, report = advance(state, source.block(step, size), size)
        if step == 0:
            jax.block_until_ready(report)
            first = time.perf_counter() - start
            start = time.perf_counter()
            tell(training={"first_block_s": first})
        elif waiting is not None:
            losses.extend(np.asarray(waiting).tolist())  # of the block before, as this one runs
            elapsed = time.perf_counter() - start
            print(f"step {step} loss {losses[-1]:.4g} after {elapsed:.1f} s", flush=True)
            if elapsed > arguments.seconds:
                break
        waiting = report.loss
    losses.extend(np.asarray(waiting).tolist())
    elapsed, share = time.perf_counter() - start, min(MEAN_OF, len(losses) // 2)
    pace = elapsed / max(len(losses) - size, 1)
    flops = superres.operations(model)
    tell(
        training={
            "batch": arguments.batch, "steps": len(losses), "first_block_s": first,
            "step_ms": 1e3 * pace, "images_per_s": arguments.batch / pace,
            "peak_memory_GB": (peak_memory() or 0.0) / 1e9 or None,
            "network_TFLOP_per_image": 3e-12 * flops,
            "network_TFLOP_per_s": 3e-12 * flops * arguments.batch / pace,
            "loss_first": float(np.mean(losses[:share])),
            "loss_last": float(np.mean(losses[-share:])), "loss_mean_of": share,
        },
        losses=losses,
    )  # fmt: skip
    network = eqx.combine(restore(state.params), static)
    return eqx.tree_at(lambda m: m.network, model, network)


def sample(model: dmm.Model, shown, arguments, tell) -> None:
    """The time of one sample, compiling and without."""
    times = []
    for seed in range(2):
        start = time.perf_counter()
        given = shown.first(1).given
        drawn = model.sample(jax.random.key(seed), 1, given=given, steps=arguments.sampling_steps)
        jax.block_until_ready(drawn)
        times.append(time.perf_counter() - start)
        distance = consistency(np.asarray(drawn[:, 0]), shown.first(1).small)
        tell(
            sampling={
                "steps": arguments.sampling_steps, "first_s": times[0], "second_s": times[-1],
                "finished": len(times), "consistency_levels": float(distance[0]),
                "peak_memory_GB": (peak_memory() or 0.0) / 1e9 or None,
            }
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=500, help="of training")
    parser.add_argument("--seconds", type=float, default=150, help="no more training than that")
    parser.add_argument("--block", type=int, default=10, help="steps in a compiled call")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--size", type=int, default=256, help="of the large image's sides")
    parser.add_argument("--channels", type=int, default=192)
    parser.add_argument("--remat", action="store_true", help="compute blocks again for gradients")
    parser.add_argument("--sampling-steps", type=int, default=100)
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    arguments.steps -= arguments.steps % arguments.block  # one length is compiled
    arguments.steps = max(arguments.steps, arguments.block)
    figures: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "jax": jax.__version__,
        "dmm": dmm.__version__,
        "settings": {name: v for name, v in vars(arguments).items() if name != "json"},
    }
    started = time.perf_counter()

    def tell(**found) -> None:
        figures.update(found)
        for name, values in found.items():
            if name != "losses":
                print(f"[{time.perf_counter() - started:6.1f} s] {name}: {values}", flush=True)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(figures, file, indent=1)

    shown = photographs("imagenet256", None, size=arguments.size, factor=4, test=20)
    source = shown.source(batch_size=arguments.batch, seed=0, stream=True)
    with jax.default_matmul_precision("tensorfloat32"):
        model = model_of(source.preview(jax.random.key(0)), arguments)
        tell(weights_millions=superres.weights_of(model) / 1e6)
        model = train(model, source, arguments, tell)
        sample(model, shown, arguments, tell)
    table(figures)


def table(figures: dict[str, Any]) -> None:
    """The figures, a line each."""
    rows = {"weights (millions)": figures["weights_millions"]}
    for part in ("training", "sampling"):
        rows |= {f"{part}: {name}": value for name, value in figures[part].items()}
    for name, value in rows.items():
        print(f"{name:34} {value if value is None else format(value, '.6g')}")


if __name__ == "__main__":
    main()
