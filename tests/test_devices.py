"""Several devices and several processes: the weights and draws of one, to rounding.

How many devices there are is settled when JAX starts: what needs several runs as this file, in a
process of its own, and says what it found as JSON.
"""

import dataclasses
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dmm
from dmm.diagnostics.memory import largest_array
from dmm.training import costs
from dmm.training.data import Arrays
from dmm.training.devices import Layout, layout
from dmm.training.loop import Losses, Settings, compile_advance, initial_state

PATIENCE = 240  # seconds that a child may take
STEPS, BLOCK, BATCH = 50, 10, 16
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def network(*shapes):
    return dmm.MLP(*shapes, width=32, depth=1)


def points(n, seed=0):
    return np.random.default_rng(seed).normal([1.0, -1.0], 0.5, (n, 2))


def fit(data=None, **settings):
    arguments = {
        "space": dmm.Euclidean(2),
        "key": jax.random.key(3),
        "network": network,
        "steps": STEPS,
        "block": BLOCK,
        "batch_size": BATCH,
        "learning_rate": 1e-2,
        "warmup": 0,
        "ema": 0.9,
        "validation": 0.0,
        "checkpoint_seconds": 0.0,
    }
    return dmm.fit(points(64) if data is None else data, **(arguments | settings))


def weights(model):
    return [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(model.network)]


def assert_close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, **TOLERANCE)


def start(*arguments, **environment):
    command = [sys.executable, __file__, *map(str, arguments)]
    pipe = subprocess.PIPE
    environment = {**os.environ, **environment}
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def said(process):
    out, errors = process.communicate(timeout=PATIENCE)
    assert out.strip(), errors
    return json.loads(out.strip().splitlines()[-1])


def say(result):
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


@functools.cache
def alone():
    return fit()


# Eight devices.


def stopped(run):
    """A fit on all devices that is interrupted after 20 steps."""

    def stop(step, model):
        if step == 20:
            raise KeyboardInterrupt

    try:
        fit(run=run, monitor=stop)
    except KeyboardInterrupt:
        return
    raise AssertionError("was not interrupted")


def refused(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def rows_loss(params, key, batch):
    each = jnp.mean(jnp.tanh(batch.x @ params), 1)
    return Losses(jnp.mean(each), each, each)


def program():
    """What each device is to run, as XLA compiled it."""
    everywhere, settings = layout(), Settings(2, 64, optax.sgd(0.1))
    source = Arrays(dmm.Example(jnp.ones((64, 2)))).placed(everywhere)
    state = everywhere.place(initial_state(jnp.ones((2, 1000)), settings))
    advance = compile_advance(rows_loss, source, jax.random.key(0), settings, everywhere)
    return advance.lower(state, source.examples, 2).compile().as_text()


def on_eight_devices(folder):
    folder, key = Path(folder), jax.random.key(7)
    model = fit()
    stopped(folder / "eight")
    cut = layout(shard_weights=True)
    large, small = (cut.place(jnp.zeros(shape)) for shape in ((24, 64), (24, 8)))
    return {
        "devices": len(jax.devices()),
        "parallel": weights(model),
        "sharded": weights(fit(shard_weights=True, accumulate=2)),
        "pieces": [[list(a.addressable_shards[0].data.shape) for a in (large, small)]],
        "program": program(),
        "sample": np.asarray(model.sample(key, 13, steps=5, batch_size=6)).tolist(),
        "elbo": np.asarray(model.elbo(key, points(5), draws=2)).tolist(),
        "placed": [len(leaf.devices()) for leaf in jax.tree.leaves(model.network)],
        "indivisible": refused(lambda: fit(batch_size=30)),
        "parts": refused(lambda: fit(batch_size=24, accumulate=2)),
        "stream": refused(lambda: fit(dmm.Stream(lambda step: iter([points(12)] * STEPS)))),
        "too many": refused(lambda: fit(devices=9)),
    }


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    flags = "--xla_force_host_platform_device_count=8"
    return folder, said(start("on_eight_devices", folder, XLA_FLAGS=flags))


@pytest.mark.xdist_group("devices")
@pytest.mark.parametrize("how", ["parallel", "sharded"])
def test_eight_devices_train_as_one(how, eight):
    assert eight[1]["devices"] == 8
    assert_close(eight[1][how], weights(alone()))
    assert set(eight[1]["placed"]) == {1}  # an ordinary model


@pytest.mark.xdist_group("devices")
def test_each_device_computes_its_own_rows(eight):
    """And what they send each other is a sum, of gradients."""
    assert "f32[8,1000]" in eight[1]["program"]
    assert "f32[64,1000]" not in eight[1]["program"]
    assert "all-reduce" in eight[1]["program"]


@pytest.mark.xdist_group("devices")
def test_weights_are_cut_along_the_longest_axis_that_divides(eight):
    assert eight[1]["pieces"] == [[[24, 8], [24, 8]]]  # the second is too small to be cut


@pytest.mark.xdist_group("devices")
def test_eight_devices_draw_as_one(eight):
    key = jax.random.key(7)
    found = [eight[1][name] for name in ("sample", "elbo")]
    sample = alone().sample(key, 13, steps=5, batch_size=6)
    bound = alone().elbo(key, points(5), draws=2)
    np.testing.assert_allclose(found[0], sample, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found[1], bound, rtol=1e-3, atol=1e-3)


@pytest.mark.xdist_group("devices")
def test_a_run_on_eight_devices_goes_on_with_one(eight, tmp_path):
    run = shutil.copytree(eight[0] / "eight", tmp_path / "run")
    assert_close(weights(fit(run=run)), weights(alone()))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["step"] <= STEPS for line in lines)


