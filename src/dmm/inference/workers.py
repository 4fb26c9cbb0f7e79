"""Python simulators in parallel processes that can be stopped."""

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import _worker
from .._worker import receive, send

START = 120.0  # seconds that a process has to import what the simulator needs
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Outcome(NamedTuple):
    """What simulation number `index` returned, or why it did not."""

    index: int
    value: Any
    error: str | None


class Workers:
    """Processes that call a simulator, each simulation for at most `timeout` seconds.

    A process that hangs or dies is replaced, and only its simulation is lost. They are fresh
    interpreters, so scripts need no guard, and are told the simulator by value (cloudpickle), so
    it may be defined anywhere.
    """

    def __init__(self, simulator: Callable, count: int, timeout: float | None):
        # A tenth of a second to import, for this alone.
        import cloudpickle

        try:
            self.simulator = cloudpickle.dumps(simulator)
        except Exception as error:
            raise ValueError(
                f"simulator: cannot be sent to other processes ({type(error).__name__}: {error}); "
                "let it open what it needs itself, or make the simulations and pass them as "
                "simulations=(theta, x)"
            ) from error
        self.count, self.timeout = count, timeout

    def run(self, tasks: Iterator[tuple[int, Any, Any]]) -> Generator[Outcome, None, None]:
        """Outcomes of tasks (index, θ, seed), as they come."""
        busy: dict[Any, tuple[int, float]] = {}
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:

            def start() -> None:
                """A new process at work on the next task, if there is one."""
                if (task := next(tasks, None)) is not None:
                    process = stack.enter_context(self._process())
                    selector.register(process.stdout, selectors.EVENT_READ, process)
                    hand_out(process, task)

            def hand_out(process, task) -> None:
                index, *question = task
                # Of one that has just died the end of its output tells.
                with contextlib.suppress(BrokenPipeError):
                    send(process.stdin, tuple(question))
                busy[process] = index, time.monotonic()

            def dismiss(process) -> None:
                selector.unregister(process.stdout)
                _end(process)

            for _ in range(self.count):
                start()
            while busy:
                for event, _ in selector.select(timeout=0.2):
                    process = event.data
                    index, _ = busy.pop(process)
                    answer = receive(process.stdout)
                    if answer is None:
                        dismiss(process)
                        yield Outcome(index, None, f"its process ended, code {process.wait()}")
                        start()
                        continue
                    yield Outcome(index, *answer)
                    if (task := next(tasks, None)) is not None:
                        hand_out(process, task)
                    else:
                        dismiss(process)
                for process in self._late(busy, selector):
                    index, _ = busy.pop(process)
                    dismiss(process)
                    yield Outcome(index, None, f"took longer than {self.timeout:g} s")
                    start()

    def _late(self, busy: dict[Any, tuple[int, float]], selector: Any) -> list[Any]:
        """Processes beyond their time, but for those whose answer waits to be read."""
        if self.timeout is None:
            return []
        latest = time.monotonic() - self.timeout
        answered = {event.data for event, _ in selector.select(timeout=0)}
        return [p for p, (_, since) in busy.items() if since < latest and p not in answered]

    @contextlib.contextmanager
    def _process(self) -> Iterator[Any]:
        """A process that has the simulator; killed at the end."""
        process: Any = subprocess.Popen(
            [sys.executable, str(Path(_worker.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # One thread each: the processes are the parallelism. And no accelerator, of which JAX
            # in each would take most of the memory.
            env={"JAX_PLATFORMS": "cpu"} | os.environ | dict.fromkeys(THREADS, "1"),
        )
        try:
            with contextlib.suppress(BrokenPipeError):
                send(process.stdin, sys.path)
                send(process.stdin, self.simulator)
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                ready = selector.select(START)
            answer = receive(process.stdout) if ready else (None, f"not ready after {START:g} s")
            if answer is None or answer[1] is not None:
                why = "the process ended" if answer is None else answer[1]
                raise RuntimeError(f"simulator: cannot be called in another process: {why}")
            yield process
        finally:
            _end(process)


def _end(process: Any) -> None:
    """Stop a process, if it runs still, and close its pipes."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            pipe.close()
