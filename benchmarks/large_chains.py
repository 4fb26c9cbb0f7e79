"""What the largest images cost on a chain, network apart: time and memory of what a model does.

    python benchmarks/large_chains.py [--batch B] [--json FILE]

The ordinal chain of 256 levels with the discretised logistic head, at the coordinates of a digit
(28 × 28), and of colour images of 64 × 64 and 256 × 256: loss and gradient w.r.t. the network's
output, a step of the bridge and one of tau-leaping. Memory is what the compiled program needs
besides its arguments; beside it the largest array that the program makes, in numbers a point, and
the floating-point operations of its matrix products.
"""

import argparse
import json
import platform

import equinox as eqx
import jax
import jax.numpy as jnp
from bench import seconds

import dmm
from dmm.diagnostics import largest_array
from dmm.processes.chain import Denoiser

STATES = 256
COORDINATES = (784, 12_288, 196_608)
PRODUCTS = {"loss and gradient": 3, "bridge": 1, "tau-leaping": 1}  # one more to form rows again


class Says(Denoiser):
    """The score where the network says `output` everywhere."""

    process: dmm.Chain
    output: jax.Array
    tau: jax.Array

    def __call__(self, x):
        return dmm.PriorLogistic().score(self.process, self.output, x, self.tau)

    def bridge(self, x, earlier):
        return dmm.PriorLogistic().bridge(self.process, self.output, x, self.tau, earlier)


def loss(output, process, key, x):
    """The denoising objective in the middle of the time."""
    return dmm.denoising(
        process, lambda x, tau: Says(process, output, tau)(x), key, x, 0.1 * process.horizon
    )


def step(sampler: dmm.Sampler):
    """One of a hundred steps of a sampler, from the same time."""

    def run(output, process, key, x):
        tau = 0.1 * jnp.asarray(process.horizon)
        return sampler.step(
            key, lambda tau: process.reverse(Says(process, output, tau)), x, tau, 0.95 * tau
        )

    return run


TASKS = {
    "loss and gradient": jax.value_and_grad(loss),
    "bridge": step(dmm.Bridge()),
    "tau-leaping": step(dmm.TauLeaping()),
}


def measure(name: str, process: dmm.Chain, batch: int, repeats: int) -> dict:
    """Time and memory of one task on a batch of points."""
    d = process.data.shape[0]
    task = jax.vmap(TASKS[name], (0, None, 0, 0))
    output = 0.1 * jax.random.normal(jax.random.key(0), (batch, d, 2))
    x = jax.random.randint(jax.random.key(1), (batch, d), 0, STATES, jnp.int32)
    arguments = (output, process, jax.random.split(jax.random.key(2), batch), x)
    compiled = eqx.filter_jit(task).lower(*arguments).compile()
    memory = compiled.compiled.memory_analysis().temp_size_in_bytes
    (best,) = seconds([lambda: compiled(*arguments)], repeats=repeats)
    largest = largest_array(lambda *args: task(args[0], process, *args[1:]), output, *arguments[2:])
    return {
        "task": name, "coordinates": d, "batch": batch, "milliseconds": 1e3 * best,
        "memory_MB": memory / 1e6, "largest_array": largest,
        "all_rows_MB": 4e-6 * batch * d * STATES,
        "products_GFLOP": 2e-9 * PRODUCTS[name] * batch * d * STATES**2,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=1, help="points at a time")
    parser.add_argument("--chunk", type=int, help="coordinates at a time, not the default")
    parser.add_argument("--precision", help="of matrix products, as tensorfloat32")
    parser.add_argument("--json", help="write the figures to this file")
    arguments = parser.parse_args()
    rows = []
    with jax.default_matmul_precision(arguments.precision):
        for d in COORDINATES:
            space = dmm.Finite(d, STATES, ordered=True)
            process = dmm.OrdinalChain(space, chunk=arguments.chunk)
            for name in TASKS:
                rows.append(measure(name, process, arguments.batch, repeats=2))
                row = rows[-1]
                print(
                    f"{name:18} D {d:7} {row['milliseconds']:9.1f} ms {row['memory_MB']:8.1f} MB"
                    f" (all rows {row['all_rows_MB']:6.1f} MB)  largest {row['largest_array']}"
                    f"  products {row['products_GFLOP']:6.1f} GFLOP"
                )
    if arguments.json:
        found = {
            "device": jax.devices()[0].device_kind,
            "python": platform.python_version(),
            "jax": jax.__version__,
            "chunk": arguments.chunk,
            "precision": arguments.precision or "float32",
            "rows": rows,
        }
        with open(arguments.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
