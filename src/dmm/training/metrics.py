"""A fit's metrics as JSON lines."""

import json
import os
import time
from pathlib import Path
from typing import Self

from .costs import Meter


class Metrics:
    """Appends to `metrics.jsonl` in a folder, about once a second; without a folder, to nowhere."""

    def __init__(self, folder: Path | None, step: int):
        self.path = None if folder is None else folder / "metrics.jsonl"
        self.step = step
        self.validation: float | None = None
        self.meter: Meter | None = None
        self._file, self._from = None, (step, time.monotonic())

    def __enter__(self) -> Self:
        if self.path is not None:
            kept = [line for line in read_metrics(self.path) if line["step"] <= self.step]
            # What a killed run logged beyond its last checkpoint will be logged again.
            scratch = self.path.with_suffix(".tmp")
            scratch.write_text("".join(json.dumps(line) + "\n" for line in kept))
            os.replace(scratch, self.path)
            self._file = self.path.open("a")
        return self

    def __exit__(self, *_) -> None:
        if self._file is not None:
            self._file.close()

    def log(self, step: int, loss: float, gradient: float) -> None:
        """Write a line, unless one was written less than a second ago."""
        since, seconds = self._from[0], time.monotonic() - self._from[1]
        if self._file is None or seconds < 1.0:
            return
        line = {"step": step, "loss": loss, "gradient": gradient}
        if self.validation is not None:
            line["validation"] = self.validation
        line["steps_per_second"] = (step - since) / seconds
        if self.meter is not None:
            line |= self.meter.rates(line["steps_per_second"])
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        self._from = (step, time.monotonic())


def read_metrics(path: Path) -> list[dict]:
    """The lines of a metrics file; a last line cut short by a kill is left out."""
    if not path.exists():
        return []
    lines = []
    for line in path.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines
