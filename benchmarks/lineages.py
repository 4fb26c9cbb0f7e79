"""What a training step costs on simplices, boxes and spheres, and how it grows with their size.

    python benchmarks/lineages.py [--only START,START] [--json FILE]

At the paper's setting (an MLP of four layers of 512, batch 128): a step of `dmm.fit` over forward,
backward and Adam of the bare network, for compositions of 3 to 1000 parts, boxes and spheres; and
at 3 and 10 parts also the paper's training, the implicit objective on exact draws and on the
paper's simulation of 1000 small steps.
"""

import argparse
import json
import platform

import jax
import jax.numpy as jnp
from bench import bare_step, seconds, small_model, training_step

import dmm

WIDTH, DEPTH, BATCH = 512, 4, 128
PARTS = (3, 10, 20, 100, 300, 1000)


def rows(on_gpu: bool):
    """Name, process, objective and steps of everything that is timed."""
    steps = 300 if on_gpu else 30
    for n in PARTS:
        process = dmm.WrightFisher(dmm.Simplex(n))
        yield f"simplex {n}", process, dmm.denoising, steps
    for n in (4, 64):
        yield f"box {n}", dmm.Jacobi(dmm.Box([0.0] * n, [1.0] * n)), dmm.denoising, steps
    for n in (2, 64):
        process = dmm.SphericalBrownian(dmm.Sphere(n))
        yield f"sphere {n}", process, dmm.denoising, steps
    for n in (3, 10):
        process = dmm.WrightFisher(dmm.Simplex(n))
        yield f"simplex {n}, implicit", process, dmm.implicit, steps
        simulated = dmm.SimulatedWrightFisher(dmm.Simplex(n))
        yield f"simplex {n}, implicit and simulated", simulated, dmm.implicit, steps // 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--only", default="", help="rows whose names start with these words")
    arguments = parser.parse_args()
    starts = tuple(f"{words} ".lstrip() for words in arguments.only.split(","))
    on_gpu = jax.default_backend() != "cpu"
    found = []
    chosen = [row for row in rows(on_gpu) if f"{row[0]} ".replace(",", " ").startswith(starts)]
    for name, process, objective, steps in chosen:
        keys = jax.random.split(jax.random.key(1), 4096)
        data = jax.vmap(process.reference.sample)(keys)
        if isinstance(process, dmm.Jacobi):
            data = 0.05 + 0.9 * data
        model = small_model(
            data, None, width=WIDTH, depth=DEPTH, process=process, objective=objective
        )
        step = training_step(
            model, dmm.Example(jnp.asarray(data)), BATCH, steps, objective=objective
        )
        inputs = jax.eval_shape(model.parameterisation.inputs, process, data[0], jnp.ones(()))
        ours, bare = seconds([step, bare_step(model, inputs.size, BATCH, steps)], repeats=3)
        found.append({"what": name, "ms": 1e3 * ours / steps, "ratio": ours / bare})
        print(f"{name:36} {1e3 * ours / steps:8.3f} ms  {ours / bare:6.2f} times the network")
    if arguments.json:
        versions = {"python": platform.python_version(), "jax": jax.__version__}
        device = jax.devices()[0].device_kind
        with open(arguments.json, "w") as file:
            json.dump({"device": device, **versions, "steps": found}, file, indent=1)


if __name__ == "__main__":
    main()
