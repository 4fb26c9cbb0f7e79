"""Progress bars, quiet where nobody watches."""

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def track(items: Sequence[T], label: str) -> Iterable[T]:
    """The items, with a bar on a terminal if there are several."""
    if len(items) < 2 or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track as rich_track

    return rich_track(items, label, console=Console(stderr=True), transient=True)


@contextlib.contextmanager
def counting_bar(
    total: int, start: int, label: str, show: bool | None
) -> Iterator[Callable[[int, int], None]]:
    """A function `update(more, failed)`; shown on a terminal unless `show` says else."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda more, failed: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(label),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[failed]}"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(label, total=total, completed=start, failed="")

        def update(more: int, failed: int) -> None:
            bar.update(task, advance=more, failed=f"{failed} of no use" if failed else "")

        yield update


@contextlib.contextmanager
def training_bar(total: int, start: int, show: bool | None) -> Iterator[Callable[..., None]]:
    """A function `update(step, loss, validation)`; shown on a terminal unless `show` says else."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda step, loss, validation: None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("loss {task.fields[loss]}"),
        progress.TextColumn("{task.fields[validation]}"),
        progress.TextColumn("{task.fields[speed]}"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("fit", total=total, completed=start, loss="…", validation="", speed="")

        def update(step: int, loss: float, validation: float | None) -> None:
            speed = bar.tasks[0].speed
            bar.update(
                task,
                completed=step,
                loss=f"{loss:.4g}",
                validation="" if validation is None else f"validation {validation:.4g}",
                speed="" if speed is None else f"{speed:,.0f} steps/s",
            )

        yield update
