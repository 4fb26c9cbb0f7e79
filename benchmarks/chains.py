"""How the loss of a chain grows with states S and coordinates D: time and memory, network apart.

    python benchmarks/chains.py [--json FILE] [--figure FILE]

Noising, head, score entropy and its gradient w.r.t. the network's output, for one point. Memory is
what the compiled program needs besides its arguments, in units of D·S numbers: it stays bounded.
"""

import argparse
import json
import platform
import time

import jax

import dmm

STATES = (2, 4, 16, 64, 256, 1024)
COORDINATES = (16, 64, 256, 1024, 4096, 16_384)
FIXED_STATES, FIXED_COORDINATES = 64, 256
KINDS = {
    "absorbing": lambda space: dmm.AbsorbingChain(space),
    "uniform": lambda space: dmm.UniformChain(space),
    "ordinal": lambda space: dmm.OrdinalChain(space),
}


def measure(kind: str, states: int, coordinates: int) -> dict:
    """Milliseconds and memory of one evaluation of loss and gradient."""
    process = KINDS[kind](dmm.Finite(coordinates, states, ordered=True))
    head = dmm.PriorLogits()
    x0 = jax.random.randint(jax.random.key(0), (coordinates,), 0, states)
    output = jax.random.normal(jax.random.key(1), (coordinates, states))

    def loss(output, process, key):
        def score(x, tau):
            return head.score(process, output, x, tau)

        return dmm.denoising(process, score, key, x0, 0.1 * process.horizon)

    arguments = (output, process, jax.random.key(2))
    compiled = jax.jit(jax.value_and_grad(loss)).lower(*arguments).compile()
    memory = compiled.memory_analysis().temp_size_in_bytes
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        best = min(best, time.perf_counter() - start)
    numbers = memory / (4 * coordinates * states)
    return {
        "process": kind, "states": states, "coordinates": coordinates,
        "milliseconds": 1e3 * best, "memory_in_DS_numbers": numbers,
    }  # fmt: skip


def draw(rows: list[dict], path: str) -> None:
    """Time against S and against D, a line a process."""
    from dmm.plots import figure

    result, axes = figure(1, 2, size=(3.6, 2.9))
    cases = (("states", "coordinates", FIXED_COORDINATES), ("coordinates", "states", FIXED_STATES))
    for ax, (along, other, fixed) in zip(axes[0], cases, strict=True):
        for kind in KINDS:
            chosen = [r for r in rows if r["process"] == kind and r[other] == fixed]
            chosen = sorted({r[along]: r for r in chosen}.values(), key=lambda r: r[along])
            ax.plot(
                [r[along] for r in chosen], [r["milliseconds"] for r in chosen], "o-", label=kind
            )
        ax.set(xscale="log", yscale="log", xlabel=along, title=f"{fixed} {other}")
        ax.set_ylabel("milliseconds a point")
    axes[0, 0].legend()
    result.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--figure", help="draw them to this file")
    arguments = parser.parse_args()
    sizes = [(s, FIXED_COORDINATES) for s in STATES] + [(FIXED_STATES, d) for d in COORDINATES]
    rows = [measure(kind, s, d) for kind in KINDS for s, d in dict.fromkeys(sizes)]
    for row in rows:
        print(
            f"{row['process']:10} S {row['states']:5} D {row['coordinates']:6}"
            f" {row['milliseconds']:9.3f} ms {row['memory_in_DS_numbers']:7.1f} D·S numbers"
        )
    device = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    device["python"] = platform.python_version()
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump({**device, "rows": rows}, file, indent=1)
    if arguments.figure:
        draw(rows, arguments.figure)


if __name__ == "__main__":
    main()
