"""The command line, on a folder of made-up experiments that need no JAX."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import dmm
import dmm.cli as cli
import dmm.experiments as experiments
from dmm.runs import Run

TINY = '''
"""A tiny experiment of [two] brackets.

More about it.
"""

from typing import Literal

from dmm.runs import Run

PRESETS: dict[str, dict[str, object]] = {
    "smoke": {"steps": 5, "limit": 2},
    "laptop": {"steps": 50},
    "paper": {},
}


def tiny(
    run: Run,
    *,
    steps: int = 100,
    rate: float = 0.5,
    ema: bool = True,
    kind: Literal["a", "b"] = "a",
    limit: int | None = None,
    batch_size: int = 8,
    label: str = "x",
) -> list[dict]:
    again = run.path / "again"
    if label == "bad":
        raise ValueError("label: bad\\n  choose another")
    if label == "diverged":
        raise ArithmeticError("the loss is not finite")
    if label == "bug":
        raise AttributeError("a bug")
    if label == "stop" and not again.exists():
        again.touch()
        raise KeyboardInterrupt
    run.log(steps=steps)
    return [{"quantity": "steps [x]", "ours": steps, "paper": None}]
'''

BROKEN = '"""Cannot be imported."""\nraise RuntimeError("imported")\n'


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Only the made-up experiments exist, and `runs` is below a temporary folder."""
    path = tmp_path / "experiments"
    path.mkdir()
    (path / "tiny.py").write_text(TINY)
    (path / "demo.py").write_text(TINY.replace("def tiny", "def demo"))
    (path / "_hidden.py").write_text(BROKEN)
    monkeypatch.setattr(experiments, "__path__", [str(path)])
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS", "COLUMNS", "DMM_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    importlib.invalidate_caches()
    yield path
    for name in ("tiny", "demo"):
        sys.modules.pop(f"dmm.experiments.{name}", None)
        vars(experiments).pop(name, None)


def invoke(*args, code=0):
    result = CliRunner().invoke(cli.app, [str(arg) for arg in args], prog_name="dmm")
    assert result.exit_code == code, result.output
    return result


def fail(*args, code=1):
    """The single line that a failing command leaves on stderr."""
    result = invoke(*args, code=code)
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("\n")
    assert "Traceback" not in result.output
    return result.stderr


def only_run():
    (path,) = (path for path in Path("runs").iterdir() if path.is_dir())
    return Run.open(path)


@pytest.fixture
def finished(tmp_path):
    invoke("run", "tiny", "--preset", "smoke")
    return only_run()


def add_model(run, *names):
    for name in names:
        (run.folder(name) / "model.dmm").touch()


@pytest.fixture
def loaded(monkeypatch):
    """What `dmm sample` loads and asks for."""
    calls = []

    class Model:
        def sample(self, key, n, **options):
            calls.append({"n": n, **options})
            return np.arange(n), np.zeros((n, 2))

    def load(path):
        calls.append({"path": path})
        return Model()

    monkeypatch.setitem(vars(dmm), "load", load)
    return calls


def test_list_shows_summaries_and_presets_without_importing(folder):
    (folder / "broken.py").write_text(BROKEN)
    output = invoke("list").stdout
    assert "A tiny experiment of [two] brackets." in output
    assert "smoke, laptop, paper" in output
    assert "Cannot be imported." in output
    assert "_hidden" not in output


def test_help_of_run_does_not_import_the_experiments(folder):
    (folder / "broken.py").write_text(BROKEN)
    output = invoke("run", "--help").stdout
    assert "Cannot be imported." in output
    assert "A tiny experiment of [two] brackets." in output


def test_help_of_an_experiment_shows_types_defaults_and_presets():
    output = " ".join(invoke("run", "tiny", "--help").stdout.replace("│", " ").split())
    assert "Presets: smoke 5, laptop 50. [default: 100]" in output
    assert "--no-ema" in output
    assert "<a|b>" in output
    assert "--batch-size" in output
    assert "<int|none> Presets: smoke 2." in output


def test_the_version():
    assert invoke("--version").stdout == f"dmm {dmm.__version__}\n"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), {"steps": 50, "limit": None}),
        (("--preset", "smoke"), {"steps": 5, "limit": 2}),
        (("--preset", "paper"), {"steps": 100, "limit": None}),
        (("--preset", "smoke", "--steps", "7"), {"steps": 7, "limit": 2}),
        (("--preset", "smoke", "--steps", "100"), {"steps": 100, "limit": 2}),
        (("--preset", "smoke", "--limit", "none"), {"steps": 5, "limit": None}),
        (("--limit", "4", "--no-ema", "--kind", "b"), {"limit": 4, "ema": False, "kind": "b"}),
        (("--rate", "1e-3", "--batch-size", "2"), {"rate": 1e-3, "batch_size": 2}),
    ],
)
def test_options_beat_the_preset_which_beats_the_defaults(args, expected):
    invoke("run", "tiny", *args)
    settings = only_run().settings
    assert len(settings) == 7
    assert expected.items() <= settings.items()


