"""Experiments of the paper, and the demo: one file each, imported only when it is run.

A file `mixture.py` defines a function of its own name and the presets:

    def mixture(run: Run, *, steps: int = 20_000, seed: int = 0) -> list[dict]: ...

    PRESETS = {"smoke": {"steps": 50}, "laptop": {}, "paper": {"steps": 200_000}}

Its keyword-only settings become options of `dmm run mixture`: int, float, bool, str, Literal, and
a number or text or None. A preset overrides their defaults. The function returns the closing table.
It may be called again on the folder of an interrupted run: each of its fits resumes itself.
"""

import ast
import difflib
import importlib
import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..report import write
from ..runs import Run, Table

PRESETS = ("smoke", "laptop", "paper")
DEFAULT_PRESET = "laptop"


class ExperimentError(ValueError):
    """An experiment that does not exist or breaks the protocol, or a setting it does not have."""


@dataclass(frozen=True)
class Experiment:
    """An imported experiment."""

    name: str
    function: Callable[..., Any]
    presets: Mapping[str, Mapping[str, Any]]

    @property
    def defaults(self) -> dict[str, Any]:
        """The function's settings and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def settings(self, preset: str, explicit: Mapping[str, Any]) -> dict[str, Any]:
        """Every setting: the explicit one, else the preset's, else the function's default."""
        if preset not in self.presets:
            raise ExperimentError(f"no preset {preset!r}: choose from {', '.join(self.presets)}")
        self.check(explicit)
        return {**self.defaults, **self.presets[preset], **explicit}

    def presets_of(self, setting: str) -> dict[str, Any]:
        """The values that presets give to a setting; those left out keep its default."""
        return {name: s[setting] for name, s in self.presets.items() if setting in s}

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that the function does not take."""
        unknown = [name for name in settings if name not in self.defaults]
        if unknown:
            raise ExperimentError(
                f"{self.name} has no setting {', '.join(unknown)}: "
                f"choose from {', '.join(self.defaults)}"
            )


def names() -> list[str]:
    """The experiments, by the names of their files."""
    files = (file for folder in __path__ for file in Path(folder).glob("*.py"))
    return sorted({file.stem for file in files if not file.stem.startswith("_")})


def summary(name: str) -> str:
    """The first line of an experiment's docstring, read without importing it."""
    return description(name).partition("\n")[0]


def description(name: str) -> str:
    """The first paragraph of an experiment's docstring, read without importing it."""
    return (ast.get_docstring(_tree(name)) or "").partition("\n\n")[0]


def preset_names(name: str) -> list[str]:
    """An experiment's presets, read without importing it."""
    for node in _tree(name).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and any(_is_presets(target) for target in targets):
            return [str(key.value) for key in value.keys if isinstance(key, ast.Constant)]
    return []


def load(name: str) -> Experiment:
    """Import an experiment."""
    _file(name)
    module = importlib.import_module(f"{__name__}.{name}")
    function, presets = getattr(module, name, None), getattr(module, "PRESETS", {})
    if not callable(function) or not set(PRESETS) <= set(presets):
        raise ExperimentError(
            f"{module.__file__} must define a function {name} and PRESETS with {', '.join(PRESETS)}"
        )
    experiment = Experiment(name, function, presets)
    for preset in presets.values():
        experiment.check(preset)
    return experiment


def start(
    name: str,
    *,
    preset: str = DEFAULT_PRESET,
    root: str | Path = "runs",
    settings: Mapping[str, Any] | None = None,
) -> Run:
    """The folder of a new run, ready for `execute`."""
    resolved = load(name).settings(preset, settings or {})
    return Run.create(root, name, preset, resolved, about=description(name))


def execute(run: Run) -> Table:
    """Run the experiment, or go on with it, to its closing table and report."""
    experiment = load(run.experiment)
    experiment.check(run.settings)
    run.begin()
    started = time.perf_counter()
    table = experiment.function(run, **run.settings)
    run.finish(table, time.perf_counter() - started)
    if run.writes:
        write(run)
    return table


def _file(name: str) -> Path:
    known = names()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ExperimentError(f"no experiment {name!r}: {hint}choose from {', '.join(known)}")
    return next(file for folder in __path__ if (file := Path(folder, f"{name}.py")).is_file())


def _tree(name: str) -> ast.Module:
    return ast.parse(_file(name).read_text(encoding="utf-8"))


def _is_presets(target: Any) -> bool:
    return isinstance(target, ast.Name) and target.id == "PRESETS"
