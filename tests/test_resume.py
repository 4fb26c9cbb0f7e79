"""A run that is killed or interrupted, and called again, ends with the bits of an unbroken one."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm

PATIENCE = 120  # seconds that a child may take to do what is awaited


def network(*shapes):
    return dmm.MLP(*shapes, width=16, depth=1)


def points(n, seed=0):
    return np.random.default_rng(seed).normal([1.0, -1.0], 0.5, (n, 2))


def stream(step):
    while True:
        yield points(16, seed=step)
        time.sleep(0.01)
        step += 1


def simulator(key):
    x, noise = jax.random.normal(key, (2, 2))
    return dmm.Example(x, given={"noisy": x + 0.5 * noise})


VARIANTS = {
    "arrays": {
        "data": points(16),
        "steps": 150,
        "block": 2,
        "validation": 0.5,
        "early_stopping": 15,
        "learning_rate": 3e-2,
        "warmup": 0,
        "ema": 0.9,
    },
    "stream": {"data": dmm.Stream(stream), "steps": 200, "block": 5},
    "simulator": {"data": dmm.Simulator(simulator), "steps": 120, "block": 3, "drop_given": 0.2},
}
KILLS = 3  # the run is at most two thirds through when the last one falls


def train(variant, run=None, checkpoint_seconds=0.0):
    return dmm.fit(
        space=dmm.Euclidean(2),
        key=jax.random.key(3),
        network=network,
        batch_size=16,
        run=run,
        checkpoint_seconds=checkpoint_seconds,
        **VARIANTS[variant],
    )


@functools.cache
def uninterrupted(variant):
    return train(variant)


class Child:
    """A process of its own that trains a variant in a run folder."""

    def __init__(self, variant, run, checkpoint_seconds=0.0):
        self.run, self.begun = run, reached(run)
        arguments = [sys.executable, __file__, variant, str(run), str(checkpoint_seconds)]
        # The children of a run share what they compile, but not with the uninterrupted run.
        cache = {
            "JAX_COMPILATION_CACHE_DIR": str(run.with_suffix(".cache")),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        environment = {**os.environ, **cache}
        self.process = subprocess.Popen(arguments, stderr=subprocess.PIPE, env=environment)

    def wait_for(self, happened):
        """Whether it happened before the process ended."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            if happened():
                return True
            assert time.monotonic() < end, "the child is stuck"
            time.sleep(5e-3)
        return False

    def stop(self, how):
        """Send a signal; returns whether it met a run that was not finished."""
        unfinished = self.process.poll() is None and not (self.run / "model.dmm").exists()
        self.process.send_signal(how)
        self.errors = self.process.communicate(timeout=PATIENCE)[1].decode()
        return unfinished and self.process.returncode == -how

    def finish(self):
        self.errors = self.process.communicate(timeout=PATIENCE)[1].decode()
        assert self.process.returncode == 0, self.errors


def reached(run):
    """The last step that has a checkpoint; 0 where there is none."""
    return max((int(p.name) for p in run.glob("checkpoints/*") if p.name.isdigit()), default=0)


def logged(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_bits(model, other):
    leaves = [jax.tree.leaves(eqx.filter(m, eqx.is_array)) for m in (model, other)]
    assert len(leaves[0]) == len(leaves[1]) > 0
    for a, b in zip(*leaves, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in VARIANTS]
)
def test_killed_at_random_moments(variant, tmp_path):
    run, moments = tmp_path / "run", np.random.default_rng(list(VARIANTS).index(variant))
    blocks = 40 // KILLS  # each kill comes within so many of the last checkpoint
    landed, begun = 0, []
    for kill in range(KILLS):
        child = Child(variant, run)
        begun.append(child.begun)
        if kill == 0:  # anywhere: at the imports, in compilation, at the first steps
            time.sleep(moments.uniform(0.5, 4.0))
        else:
            step = child.begun + VARIANTS[variant]["block"] * moments.integers(1, blocks)
            child.wait_for(lambda step=step: reached(run) >= step)
            time.sleep(moments.uniform(0.0, 0.05))
        landed += child.stop(signal.SIGKILL)
    last = Child(variant, run)
    begun.append(last.begun)
    last.finish()

    assert landed >= KILLS - 1
    assert begun == sorted(begun)
    assert len({step for step in begun if step > 0}) >= KILLS - 1
    assert_same_bits(dmm.load(run / "model.dmm"), uninterrupted(variant))
    steps = [line["step"] for line in logged(run)]
    assert steps == sorted(set(steps))
    if variant == "arrays":
        assert reached(run) < VARIANTS[variant]["steps"], "this one is to stop early"