@pytest.mark.xdist_group("devices")
def test_what_does_not_divide_is_refused(eight):
    assert eight[1]["indivisible"] == (
        "batch_size: 30 does not divide over 8 devices; use 24 or 32, or devices=1"
    )
    assert eight[1]["parts"] == (
        "batch_size: 24 does not divide over 8 devices and into accumulate=2 parts; "
        "use 16 or 32, or another accumulate"
    )
    assert eight[1]["stream"].startswith("data: 12 does not divide over 8 devices; use 8 or 16")
    assert eight[1]["too many"] == "devices: there are 8, got 9; ask for fewer"


# Two processes.


def rows_of(process=0, of=1, dies_at=None):
    """A stream of the rows of one process."""

    def batches(step):
        while True:
            if step == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            yield np.split(points(BATCH, seed=step), of)[process]
            step += 1

    return dmm.Stream(batches, identity="seeds")


def as_one_of_two(process, port, run):
    process = int(process)
    dmm.distribute(f"127.0.0.1:{port}", 2, process, timeout=60)
    together = weights(fit(rows_of(process, 2)))
    start = time.monotonic()
    try:
        fit(rows_of(process, 2, dies_at=40 if process else None), run=run)
    except dmm.HostsError as error:
        result = {"weights": together, "error": str(error), "seconds": time.monotonic() - start}
        say(result)
        raise


