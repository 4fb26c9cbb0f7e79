"""The command line, `dmm`. It imports JAX only when an experiment or a model needs it."""

import contextlib
import dataclasses
import inspect
import os
import sys
import types
import typing
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from typer.core import TyperCommand, TyperGroup

from . import __version__, experiments, report
from .experiments import Experiment
from .runs import SAMPLES, Run, RunError, Table, unused, write_samples

# What the user can mend (training that diverges is an ArithmeticError); a bug keeps its traceback.
_EXPECTED = (RunError, ValueError, OSError, ArithmeticError)


class _Commands(TyperGroup):
    """The root group: an expected error is one line on stderr and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # `dmm list | head`: Typer ends quietly
            raise
        except KeyboardInterrupt as error:
            raise _failure(str(error) or "interrupted", code=130) from error
        except _EXPECTED as error:
            if os.environ.get("DMM_DEBUG") == "1":
                raise
            raise _failure(str(error) or type(error).__name__) from error


class _Experiments(TyperGroup):
    """`dmm run`: one command an experiment, made from its signature when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return experiments.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that the list of commands can show without importing the experiment."""
        if cmd_name not in experiments.names():
            return None
        text = escape(experiments.summary(cmd_name))
        return TyperCommand(cmd_name, help=text, rich_help_panel="Experiments")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command. Completing a name half typed is no error; running it is."""
        name, *rest = args
        if ctx.resilient_parsing and name not in experiments.names():
            return None, None, rest
        return name, _experiment_command(experiments.load(name)), rest


_OPTIONS: dict[str, Any] = {
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "add_completion": False,
}
_Out = Annotated[Path, typer.Option(help="Folder that holds the runs.")]
_RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
# How to run, apart from what: options of `run` and `resume`.
_Coordinator = Annotated[
    str | None,
    typer.Option(
        envvar="DMM_COORDINATOR",
        rich_help_panel="Scale",
        help="One of several processes: host:port of the first; or `auto`, from the cluster.",
    ),
]
_Processes = Annotated[
    int | None,
    typer.Option(envvar="DMM_PROCESSES", rich_help_panel="Scale", help="How many there are."),
]
_Process = Annotated[
    int | None,
    typer.Option(envvar="DMM_PROCESS", rich_help_panel="Scale", help="Which this is, from 0."),
]
_Profile = Annotated[
    Path | None,
    typer.Option(rich_help_panel="Scale", help="Folder for a profiler's trace of some steps."),
]
_SCALE = {
    "coordinator": _Coordinator,
    "processes": _Processes,
    "process": _Process,
    "profile": _Profile,
}

app = typer.Typer(cls=_Commands, no_args_is_help=True, **_OPTIONS)
app.add_typer(
    typer.Typer(cls=_Experiments, no_args_is_help=True, **_OPTIONS),
    name="run",
    subcommand_metavar="NAME [SETTINGS]...",
    help="Run an experiment. `dmm run NAME --help` shows its settings.",
)


