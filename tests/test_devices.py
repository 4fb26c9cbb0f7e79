"""Several devices and several processes: the weights and draws of one, to rounding.

How many devices there are is settled when JAX starts: what needs several runs as this file, in a
process of its own, and says what it found as JSON.
"""

import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.training.devices import layout

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


if __name__ == "__main__":
    say(globals()[sys.argv[1]](*sys.argv[2:]))
