"""What a run costs: operations, memory, and a trace of where the time goes."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import jax

PROFILE = "DMM_PROFILE"  # the environment's word for fits whose caller names no folder
# Dense bfloat16 operations a second, from NVIDIA's data sheets (which also give twice as many, for
# sparse matrices): A100 (2021), H100 SXM, NVL and PCIe (2023), H200 (2024).
PEAKS = {
    "A100": 312e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200 NVL": 835e12,
    "H200": 989e12,
}


def peak(device: Any) -> float | None:
    """Operations a second that a device can do at best, where that is known."""
    return next((rate for name, rate in PEAKS.items() if name in device.device_kind), None)


def peak_memory() -> int | None:
    """Bytes that the fullest of this process's devices held at most, where that is known."""
    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max((s["peak_bytes_in_use"] for s in stats if "peak_bytes_in_use" in s), default=None)


def flops(function: Callable, *args: Any) -> int:
    """Operations in the products of matrices and the convolutions of function(*args).

    Counted in the traced function: XLA's own count takes the body of a loop for one turn of it.
    """
    return _flops(jax.make_jaxpr(function)(*args).jaxpr)


@dataclass(frozen=True)
class Meter:
    """The examples of a step, and the operations of one over the best the devices could do."""

    examples: int
    least_seconds: float | None = None  # that a step takes devices which never wait

    def rates(self, steps_per_second: float) -> dict[str, float]:
        """What a line of metrics says of speed and memory."""
        line = {"examples_per_second": steps_per_second * self.examples}
        if self.least_seconds is not None:
            line["flop_utilisation"] = steps_per_second * self.least_seconds
        memory = peak_memory()
        if memory is not None:
            line["peak_memory_bytes"] = memory
        return line


def meter(examples: int, devices: int, parts: int, loss: Callable, *args: Any) -> Meter:
    """The meter of steps with a batch of so many examples, in parts of one `loss` each.

    A step is counted as three times the loss: forward, and twice as much backward. What is
    computed again to save memory does not count.
    """
    best = peak(jax.local_devices()[0])
    if best is None:
        return Meter(examples)
    return Meter(examples, 3 * parts * flops(loss, *args) / (best * devices))


def profiled(folder: str | os.PathLike | None) -> Path | None:
    """The folder for traces: the one given, or that of `dmm run --profile`."""
    chosen = os.environ.get(PROFILE) if folder is None else folder
    return None if chosen is None else Path(chosen)


class Tracing:
    """A profiler's trace of one block of steps: the second, since the first also compiles."""

    def __init__(self, folder: Path | None):
        self.folder, self.blocks, self.running = folder, 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        if self.running:
            jax.profiler.stop_trace()

    def begin(self, last: bool) -> None:
        """Before each block."""
        self.blocks += 1
        if self.folder is not None and (self.blocks == 2 or (last and self.blocks == 1)):
            jax.profiler.start_trace(self.folder)
            self.running = True

    def end(self, results: Any) -> None:
        """After each block."""
        if self.running:
            jax.block_until_ready(results)
            jax.profiler.stop_trace()
            self.running = False


def _flops(jaxpr: Any) -> int:
    return sum(_flops_of(equation) for equation in jaxpr.eqns)


def _flops_of(equation: Any) -> int:
    name, params = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return 2 * equation.outvars[0].aval.size * inner
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval
        outputs = kernel.shape[params["dimension_numbers"].rhs_spec[0]]
        return 2 * equation.outvars[0].aval.size * kernel.size // outputs
    if name == "cond":
        return max(_flops(branch.jaxpr) for branch in params["branches"])
    inside = [getattr(p, "jaxpr", p) for p in params.values() if hasattr(p, "eqns")]
    return params.get("length", 1) * sum(map(_flops, inside))