def test_a_run_ends_with_its_table_folder_and_report(tmp_path):
    out = tmp_path / ("long" * 50)  # a path is never broken over two lines
    output = invoke("run", "tiny", "--out", out).stdout
    (path,) = out.iterdir()
    assert "steps [x]" in output
    assert f"run     {path}\n" in output
    assert f"report  {path / 'report.html'}\n" in output
    assert "\x1b" not in output
    assert (path / "report.html").is_file()
    results = json.loads((path / "results.json").read_text())
    assert results["table"] == [{"quantity": "steps [x]", "ours": 50, "paper": None}]
    assert Run.open(path).metrics() == [{"steps": 50}]
    assert Run.open(path).about == "A tiny experiment of [two] brackets."


def test_demo_runs_the_demo_at_its_laptop_preset(tmp_path):
    invoke("demo", "--out", tmp_path / "out")
    (path,) = (tmp_path / "out").iterdir()
    run = Run.open(path)
    assert (run.experiment, run.preset, run.settings["steps"]) == ("demo", "laptop", 50)
    assert run.finished


def test_an_interrupted_run_can_be_resumed():
    line = fail("run", "tiny", "--label", "stop", "--steps", "3", code=130)
    run = only_run()
    assert f"dmm resume {run.path}" in line
    assert not run.finished
    invoke("resume", run.path)
    assert run.finished
    assert run.metrics() == [{"steps": 3}]
    assert len(run.starts) == 2


def test_resuming_a_finished_run_shows_its_table_and_does_nothing(finished):
    before = (finished.path / "results.json").read_bytes()
    output = invoke("resume", finished.path).stdout
    assert "is finished" in output
    assert f"report  {finished.path / 'report.html'}\n" in output
    assert "steps [x]" in output
    assert (finished.path / "results.json").read_bytes() == before
    assert len(finished.metrics()) == 1


def test_a_setting_that_the_experiment_lost_is_named(finished, folder):
    (finished.path / "results.json").unlink()
    record = json.loads((finished.path / "settings.json").read_text())
    record["settings"]["lost"] = 1
    (finished.path / "settings.json").write_text(json.dumps(record))
    assert "no setting lost" in fail("resume", finished.path)


def test_an_unknown_experiment_lists_the_others_and_suggests_one(tmp_path):
    line = fail("run", "tyny")
    assert "did you mean tiny?" in line
    assert "demo, tiny" in line
    assert not (tmp_path / "runs").exists()


def test_an_unknown_option_is_a_usage_error():
    assert "--nonsense" in invoke("run", "tiny", "--nonsense", code=2).stderr


def test_an_unwritable_folder_is_refused_before_the_experiment_starts(tmp_path):
    (tmp_path / "file").touch()
    line = fail("run", "tiny", "--out", tmp_path / "file" / "runs", "--label", "bug")
    assert "--out" in line


@pytest.mark.parametrize("command", ["resume", "report", "sample"])
def test_a_folder_that_is_not_a_run(command, tmp_path):
    assert "not a run" in fail(command, tmp_path)
    assert "does not exist" in fail(command, tmp_path / "nothing")


def test_errors_of_the_library_are_one_line_unless_debugging(monkeypatch):
    assert fail("run", "tiny", "--label", "bad") == "dmm: label: bad choose another\n"
    assert fail("run", "tiny", "--label", "diverged") == "dmm: the loss is not finite\n"
    monkeypatch.setenv("DMM_DEBUG", "1")
    result = invoke("run", "tiny", "--label", "bad", code=1)
    assert isinstance(result.exception, ValueError)


def test_bugs_keep_their_traceback():
    result = invoke("run", "tiny", "--label", "bug", code=1)
    assert isinstance(result.exception, AttributeError)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("def tiny", "def other"), "must define a function tiny"),
        (('"paper"', '"other"'), "PRESETS with smoke, laptop, paper"),
        (('"limit": 2', '"limitt": 2'), "no setting limitt"),
    ],
)
def test_experiments_that_break_the_protocol_are_refused(folder, change, problem):
    (folder / "tiny.py").write_text(TINY.replace(*change))
    assert problem in fail("run", "tiny")