@pytest.mark.xdist_group("stream")
def test_interrupted_by_a_signal(tmp_path):
    # No checkpoints but the one that the interrupt leaves.
    child = Child("stream", tmp_path / "run", checkpoint_seconds=1e9)
    run = child.run
    assert child.wait_for(lambda: (run / "metrics.jsonl").exists() and logged(run))
    assert child.stop(signal.SIGINT)
    assert "KeyboardInterrupt" in child.errors
    assert 0 < reached(run) < VARIANTS["stream"]["steps"]
    again = Child("stream", run)
    assert again.begun > 0
    again.finish()
    assert_same_bits(dmm.load(run / "model.dmm"), uninterrupted("stream"))
    steps = [line["step"] for line in logged(run)]
    assert len(steps) > 0
    assert steps == sorted(set(steps))


def small_fit(run=None, *, data=None, steps=20, block=5, **settings):
    """A fit of seconds; `data` and settings may be changed."""
    arguments = {
        "space": dmm.Euclidean(2),
        "key": jax.random.key(0),
        "network": network,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "validation": 0.0,
        "checkpoint_seconds": 0.0,
    }
    data = points(32) if data is None else data
    return dmm.fit(data, run=run, steps=steps, block=block, **(arguments | settings))


def interrupted(at):
    """A stream that is interrupted from the keyboard at a step, the first time."""
    pending = [at]

    def batches(step):
        while True:
            if pending == [step]:
                pending.clear()
                raise KeyboardInterrupt
            yield points(8, seed=step)
            step += 1

    return dmm.Stream(batches)


@pytest.fixture(scope="module")
def interrupted_run(tmp_path_factory):
    """A run that was interrupted after ten of its twenty steps."""
    run = tmp_path_factory.mktemp("interrupted") / "run"
    with pytest.raises(KeyboardInterrupt):
        small_fit(run, data=interrupted(at=12))
    assert reached(run) == 10
    return run


@functools.cache
def unbroken():
    return small_fit(data=interrupted(at=None))


@pytest.mark.xdist_group("runs")
def test_leavings_of_a_kill(interrupted_run, tmp_path):
    """Metrics beyond the last checkpoint, half a line, and a checkpoint that was not finished."""
    run = shutil.copytree(interrupted_run, tmp_path / "run")
    lines = [{"step": step, "loss": 1.0} for step in (5, 10, 15)]
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"step": 20, "lo'
    (run / "metrics.jsonl").write_text(text)
    (run / "checkpoints/15.orbax-checkpoint-tmp-1").mkdir()
    assert_same_bits(small_fit(run, data=interrupted(at=None)), unbroken())
    steps = [line["step"] for line in logged(run)]
    assert steps[:2] == [5, 10]
    assert steps == sorted(set(steps))


def test_killed_before_the_model_is_saved(tmp_path):
    settings = {"early_stopping": 3, "validation": 0.5}
    model = small_fit(tmp_path, **settings)
    (tmp_path / "model.dmm").unlink()
    again = small_fit(tmp_path, **settings)
    assert eqx.tree_equal(model, again)
    assert (tmp_path / "model.dmm").exists()


@pytest.mark.xdist_group("runs")
# Orbax's readers of the other arrays, still under way, find their event loop closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_damaged_checkpoint_is_named(interrupted_run, tmp_path):
    """It is not passed over in silence; without it the run goes on from the one before."""
    run = shutil.copytree(interrupted_run, tmp_path / "run")
    for file in (run / "checkpoints/10/default/d").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"^run: .*checkpoints/10 .*delete") as caught:
        small_fit(run, data=interrupted(at=None))
    assert "\n" not in str(caught.value)
    shutil.rmtree(run / "checkpoints/10")
    assert reached(run) == 5
    assert_same_bits(small_fit(run, data=interrupted(at=None)), unbroken())


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with observations, in a folder made for it, and the model of its fit."""
    run = tmp_path_factory.mktemp("finished") / "some" / "run"
    return run, small_fit(run, given=points(32)[:, :1], drop_given=0.1)


@pytest.mark.xdist_group("runs")
def test_finished_run_returns_its_model_without_training(finished, monkeypatch):
    run, model = finished
    monkeypatch.setattr("dmm.training.fitting.train", None)
    again = small_fit(run, given=points(32)[:, :1], drop_given=0.1)
    assert eqx.tree_equal(model, again)
    assert reached(run) == 20


class Offset(eqx.Module):
    """A network of the user's own, in a dict of modules."""

    parts: dict

    def __call__(self, inputs, tau, given, present):
        return self.parts["linear"](inputs)


