"""Threads that end by themselves."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Crew:
    """Up to `size` threads for the tasks at hand.

    A thread ends when no task is left. So whoever hands in finitely many leaves none behind,
    however their own work ended, and whether or not anything was closed.
    """

    def __init__(self, size: int):
        self.size = size
        self._tasks: deque[tuple[Future, Callable, tuple]] = deque()
        self._running = 0
        self._lock = threading.Lock()

    def submit(self, task: Callable, *args: Any) -> Future:
        """What the task returns or raises, in time."""
        future: Future = Future()
        with self._lock:
            self._tasks.append((future, task, args))
            if self._running < self.size:
                threading.Thread(target=self._work, name="dmm-crew").start()
                self._running += 1
        return future

    def cancel(self) -> None:
        """Drop the tasks that nobody has begun."""
        with self._lock:
            dropped = list(self._tasks)
            self._tasks.clear()
        for future, *_ in dropped:
            future.cancel()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._running -= 1
                    return
                future, task, args = self._tasks.popleft()
            try:
                future.set_result(task(*args))
            except BaseException as error:
                future.set_exception(error)
            del future, task, args  # or a result is kept as long as the next task takes
