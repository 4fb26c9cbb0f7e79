"""Training on several processes, on one machine or many, that JAX connects."""

import threading
import zlib
from typing import Any

import jax
import numpy as np

from .._checks import at_least, positive

# A process that is not heard of for so long is taken for dead, and the others stop.
HEARTBEAT_SECONDS = 20
NEVER = 10**6


class HostsError(ConnectionError):
    """The processes of a run cannot reach each other, or disagree about what to do."""


def distribute(
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    timeout: float = 300.0,
) -> None:
    """Join the processes that train together; call it first, in each of them.

    `coordinator` is "host:port" of process 0, where any free port will do, `processes` how many
    there are and `process` the number of this one, from 0. Left out, they are taken from SLURM,
    Kubernetes or Open MPI. `fit` then trains on the devices of all.
    """
    given = (coordinator, processes, process)
    if any(part is None for part in given) and given != (None, None, None):
        raise ValueError("coordinator, processes, process: pass all three, or none on a cluster")
    if coordinator is not None:
        _check(coordinator, processes, process)
    positive(timeout=timeout)
    if jax.distributed.is_initialized():
        raise ValueError("distribute: was called before; once in each process is enough")
    who = "the coordinator" if coordinator is None else f"the coordinator {coordinator}"
    local = coordinator is not None and coordinator.startswith(("127.", "localhost:"))
    failed: list[BaseException] = []

    def connect():
        try:
            jax.distributed.initialize(
                coordinator,
                processes,
                process,
                cluster_detection_method=None if coordinator is None else "deactivate",
                initialization_timeout=NEVER,
                coordinator_bind_address=coordinator if local else None,
                heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
                shutdown_timeout_seconds=2 * HEARTBEAT_SECONDS,
            )
        except BaseException as error:
            failed.append(error)

    # JAX ends the process when its own time is up, with a trace and no way to say more: so it
    # waits in a thread, and the time is kept here.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        missing = "not all processes came" if process == 0 else "no answer"
        raise HostsError(
            f"coordinator: {missing} at {who} within {timeout:.0f} s; check that all "
            f"{processes or 'the'} processes run, name the same host and port, and can reach it"
        )
    if failed:
        reason = " ".join(str(failed[0]).split())
        if coordinator is None and isinstance(failed[0], ValueError):
            reason = "no cluster found (SLURM, Kubernetes, Open MPI)"
        raise HostsError(
            f"coordinator: {reason}; pass coordinator='host:port', processes and process"
        ) from failed[0]


def several() -> bool:
    """Whether this process is one of several."""
    return jax.process_count() > 1


def first() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def agree(text: str, what: str) -> None:
    """Make sure that all processes are about to do the same."""
    if not several():
        return
    from jax.experimental.multihost_utils import process_allgather

    digests = process_allgather(np.asarray(zlib.crc32(text.encode()), np.uint32))
    if len(set(digests.ravel().tolist())) > 1:
        raise ValueError(f"{what}: differs between processes; call all with the same")


def from_first(value: Any) -> Any:
    """Process 0's arrays, on all of them."""
    if not several():
        return value
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return jax.tree.map(np.asarray, broadcast_one_to_all(value))


def text_from_first(text: str) -> str:
    """Process 0's text, on all of them."""
    padded = np.frombuffer(text.encode().ljust(4096), np.uint8)
    return from_first(padded).tobytes().decode().rstrip()


def joined(rows: Any) -> Any:
    """The rows of all processes, one after the other."""
    if not several():
        return rows
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(rows, tiled=True)


def lost(error: Exception) -> HostsError:
    """What to say of an error in what processes compute together: most often one of them died."""
    reason = " ".join(str(error).split())[:200]
    return HostsError(
        "another process of this run has died or cannot be reached; start all of them again, or "
        f"one alone, to go on from the last checkpoint ({reason})"
    )


def _check(coordinator: str, processes: int | None, process: int | None) -> None:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"coordinator: expected host:port, as 10.0.0.1:1234, got {coordinator!r}")
    at_least(1, processes=processes)
    at_least(0, process=process)
    if process >= processes:  # type: ignore[operator]
        raise ValueError(f"process: must be less than processes={processes}, got {process}")