def test_finished_run_with_a_network_of_ones_own(tmp_path):
    def make(key, inputs, outputs, given):
        return Offset({"linear": Shifted(jnp.zeros(inputs.shape))})

    model = small_fit(tmp_path, network=make, steps=5)
    assert eqx.tree_equal(model, small_fit(tmp_path, network=make, steps=5))


class Shifted(eqx.Module):
    by: jax.Array

    def __call__(self, x):
        return x + self.by


OTHER = {
    "steps": {"steps": 25},
    "batch_size": {"batch_size": 16},
    "block": {"block": 4},
    "ema": {"ema": 0.5},
    "early_stopping": {"early_stopping": 5, "validation": 0.25},
    "drop_given": {"drop_given": 0.5},
    "objective": {"objective": dmm.implicit},
    "weighting": {"weighting": dmm.variance_weighting},
    "schedule": {"schedule": dmm.Cosine()},
    "times": {"times": dmm.Geometric(1e-5, 10.0)},
    "process": {"process": dmm.Brownian(dmm.Euclidean(2))},
    "parameterisation": {"parameterisation": dmm.PredictNoise()},
    "network": {"network": lambda *shapes: dmm.MLP(*shapes, width=9, depth=1)},
    "data": {"data": points(32, seed=1)},
    "given": {"given": points(32, seed=1)[:, :1]},
    "key": {"key": jax.random.key(1)},
    "learning_rate": {"learning_rate": 1e-3},
    "warmup": {"warmup": 7},
    "clip": {"clip": 0.1},
    "validation": {"validation": 0.25},
    "units": {"units": dmm.Identity()},
}
# The part of the settings that the message names, where that is not the argument itself.
NAMED = {"schedule": "model", "times": "model", "process": "model", "parameterisation": "model"}


@pytest.mark.xdist_group("runs")
@pytest.mark.parametrize("changed", OTHER)
def test_run_with_other_settings_is_refused(changed, finished):
    run, _ = finished
    settings = {"given": points(32)[:, :1], "drop_given": 0.1} | OTHER[changed]
    with pytest.raises(ValueError, match=r"^run: .* choose another folder") as caught:
        small_fit(run, **settings)
    message = str(caught.value)
    assert "\n" not in message
    assert str(run) in message
    names = {changed, NAMED.get(changed), "data" if changed == "given" else None}
    assert any(f"{name} was" in message for name in names)


@pytest.mark.parametrize("text", ["", '{"steps": 2', "[]", "null"])
def test_damaged_settings(text, tmp_path):
    (tmp_path / "fit.json").write_text(text)
    with pytest.raises(ValueError, match=r"^run: .*fit.json is damaged; choose another folder$"):
        small_fit(tmp_path)


@pytest.mark.parametrize("run", ["file", "file/run", "/proc/run"])
def test_unwritable_folder(run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^run: cannot write to .*; choose another folder$"):
        small_fit(tmp_path / run)


def test_run_with_other_rates_is_refused(tmp_path):
    """Processes of one form whose constants differ."""

    def fit(rate):
        matrix = [[-rate, rate], [1.0, -1.0]]
        return dmm.fit(
            np.zeros((8, 1), int),
            process=dmm.MatrixChain(dmm.Finite(1, 2), matrix, horizon=10.0),
            key=jax.random.key(0),
            network=network,
            steps=2,
            batch_size=4,
            run=tmp_path,
        )

    fit(0.5)
    with pytest.raises(ValueError, match=r"^run: .*other settings \(constants was"):
        fit(0.7)  # as fast at its fastest


if __name__ == "__main__":
    # A shell starts what it runs in the background with interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    train(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]))