def test_report_of_one_run_and_of_several(finished, tmp_path):
    (finished.path / "report.html").unlink()
    assert invoke("report", finished.path).stdout == f"{finished.path / 'report.html'}\n"
    assert (finished.path / "report.html").is_file()
    invoke("run", "tiny", "--preset", "paper")
    others = [path for path in finished.path.parent.iterdir() if path != finished.path]
    path = tmp_path / "runs" / "report.html"
    assert invoke("report", finished.path, *others).stdout == f"{path}\n"
    assert path.read_text().count("<article>") == 2


def test_sample_passes_only_what_was_given(finished, loaded):
    add_model(finished, "denoising")
    output = invoke("sample", finished.path, "-n", "3").stdout
    path = finished.path / "samples" / "denoising.npz"
    assert output == f"{path}\n"
    assert loaded == [{"path": finished.models["denoising"]}, {"n": 3}]
    with np.load(path) as samples:
        assert samples["samples_0"].shape == (3,)
        assert samples["samples_1"].shape == (3, 2)


def test_sample_never_overwrites_in_silence(finished, loaded, tmp_path):
    add_model(finished, "fit")
    first, second = (invoke("sample", finished.path).stdout.strip() for _ in range(2))
    assert first != second
    assert Path(first).is_file()
    assert Path(second).is_file()
    out = tmp_path / "new" / "x.npz"
    assert invoke("sample", finished.path, "--out", out).stdout == f"{out}\n"
    assert invoke("sample", finished.path, "--out", out).stdout == f"{out} (replaced)\n"


def test_sample_chooses_among_several_models(finished, loaded):
    assert f"dmm resume {finished.path}" in fail("sample", finished.path)
    add_model(finished, "one", "two")
    assert "--model from one, two" in fail("sample", finished.path)
    assert "no model 'three'" in fail("sample", finished.path, "--model", "three")
    assert loaded == []
    invoke("sample", finished.path, "--model", "two", "--steps", "9")
    assert loaded == [{"path": finished.models["two"]}, {"n": 1000, "steps": 9}]


def test_sample_reads_the_observation(finished, loaded, tmp_path):
    add_model(finished, "fit")
    np.save(tmp_path / "one.npy", np.arange(2))
    np.savez(tmp_path / "single.npz", x=np.arange(2))
    np.savez(tmp_path / "tuple.npz", np.arange(2), np.arange(3))
    np.savez(tmp_path / "dict.npz", a=np.arange(2), b=np.arange(3))
    for name in ("one.npy", "single.npz", "tuple.npz", "dict.npz"):
        invoke("sample", finished.path, "--given", tmp_path / name)
    one, single, several, named = (call["given"] for call in loaded if "given" in call)
    np.testing.assert_array_equal(one, np.arange(2))
    np.testing.assert_array_equal(single, np.arange(2))
    assert [len(array) for array in several] == [2, 3]
    assert {name: len(array) for name, array in named.items()} == {"a": 2, "b": 3}


def test_sample_checks_its_files_before_it_loads_a_model(finished, loaded, tmp_path):
    add_model(finished, "fit")
    (tmp_path / "text.npy").write_text("not an array")
    for name in ("text.npy", "nothing.npy"):
        assert "--given" in fail("sample", finished.path, "--given", tmp_path / name)
    for out in (tmp_path, tmp_path / "text.npy" / "x.npz"):
        assert "--out" in fail("sample", finished.path, "--out", out)
    assert loaded == []


def test_start_and_execute_serve_from_python(tmp_path):
    run = experiments.start("tiny", preset="smoke", root=tmp_path / "out", settings={"steps": 6})
    assert experiments.execute(run) == [{"quantity": "steps [x]", "ours": 6, "paper": None}]
    assert run.finished
    with pytest.raises(experiments.ExperimentError, match="no setting stepps"):
        experiments.start("tiny", settings={"stepps": 6})
    with pytest.raises(experiments.ExperimentError, match="no preset 'huge'"):
        experiments.start("tiny", preset="huge")


CHECK = """
import sys
from pathlib import Path
from dmm.cli import main
for args in (["--help"], ["list"], ["run", "--help"], ["sample", "--help"], ["run", "nothing"]):
    sys.argv = ["dmm", *args]
    try:
        main()
    except SystemExit:
        pass
    assert "jax" not in sys.modules, args
"""


def test_answers_that_need_no_jax_do_not_import_it():
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Draw from a run's model" in done.stdout


def test_the_module_is_the_command_line(tmp_path):
    command = [sys.executable, "-m", "dmm", "resume", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"dmm: {tmp_path} is not a run")
    assert done.stderr.count("\n") == 1
