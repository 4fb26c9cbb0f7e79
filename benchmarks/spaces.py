"""What a training step costs on each space, and how it grows with the space's size.

    python benchmarks/spaces.py [--only START,START] [--json FILE]

A step of `dmm.fit` over forward, backward and Adam of the bare network, at the paper's settings:
an MLP of four layers of 512 and batch 128 for compositions of 3 to 1000 parts, boxes and spheres,
one of five layers and batch 512 for rotations. At 3 and 10 parts also the paper's training, the
implicit objective on exact draws and on its simulation of 1000 small steps; on rotations also the
baseline of its table, a walk of 100 steps with Varadhan's score.
"""

import argparse
import json
import platform
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from bench import bare_step, seconds, small_model, training_step

import dmm

WIDTH = 512
PARTS = (3, 10, 20, 100, 300, 1000)


class Row(NamedTuple):
    """One training that is timed; `share` of the usual number of steps."""

    name: str
    process: dmm.Process
    objective: Callable = dmm.denoising
    depth: int = 4
    batch: int = 128
    share: float = 1.0


def rows() -> Iterator[Row]:
    for n in PARTS:
        yield Row(f"simplex {n}", dmm.WrightFisher(dmm.Simplex(n)))
    for n in (4, 64):
        yield Row(f"box {n}", dmm.Jacobi(dmm.Box([0.0] * n, [1.0] * n)))
    for n in (2, 64):
        yield Row(f"sphere {n}", dmm.SphericalBrownian(dmm.Sphere(n)))
    yield Row("rotations", dmm.RotationalBrownian(dmm.SO3()), depth=5, batch=512)
    walk = dmm.SimulatedRotationalBrownian(dmm.SO3())
    yield Row("rotations, walk", walk, depth=5, batch=512, share=0.1)
    for n in (3, 10):
        yield Row(f"simplex {n}, implicit", dmm.WrightFisher(dmm.Simplex(n)), dmm.implicit)
        simulated = dmm.SimulatedWrightFisher(dmm.Simplex(n))
        yield Row(f"simplex {n}, implicit and simulated", simulated, dmm.implicit, share=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file, a row at a time")
    parser.add_argument("--only", default="", help="rows whose names start with these words")
    arguments = parser.parse_args()
    starts = tuple(f"{words} ".lstrip() for words in arguments.only.split(","))
    usual = 30 if jax.default_backend() == "cpu" else 300
    versions = {"python": platform.python_version(), "jax": jax.__version__}
    found = []
    for row in rows():
        if not f"{row.name} ".replace(",", " ").startswith(starts):
            continue
        steps = int(row.share * usual)
        ours, bare = measured(row, steps)
        found.append({"what": row.name, "ms": 1e3 * ours / steps, "ratio": ours / bare})
        print(f"{row.name:36} {1e3 * ours / steps:8.3f} ms  {ours / bare:6.2f} times the network")
        if arguments.json:
            device = jax.devices()[0].device_kind
            with open(arguments.json, "w") as file:
                json.dump({"device": device, **versions, "steps": found}, file, indent=1)


def measured(row: Row, steps: int) -> list[float]:
    """Seconds that `steps` steps take, of ours and of the bare network."""
    process = row.process
    data = jax.vmap(process.reference.sample)(jax.random.split(jax.random.key(1), 4096))
    if isinstance(process, dmm.Jacobi):
        data = 0.05 + 0.9 * data
    model = small_model(
        data, None, width=WIDTH, depth=row.depth, process=process, objective=row.objective
    )
    examples = dmm.Example(jnp.asarray(data))
    step = training_step(model, examples, row.batch, steps, objective=row.objective)
    inputs = jax.eval_shape(model.parameterisation.inputs, process, data[0], jnp.ones(()))
    return seconds([step, bare_step(model, inputs.size, row.batch, steps)], repeats=3)


if __name__ == "__main__":
    main()
