"""Run folders and their report."""

import json
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

import dmm.report as report
import dmm.runs as runs
from dmm.runs import Run, RunError


@pytest.fixture
def run(tmp_path):
    return Run.create(
        tmp_path, "mixture", "smoke", {"steps": 5, "limit": None}, about="A <b>test</b>."
    )


def strict(path):
    """JSON without the NaN and Infinity that Python's reader lets pass."""

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    return json.loads(path.read_text(), parse_constant=refuse)


def picture():
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1])
    return figure


def log_fit(run, fit, entries):
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (run.folder(fit) / "metrics.jsonl").write_text(lines)


def test_a_run_can_be_opened_again(run, tmp_path):
    assert re.fullmatch(r"mixture-smoke-\d{8}-\d{6}", run.path.name)
    opened = Run.open(run.path)
    assert opened == run
    assert opened.settings == {"steps": 5, "limit": None}
    assert not opened.finished
    assert opened.results is None


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path):
    paths = {Run.create(tmp_path, "mixture", "smoke", {}).path for _ in range(5)}
    assert len(paths) == 5
    assert all((path / "settings.json").is_file() for path in paths)


def test_settings_that_would_not_survive_a_resume_are_refused(tmp_path):
    with pytest.raises(RunError, match="finite"):
        Run.create(tmp_path, "mixture", "smoke", {"clip": float("inf")})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_a_root_that_cannot_be_written_names_the_fix(tmp_path, below):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="choose another folder with --out") as caught:
        Run.create(tmp_path / below, "mixture", "smoke", {})
    assert "\n" not in str(caught.value)


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(RunError, match="does not exist"):
        Run.open(tmp_path / "nothing")


def test_a_folder_that_is_not_a_run_points_to_one_inside(tmp_path, run):
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="not a run"):
        Run.open(tmp_path / "empty")
    with pytest.raises(RunError, match=re.escape(str(run.path))):
        Run.open(tmp_path)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"format": 1}', '{"format": "x"}', '{"format": 1, "settings": 3}'],
)
def test_damaged_settings(run, text):
    (run.path / "settings.json").write_text(text)
    with pytest.raises(RunError, match=r"settings\.json is damaged"):
        Run.open(run.path)


def test_a_newer_format(run):
    record = strict(run.path / "settings.json")
    (run.path / "settings.json").write_text(json.dumps({"format": record["format"] + 1}))
    with pytest.raises(RunError, match="upgrade"):
        Run.open(run.path)


def test_metrics_are_read_back(run):
    assert run.metrics() == []
    run.log(step=1, loss=np.float32(0.5))
    run.log(step=np.int64(2), loss=float("nan"), shape=(1, 2))
    assert run.metrics() == [
        {"step": 1, "loss": 0.5},
        {"step": 2, "loss": "nan", "shape": [1, 2]},
    ]


def test_half_a_line_after_a_kill_costs_that_line_only(run):
    run.log(step=1)
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 2, "lo')
    assert run.metrics() == [{"step": 1}]
    run.log(step=3)
    assert run.metrics() == [{"step": 1}, {"step": 3}]


def test_every_kind_of_number_becomes_json(run):
    import jax.numpy as jnp

    run.finish(
        [
            {
                "jax": jnp.float32(1.5),
                "half": jnp.bfloat16(2.0),
                "array": jnp.arange(2),
                "nan": np.float64("nan"),
                "infinite": [-float("inf")],
                "true": np.bool_(True),
                "scalar": np.array(3),
            }
        ],
        seconds=np.float32(0.25),
    )
    (row,) = strict(run.path / "results.json")["table"]
    # As text, since 1.0 == 1 == True.
    assert repr(list(row.values())) == "[1.5, 2.0, [0, 1], 'nan', ['-inf'], True, 3]"
    with pytest.raises(TypeError, match="object"):
        run.log(value=object())


def test_finish_records_the_circumstances(run):
    run.begin()
    run.begin()
    run.finish([{"quantity": "a", "ours": 1.0}], seconds=2.5)
    results = strict(run.path / "results.json")
    assert run.finished
    assert run.results == results
    assert results["seconds"] == 2.5
    assert len(results["starts"]) == 2
    assert set(results["versions"]) == {"python", "dmm", "jax", "equinox", "numpy"}
    assert {"device", "platform", "finished"} <= set(results)


def test_figures_are_saved_at_150_dpi(run):
    path = run.figure("density", picture())
    data = path.read_bytes()
    assert path == run.path / "figures" / "density.png"
    assert data.startswith(b"\x89PNG")
    assert int.from_bytes(data[16:20], "big") == 300
    assert int.from_bytes(data[20:24], "big") == 150