def _version(wanted: bool) -> None:
    if wanted:
        _say(f"dmm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Denoising Markov models: generative models and posterior inference on any state space."""


@app.command("list")
def list_() -> None:
    """List the experiments."""
    table = RichTable("experiment", "presets", "summary")
    for name in experiments.names():
        presets = ", ".join(experiments.preset_names(name))
        table.add_row(name, escape(presets), escape(experiments.summary(name)))
    _console().print(table)


@app.command()
def demo(out: _Out = Path("runs")) -> None:
    """Every space, small, with pictures: minutes on a laptop."""
    _execute(experiments.start("demo", root=out))


@app.command()
def resume(
    run: _RunFolder,
    coordinator: _Coordinator = None,
    processes: _Processes = None,
    process: _Process = None,
    profile: _Profile = None,
) -> None:
    """Go on with an interrupted run."""
    _join(coordinator, processes, process, profile)
    opened = _shared(lambda: Run.open(run))
    if not opened.finished:
        _execute(opened)
        return
    if opened.writes:
        _say(f"{run} is finished")
        report.write(opened)
    _show(opened)


@app.command()
def sample(
    run: _RunFolder,
    n: Annotated[int, typer.Option("-n", min=1, help="How many samples.")] = 1000,
    model: Annotated[str | None, typer.Option(help="Which fit, if the run has several.")] = None,
    out: Annotated[Path | None, typer.Option(help="The .npz; by default in RUN/samples.")] = None,
    seed: Annotated[int, typer.Option(help="Of the random key.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Of the sampler.")] = None,
    given: Annotated[Path | None, typer.Option(help="The observation, .npy or .npz.")] = None,
) -> None:
    """Draw from a run's model."""
    opened = Run.open(run)
    name = _choose_model(opened, model)
    path = _sample_path(opened, name, out)
    options = {"steps": steps, "given": None if given is None else _observation(given)}

    import jax

    import dmm

    loaded = dmm.load(opened.models[name])
    chosen = {option: value for option, value in options.items() if value is not None}
    samples = loaded.sample(jax.random.key(seed), n, **chosen)
    replaced = " (replaced)" if path.exists() else ""
    _say(f"{write_samples(path, samples)}{replaced}")


@app.command("report")
def report_(runs: Annotated[list[Path], typer.Argument(metavar="RUN...")]) -> None:
    """Write a page with a run's figures, tables and settings; of several runs, one page."""
    opened = [Run.open(run) for run in runs]
    if len(opened) == 1:
        _say(str(report.write(opened[0])))
    else:
        folder = Path(os.path.commonpath([run.path.absolute().parent for run in opened]))
        _say(str(report.write_many(opened, folder / report.NAME)))


def main() -> None:
    """The entry point."""
    try:
        app(prog_name="dmm")
    except SystemExit as end:
        if end.code and _one_of_several():
            os._exit(1)  # JAX would wait for the others, of whom one may be gone
        raise


def _experiment_command(experiment: Experiment) -> Any:
    """A command whose options are the experiment's settings."""

    def command(ctx: typer.Context, preset: str, out: Path, **settings: Any) -> None:
        _join(**{name: settings.pop(name) for name in _SCALE})
        explicit = {
            name: value
            for name, value in settings.items()
            if (source := ctx.get_parameter_source(name)) and source.name != "DEFAULT"
        }
        options = {"preset": preset, "root": out, "settings": explicit}
        _execute(_shared(lambda: experiments.start(experiment.name, **options)))

    hints = typing.get_type_hints(experiment.function)
    preset = typer.Option(help="A set of settings; the options below beat it.")
    parameters = [
        _parameter("ctx", typer.Context),
        _parameter(
            "preset",
            Annotated[Literal[tuple(experiment.presets)], preset],
            experiments.DEFAULT_PRESET,
        ),
        _parameter("out", _Out, Path("runs")),
        *(_parameter(name, annotation, None) for name, annotation in _SCALE.items()),
    ]
    for name, default in experiment.defaults.items():
        values = [f"{preset} {value}" for preset, value in experiment.presets_of(name).items()]
        text = escape(f"Presets: {', '.join(values)}.") if values else ""
        parameters.append(_parameter(name, _option(hints[name], default, text), default))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    holder = typer.Typer(**_OPTIONS)
    holder.command(experiment.name, help=escape(experiments.description(experiment.name)))(command)
    return typer.main.get_command(holder)


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> Any:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _option(hint: Any, default: Any, help: str) -> Any:
    """An option of the hint's type; a number or text that may be None also takes `none`."""
    extra: dict[str, Any] = {}
    kinds = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    if types.NoneType in typing.get_args(hint) and kinds[0] in (int, float, str):
        extra = {
            "parser": lambda value: None if value == "none" else kinds[0](value),
            "metavar": f"<{kinds[0].__name__}|none>",
            "show_default": "none" if default is None else True,
        }
    return Annotated[hint, typer.Option(help=help, rich_help_panel="Settings", **extra)]


def _execute(run: Run) -> None:
    if run.writes:
        _say(f"run     {run.path}")
    try:
        experiments.execute(run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted: go on with `dmm resume {run.path}`") from None
    _show(run)


def _join(
    coordinator: str | None, processes: int | None, process: int | None, profile: Path | None
) -> None:
    """Be one of several processes, if so asked; before JAX looks for devices."""
    if profile is not None:
        os.environ["DMM_PROFILE"] = str(profile)
    if coordinator is not None:
        from .training.hosts import distribute

        if coordinator == "auto":
            distribute()
        else:
            distribute(coordinator, processes, process)
    elif (processes, process) != (None, None):
        raise RunError("--processes, --process: give --coordinator HOST:PORT too, or auto")


def _shared(make: Callable[[], Run]) -> Run:
    """A run that the first process makes or finds, for all of them."""
    if not _one_of_several():
        return make()
    from .training import hosts

    run = make() if hosts.first() else None
    path = hosts.text_from_first("" if run is None else str(run.path.absolute()))
    return run or dataclasses.replace(Run.open(path), writes=False)


def _one_of_several() -> bool:
    return "jax" in sys.modules and sys.modules["jax"].distributed.is_initialized()


def _show(run: Run) -> None:
    if not run.writes:
        return
    results = run.results
    rows: Table = results["table"] if results else []
    table = RichTable(title=f"{run.experiment} ({run.preset})", title_justify="left")
    for column in report.columns(rows):
        numeric = not any(isinstance(row.get(column), str) for row in rows)
        table.add_column(escape(column), justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(escape(report.cell(row.get(c))) for c in report.columns(rows)))
    if rows:
        _console().print(table)
    _say(f"run     {run.path}")
    _say(f"report  {run.path / report.NAME}")


def _choose_model(run: Run, name: str | None) -> str:
    models = list(run.models)
    if not models:
        raise RunError(f"{run.path} has no finished model: finish it with `dmm resume {run.path}`")
    if name in models or (name is None and len(models) == 1):
        return name or models[0]
    problem = "has several models" if name is None else f"has no model {name!r}"
    raise RunError(f"{run.path} {problem}: choose with --model from {', '.join(models)}")


def _sample_path(run: Run, name: str, out: Path | None) -> Path:
    """Where the samples go, made sure of before they are drawn."""
    path = unused(run.path / SAMPLES / f"{name}.npz") if out is None else out
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK) or not path.parent.is_dir():
        raise RunError(f"cannot write {path}: choose another file with --out")
    return path


def _observation(path: Path) -> Any:
    """The array of an .npy; of an .npz its only array, a tuple of unnamed ones, or a dict."""
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            arrays = dict(loaded)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise RunError(f"cannot read {path}: give an .npy or .npz file to --given") from error
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    unnamed = [f"arr_{index}" for index in range(len(arrays))]
    return tuple(arrays[name] for name in unnamed) if set(unnamed) == set(arrays) else arrays


def _console(*, stderr: bool = False) -> Console:
    """Made afresh: it looks at once whether the stream is a terminal."""
    console = Console(stderr=stderr)
    # A file or a pipe has no width to keep to: do not break its lines.
    return console if console.is_terminal else Console(stderr=stderr, width=max(console.width, 200))


def _say(text: str, *, stderr: bool = False) -> None:
    _console(stderr=stderr).print(text, soft_wrap=True, markup=False, highlight=False)


def _failure(message: str, *, code: int = 1) -> typer.Exit:
    _say(f"dmm: {' '.join(message.split())}", stderr=True)
    return typer.Exit(code)