@pytest.mark.xdist_group("processes")
def test_two_processes_train_as_one_and_when_one_dies_the_other_stops(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first, second = (start("as_one_of_two", i, port, tmp_path / "run") for i in (0, 1))
    second.communicate(timeout=PATIENCE)
    died = time.monotonic()
    found = said(first)
    assert time.monotonic() - died < 60
    assert second.returncode == -signal.SIGKILL
    assert first.returncode != 0
    assert "another process of this run has died" in found["error"]

    wanted = weights(fit(rows_of()))
    assert_close(found["weights"], wanted)
    reached = [int(p.name) for p in (tmp_path / "run/checkpoints").iterdir() if p.name.isdigit()]
    assert 0 < max(reached) < STEPS
    assert_close(weights(fit(rows_of(), run=tmp_path / "run")), wanted)


@pytest.mark.xdist_group("processes")
@pytest.mark.parametrize("process", [0, 1])
def test_a_coordinator_that_does_not_answer(process):
    """Neither the one that waits for others nor the one that looks for it waits for ever."""
    child = start("abandoned", process)
    message = said(child)
    assert message.startswith(
        "coordinator: " + ("no answer", "not all processes came")[not process]
    )
    assert "within 2 s; check that all 2 processes run" in message


def abandoned(process):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    try:
        dmm.distribute(coordinator, 2, int(process), timeout=2)
    except dmm.HostsError as error:
        return str(error)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("10.0.0.1:1", 2), "coordinator, processes, process: pass all three"),
        (("10.0.0.1", 2, 0), "coordinator: expected host:port, as 10.0.0.1:1234"),
        (("10.0.0.1:1", 2, 2), "process: must be less than processes=2, got 2"),
        (("10.0.0.1:1", 0, 0), "processes: must be at least 1"),
    ],
)
def test_processes_that_cannot_be(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        dmm.distribute(*arguments)


# One device: parts of a batch, and what a run says of itself.


def test_a_batch_in_parts_is_the_whole():
    """Also with several noisings of an example, of which a part has all."""
    settings = {"noisings": 2, "given": points(64, seed=1)[:, :1]}
    wanted = fit(steps=20, **settings)
    assert_close(weights(fit(steps=20, accumulate=4, **settings)), weights(wanted))


def test_the_parts_of_a_batch_are_taken_one_after_the_other():
    """The largest array of a step is of a part's rows."""
    source, settings = Arrays(dmm.Example(jnp.ones((64, 2)))), Settings(2, 64, optax.sgd(0.1))

    def loss(params, key, batch, pick=lambda rows: rows):
        each = jnp.mean(jnp.tanh(pick(batch.x) @ params), 1)
        return Losses(jnp.mean(each), each, each)

    def largest(parts):
        chosen = dataclasses.replace(settings, accumulate=parts)
        advance = compile_advance(loss, source, jax.random.key(0), chosen)
        state = initial_state(jnp.ones((2, 1000)), settings)
        return largest_array(lambda s: advance(s, source.examples, 2), state)

    assert largest(1) == (64, 1000)
    assert largest(4) == (16, 1000)


def test_one_device_places_nothing():
    tree = {"a": jnp.ones(3)}
    assert layout() == Layout()
    for method in ("copies", "split", "whole", "place", "keep", "home"):
        assert getattr(Layout(), method)(tree) is tree


def test_operations_are_counted_in_loops():
    def f(x, kernel):
        x = jax.lax.scan(lambda x, _: (jax.jit(jnp.dot)(x, x), None), x, length=10)[0]
        image = jax.lax.conv_general_dilated(x[None, :, :, None], kernel, (1, 1), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"))  # fmt: skip
        return jax.lax.cond(x[0, 0] > 0, lambda: image.sum(), lambda: (x @ x).sum())

    found = costs.flops(f, jnp.ones((8, 8)), jnp.ones((3, 3, 1, 5)))
    assert found == 10 * 2 * 8**3 + 2 * 8 * 8 * 5 * 9 + 2 * 8**3


def test_utilisation_is_of_the_peak_of_all_devices(monkeypatch):
    monkeypatch.setattr(costs, "peak", lambda device: 3e3)
    monkeypatch.setattr(costs, "peak_memory", lambda: 7)
    meter = costs.meter(16, 2, 4, lambda x: x @ x, jnp.ones((5, 5)))
    steps_per_second = 1.5
    assert meter.rates(steps_per_second) == {
        "examples_per_second": 24.0,
        "flop_utilisation": pytest.approx(3 * 4 * 250 * 1.5 / 6e3),
        "peak_memory_bytes": 7,
    }


@pytest.mark.parametrize(
    ("kind", "peak"),
    [("NVIDIA H200", 989e12), ("NVIDIA A100-SXM4-80GB", 312e12), ("NVIDIA H100 PCIe", 756e12)],
)
def test_peaks(kind, peak):
    assert costs.peak(SimpleNamespace(device_kind=kind)) == peak
    assert costs.peak(jax.devices()[0]) is None


def test_a_run_says_how_fast_it_is_and_leaves_a_trace(tmp_path):
    slow = dmm.Stream(lambda step: (time.sleep(0.05) or points(BATCH, s) for s in count(step)))
    fit(slow, run=tmp_path / "run", profile=tmp_path / "trace")
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines
    for line in lines:
        assert line["examples_per_second"] == pytest.approx(BATCH * line["steps_per_second"])
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))


# Runs that are of something else.


def test_another_network_is_refused_and_nothing_overwritten(tmp_path):
    """Even where the record of what the run is has been lost."""
    wide = {"network": lambda *shapes: dmm.MLP(*shapes, width=33, depth=1)}
    run, other = tmp_path / "run", tmp_path / "other"
    fit(run=run, steps=10)
    fit(run=other, steps=10, **wide)
    (run / "model.dmm").unlink()
    shutil.copy(other / "fit.json", run / "fit.json")
    kept = {path: path.stat().st_mtime for path in (run / "checkpoints").rglob("*")}
    with pytest.raises(
        ValueError, match=r"^run: .*10 is of another network or optimiser: .*33.*choose"
    ):
        fit(run=run, steps=10, **wide)
    assert {path: path.stat().st_mtime for path in (run / "checkpoints").rglob("*")} == kept
    assert not (run / "model.dmm").exists()


def test_another_stream_is_refused(tmp_path):
    def stream(identity):
        return dmm.Stream(lambda step: (points(BATCH, s) for s in count(step)), identity=identity)

    fit(stream("seed 0"), run=tmp_path, steps=10)
    with pytest.raises(ValueError, match=r"^run: .*other settings \(data was"):
        fit(stream("seed 1"), run=tmp_path, steps=10)


if __name__ == "__main__":
    say(globals()[sys.argv[1]](*sys.argv[2:]))
