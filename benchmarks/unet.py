"""A training step of the paper's U-Net on MNIST, in half precision, and what it is spent on.

    python benchmarks/unet.py [--json FILE]

The network of 6.1 million weights at batch 128: forward, backward and Adam of the network alone;
steps of `dmm.fit` for the continuous and for the discrete model; and, on a GPU, the share of the
kernels that are convolutions. On a CPU everything is smaller, to see that it works.
"""

import argparse
import collections
import glob
import gzip
import json
import platform
import tempfile

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from bench import seconds

import dmm
from dmm.experiments import mnist
from dmm.experiments._inpainting import observe
from dmm.training import fitting, loop
from dmm.training.data import Arrays

ON_GPU = jax.default_backend() != "cpu"
BATCH, CHANNELS, STEPS = (128, 64, 100) if ON_GPU else (4, 8, 2)
IMAGES = np.random.default_rng(0).integers(0, mnist.LEVELS, (2000, *mnist.SHAPE), np.int32)


def model_of(kind: str) -> dmm.Model:
    """The experiment's model, barely trained."""
    return mnist.train(
        None, kind, IMAGES, jax.random.key(0),
        steps=1, batch_size=BATCH, channels=CHANNELS, validation=0.0, precision="bfloat16",
    )  # fmt: skip


def training(model: dmm.Model):
    """A function that runs steps of training as `fit` does."""
    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    params, restore = loop.as_vector(params)
    loss_fn = fitting.loss_function(model, static, dmm.denoising, dmm.likelihood_weighting)
    loss_fn = loop.of_vector(loss_fn, restore)
    discrete = isinstance(model.process.data, dmm.Finite)
    data = IMAGES if discrete else 2 * IMAGES.astype(np.float32) / (mnist.LEVELS - 1) - 1
    source = Arrays(dmm.Example(jnp.asarray(data), jnp.asarray(observe(IMAGES, mnist.LEVELS))))
    settings = loop.Settings(10**9, BATCH, fitting.adam(2e-4, 5000, 1.0, 10**6))
    advance = loop.compile_advance(loss_fn, source, jax.random.key(1), settings)
    carried = {"state": loop.initial_state(params, settings)}

    def run():
        carried["state"], report = advance(carried["state"], source.block(0, STEPS), STEPS)
        return report

    return run


def bare(model: dmm.Model):
    """A function that runs forward, backward and Adam on the network alone."""
    params, static = eqx.partition(model.network, eqx.is_inexact_array)
    adam = optax.adam(1e-4)
    x = jax.random.normal(jax.random.key(2), (BATCH, *mnist.SHAPE))
    taus = jnp.linspace(0.1, 1.0, BATCH)

    def loss(params, key):
        network = eqx.combine(params, static)
        keys = jax.random.split(key, BATCH)
        out = jax.vmap(lambda x, tau, key: network(x, tau, x, 1.0, key=key))(x, taus, keys)
        return jnp.mean((out - 1) ** 2)

    def body(carry, key):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, key)
        updates, state = adam.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def run(carry):
        return jax.lax.scan(body, carry, jax.random.split(jax.random.key(1), STEPS))[1]

    return lambda: run((params, adam.init(params)))


def kernels(run) -> dict[str, dict[str, float]]:
    """Milliseconds and launches a step of the kinds of kernels, from a profiler's trace."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(run())
        (path,) = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
    named = [e for e in events if e.get("name") in ("process_name", "thread_name")]
    names = {(e["pid"], e.get("tid") if e["name"] == "thread_name" else None): e for e in named}
    time, launches = collections.Counter(), collections.Counter()
    for event in events:
        device = names.get((event.get("pid"), None))
        stream = names.get((event.get("pid"), event.get("tid")))
        if event.get("ph") != "X" or device is None or stream is None:
            continue
        if "GPU" in device["args"]["name"] and "Stream" in stream["args"]["name"]:
            kind = _kind(event["name"])
            time[kind] += event["dur"] / 1e3 / STEPS
            launches[kind] += 1 / STEPS
    return {kind: {"ms": time[kind], "launches": launches[kind]} for kind in time}


def _kind(name: str) -> str:
    if any(part in name for part in ("fprop", "dgrad", "wgrad", "convolve")):
        return "convolutions"
    if "gemm" in name or "nvjet" in name:
        return "matrix products"
    return "reductions" if "reduce" in name else "the rest"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    with jax.default_matmul_precision("tensorfloat32"):
        models = {kind: model_of(kind) for kind in ("continuous", "discrete")}
        runs = {kind: training(model) for kind, model in models.items()}
        runs["network alone"] = bare(models["continuous"])
        times = seconds(list(runs.values()), repeats=3)
        figures = {
            "device": jax.devices()[0].device_kind,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "weights": sum(leaf.size for leaf in jax.tree.leaves(models["discrete"].network)),
            "batch": BATCH,
            "step_ms": {k: 1e3 * t / STEPS for k, t in zip(runs, times, strict=True)},
            "kernels": {k: kernels(runs[k]) for k in models} if ON_GPU else {},
        }
    print(json.dumps(figures, indent=1))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main()