def test_a_failed_write_leaves_the_old_file_and_nothing_else(run):
    path = run.figure("density", picture())
    before = path.read_bytes()

    class Broken:
        def savefig(self, file, **_):
            file.write(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        run.figure("density", Broken())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_samples_of_arrays_and_tuples(run):
    single = run.save_samples("one", np.arange(3))
    several = run.save_samples("two", (np.zeros(2), (np.ones(1), np.arange(4))))
    with np.load(single) as found:
        assert set(found) == {"samples"}
        np.testing.assert_array_equal(found["samples"], np.arange(3))
    with np.load(several) as found:
        assert set(found) == {"samples_0", "samples_1_0", "samples_1_1"}
        np.testing.assert_array_equal(found["samples_1_1"], np.arange(4))


def test_fits_have_folders(run):
    folder = run.folder("denoising")
    assert folder.is_dir()
    assert run.folder("denoising") == folder
    assert run.models == {}
    (folder / "model.dmm").touch()
    assert run.models == {"denoising": folder / "model.dmm"}


@pytest.mark.parametrize("name", ["", "..", "a/b", "/tmp", ".hidden", "figures", "samples"])
def test_bad_names_of_fits_are_refused(run, name):
    with pytest.raises(ValueError, match=r"plain file name|cannot be called"):
        run.folder(name)


def test_unused_leaves_existing_files_alone(tmp_path):
    path = tmp_path / "model.npz"
    assert runs.unused(path) == path
    path.touch()
    (tmp_path / "model-2.npz").touch()
    assert runs.unused(path) == tmp_path / "model-3.npz"


def test_columns_keep_the_order_of_first_appearance():
    assert report.columns([{"b": 1, "a": 2}, {"c": 3, "a": 4}]) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (-1.23456789, "-1.2346"), (200_000, "200000"), (True, "yes"), ("x", "x")],
)
def test_cells(value, text):
    assert report.cell(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5 s"), (75, "1 min 15 s"), (3660, "1 h 01 min")]
)
def test_durations(seconds, text):
    assert report.duration(seconds) == text


def test_the_report_shows_the_run_and_needs_nothing_else(run):
    run.figure("score_field-on<i>", picture())
    log_fit(run, "denoising", [{"step": s, "loss": 1.0 / (s + 1)} for s in range(1000)])
    run.begin()
    run.finish([{"quantity": "KL <x>", "ours": -1.23456, "paper": None}], seconds=75)
    page = report.write(run).read_text()
    assert page.count('src="data:image/png;base64,') == 1
    assert "KL &lt;x&gt;" in page
    assert "A &lt;b&gt;test&lt;/b&gt;." in page
    assert "Score field on&lt;i&gt;</figcaption>" in page
    assert "-1.2346" in page
    assert "1 min 15 s" in page
    assert "<dt>steps</dt><dd>5</dd>" in page
    assert "<svg" in page
    assert "not finished" in page  # the fit left no model
    assert not re.search(r"<script|<link|https?:|<b>|<i>", page)


def test_the_report_of_an_unfinished_run_says_how_to_go_on(run):
    page = report.write(run).read_text()
    assert f"dmm resume {run.path}" in page
    run.finish([], seconds=1)
    assert "dmm resume" not in report.write(run).read_text()


def test_a_loss_curve_keeps_the_later_of_two_lines_of_a_step(run):
    entries = [{"step": s, "loss": 1.0} for s in range(10)]
    log_fit(run, "fit", [*entries, *({"step": s, "loss": 0.5} for s in range(5, 10))])
    page = report.write(run).read_text()
    points = re.search(r'polyline points="([^"]+)"', page)
    assert points is not None
    heights = [float(point.split(",")[1]) for point in points[1].split()]
    assert heights == [0.0] * 5 + [120.0] * 5


def test_a_fit_without_losses_has_no_curve(run):
    log_fit(run, "fit", [{"step": 0, "loss": "nan"}, {"step": 1}, {"step": 2, "loss": 1.0}])
    assert "<svg" not in report.write(run).read_text()


def test_a_report_of_several_runs_is_one_page(tmp_path, run):
    other = Run.create(tmp_path, "so3", "paper", {"components": 16})
    path = report.write_many([run, other], tmp_path / "all.html")
    page = path.read_text()
    assert page.count("<article>") == 2
    assert "Mixture</h2>" in page
    assert "So3</h2>" in page
    assert re.findall(r'href="#([^"]+)"', page) == re.findall(r'id="([^"]+)"', page)
