"""A run of an experiment is a folder: settings, metrics, fits, figures, samples, results, report.

    settings.json    experiment, preset, settings, dmm's version, creation time
    metrics.jsonl    what the experiment logged, one JSON object a line
    <fit>/           one folder a fit: checkpoints/, metrics.jsonl and, when finished, model.dmm
    figures/*.png
    samples/*.npz    and *.txt, which the report shows
    results.json     when finished: the closing table, seconds, versions, device
    report.html

A file is written whole or not at all, so a killed run can be read and resumed.
"""

import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from . import __version__

# Raised when settings.json changes so that an older dmm would misread it.
FORMAT = 1
SETTINGS, METRICS, RESULTS, MODEL = "settings.json", "metrics.jsonl", "results.json", "model.dmm"
FIGURES, SAMPLES = "figures", "samples"

Table = list[dict[str, Any]]


class RunError(Exception):
    """A run that cannot be made or read; the message is one line and names the fix."""


@dataclass(frozen=True)
class Run:
    """A run's folder. Make one with `create`, come back to it with `open`."""

    path: Path
    experiment: str
    preset: str
    settings: dict[str, Any]
    about: str  # the experiment's description, for the report
    created: str  # ISO 8601
    version: str  # of the dmm that made it
    writes: bool = True  # of several processes, one does

    @staticmethod
    def create(
        root: str | Path,
        experiment: str,
        preset: str,
        settings: Mapping[str, Any],
        *,
        about: str = "",
    ) -> "Run":
        """A new folder `root/<experiment>-<preset>-<time>` with its settings.json."""
        plain = _plain(settings)
        if plain != dict(settings):  # a resumed run must get back what it was given
            raise RunError(f"settings {plain}: give finite numbers, text, booleans or None")
        now = datetime.now()
        record = {
            "format": FORMAT,
            "experiment": experiment,
            "preset": preset,
            "about": about,
            "settings": plain,
            "created": _now(),
            "version": __version__,
            "starts": [],
        }
        try:
            path = _new_folder(Path(root), f"{experiment}-{preset}-{now:%Y%m%d-%H%M%S}")
            _write_json(path / SETTINGS, record)
        except OSError as error:
            problem = f"cannot make a run in {root} ({error.strerror})"
            raise RunError(f"{problem}: choose another folder with --out") from error
        return Run.open(path)

    @staticmethod
    def open(path: str | Path) -> "Run":
        """The run in an existing folder."""
        path = Path(path)
        if not path.exists():
            raise RunError(f"{path} does not exist: give the folder that `dmm run` printed")
        if not (path / SETTINGS).is_file():
            inside = sorted(found.parent for found in path.glob(f"*/{SETTINGS}"))
            hint = f"a run's, such as {inside[-1]}" if inside else "the one that `dmm run` printed"
            raise RunError(f"{path} is not a run (no {SETTINGS}): give a folder, {hint}")
        record = _read_json(path / SETTINGS)
        fields = ("experiment", "preset", "about", "created", "version")
        try:
            if record["format"] > FORMAT:
                raise RunError(f"{path} was made by a newer dmm, {record.get('version')}: upgrade")
            settings = dict(record["settings"])
            return Run(path, settings=settings, **{field: record[field] for field in fields})
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path / SETTINGS) from error

    @property
    def finished(self) -> bool:
        return (self.path / RESULTS).is_file()

    @property
    def results(self) -> dict[str, Any] | None:
        """The contents of results.json: `table`, `seconds`, `versions`, ...; None until then."""
        return _read_json(self.path / RESULTS) if self.finished else None

    @property
    def starts(self) -> list[str]:
        """When the run was started and, after interruptions, resumed."""
        return list(_read_json(self.path / SETTINGS).get("starts", []))

    @property
    def fits(self) -> list[str]:
        """The names of the fits that logged something."""
        return sorted(found.parent.name for found in self.path.glob(f"*/{METRICS}"))

    @property
    def models(self) -> dict[str, Path]:
        """The finished models, by the name of their fit."""
        return {found.parent.name: found for found in sorted(self.path.glob(f"*/{MODEL}"))}

    def begin(self) -> None:
        """Note that the run starts, or starts again."""
        if not self.writes:
            return
        record = _read_json(self.path / SETTINGS)
        _write_json(self.path / SETTINGS, record | {"starts": [*self.starts, _now()]})

    def log(self, **values: Any) -> None:
        """Append one line to metrics.jsonl."""
        if not self.writes:
            return
        line = json.dumps(_plain(values), allow_nan=False) + "\n"
        with open(self.path / METRICS, "ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    line = "\n" + line  # a kill left half a line: do not join it
            file.write(line.encode())

    def metrics(self, fit: str | None = None) -> list[dict[str, Any]]:
        """What was logged, by the experiment or by one of its fits."""
        path = self.path / (fit or "") / METRICS
        found = []
        for line in path.read_text("utf-8", "replace").splitlines() if path.is_file() else ():
            with contextlib.suppress(ValueError):  # lines cut short by a kill
                found.append(json.loads(line))
        return [entry for entry in found if isinstance(entry, dict)]

    def folder(self, name: str) -> Path:
        """The folder of one fit, to be passed as `dmm.fit(run=...)`."""
        _check_name(name)
        if name in (FIGURES, SAMPLES):
            raise ValueError(f"a fit cannot be called {name!r}: the run keeps its {name} there")
        return _made(self.path / name)

    def figure(self, name: str, figure: Any) -> Path:
        """Save a Matplotlib figure as figures/<name>.png."""
        _check_name(name)
        path = _made(self.path / FIGURES) / f"{name}.png"
        if self.writes:
            with atomic(path) as file:
                figure.savefig(file, format="png", dpi=150)
        return path

    def save_samples(self, name: str, samples: Any) -> Path:
        """Save an array, or a tuple of arrays, as samples/<name>.npz."""
        _check_name(name)
        path = _made(self.path / SAMPLES) / f"{name}.npz"
        return write_samples(path, samples) if self.writes else path

    def save_text(self, name: str, text: str) -> Path:
        """Save text as samples/<name>.txt; the report shows it."""
        _check_name(name)
        path = _made(self.path / SAMPLES) / f"{name}.txt"
        if self.writes:
            with atomic(path) as file:
                file.write(text.encode())
        return path

    def finish(self, table: Sequence[Mapping[str, Any]], seconds: float) -> None:
        """Write results.json. `seconds` is the time since the last start."""
        if not self.writes:
            return
        results = {
            "table": list(table),
            "seconds": seconds,
            "starts": self.starts,
            "finished": _now(),
            "versions": _versions(),
            "device": _device(),
            "platform": platform.platform(),
        }
        _write_json(self.path / RESULTS, results)


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name only once it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_samples(path: Path, samples: Any) -> Path:
    """An .npz with `samples`, or with `samples_0`, `samples_1`, ... for a tuple of factors."""
    import numpy as np

    arrays: dict[str, Any] = {name: np.asarray(a) for name, a in _arrays("samples", samples)}
    with atomic(path) as file:
        np.savez(file, **arrays)
    return path


def unused(path: Path) -> Path:
    """The path itself, or the first of path-2, path-3, ... that is free."""
    numbered = (path.with_name(f"{path.stem}-{count}{path.suffix}") for count in itertools.count(2))
    return next(found for found in itertools.chain([path], numbered) if not found.exists())


def _arrays(name: str, samples: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(samples, tuple | list):
        for index, factor in enumerate(samples):
            yield from _arrays(f"{name}_{index}", factor)
    else:
        yield name, samples


def _new_folder(root: Path, name: str) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    while True:
        path = unused(root / name)
        with contextlib.suppress(FileExistsError):  # another run took the name meanwhile
            path.mkdir()
            return path


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _check_name(name: str) -> None:
    if not name or name.startswith(".") or Path(name).name != name:
        raise ValueError(f"{name!r} is not a plain file name: leave out slashes and leading dots")


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays become lists, non-finite numbers text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    if isinstance(value, Path):
        return str(value)
    if getattr(value, "ndim", None) == 0:  # NumPy's and JAX's scalars, bfloat16 too
        value = value.item()
        return _plain(value if isinstance(value, bool | int | float | str) else float(value))
    if hasattr(value, "tolist"):
        return [_plain(entry) for entry in value]
    raise TypeError(f"cannot write a {type(value).__name__} as JSON: give numbers, text or arrays")


def _write_json(path: Path, value: Any) -> None:
    text = json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False)
    with atomic(path) as file:
        file.write(text.encode() + b"\n")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path) from error
    if not isinstance(value, dict):
        raise _damaged(path)
    return value


def _damaged(path: Path) -> RunError:
    return RunError(f"{path} is damaged: restore it, or start again with `dmm run`")


def _versions() -> dict[str, str]:
    installed = {name: importlib.metadata.version(name) for name in ("jax", "equinox", "numpy")}
    return {"python": platform.python_version(), "dmm": __version__} | installed


def _device() -> str | None:
    """The accelerator's kind; None where the experiment did not use JAX."""
    if "jax" in sys.modules:
        with contextlib.suppress(RuntimeError):  # losing the device must not cost the results
            return sys.modules["jax"].devices()[0].device_kind
    return None
