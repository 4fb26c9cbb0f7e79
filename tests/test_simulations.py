"""Simulations: parallel, watched over, kept and taken up again."""

import os
import pathlib
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm
from dmm.inference.store import Store

KEY = jax.random.key(0)
THETA = np.linspace(-1, 1, 40).reshape(20, 2)


def noisy(theta, rng):
    return theta + rng.normal(size=2)


def test_simulations_do_not_depend_on_the_number_of_processes():
    theta, one, report = dmm.run_simulations(noisy, THETA, KEY, workers=1)
    _, three, _ = dmm.run_simulations(noisy, THETA, KEY, workers=3)
    assert np.array_equal(one, three)
    assert np.array_equal(theta, THETA)
    assert report == (20, 0, 0, None)
    # Each has a generator of its own: noise of variance 1, none twice.
    noise = one - THETA
    assert len(np.unique(noise)) == noise.size
    assert 0.5 < noise.std() < 1.6  # false by chance less than once in 10⁵


def test_a_traceable_simulator_is_told_a_key_of_its_own():
    def simulator(key, theta):
        return {"x": theta + jax.random.normal(key, (2,))}

    _, x, _ = dmm.run_simulations(simulator, THETA, KEY)
    _, again, _ = dmm.run_simulations(simulator, THETA[:7], KEY)
    assert np.array_equal(x["x"][:7], again["x"])
    assert len(np.unique(x["x"] - THETA)) == 40


def test_a_simulator_may_be_a_closure_print_and_return_lists():
    shift = 3.0

    def simulator(theta):
        sys.stdout.write("working")
        return [float(theta[0]) + shift, 0]

    _, x, _ = dmm.run_simulations(simulator, THETA, KEY, workers=2)
    assert np.allclose(x, np.stack([THETA[:, 0] + 3, np.zeros(20)], -1))


def test_what_fails_is_counted_and_left_out():
    def simulator(theta):
        if theta[0] > 0.9:
            os._exit(3)  # as a crash in compiled code
        if theta[0] > 0.7:
            raise FloatingPointError("no convergence")
        if theta[0] < -0.8:
            return np.array([np.nan])
        if theta[0] < -0.7:
            time.sleep(60)
        return theta[:1]

    with pytest.warns(UserWarning, match="left out") as caught:
        theta, x, report = dmm.run_simulations(simulator, THETA, KEY, workers=2, timeout=3.0)
    good = (THETA[:, 0] >= -0.7) & (THETA[:, 0] <= 0.7)
    assert np.array_equal(theta, THETA[good])
    assert np.array_equal(x[:, 0], THETA[good, 0])
    failed = np.sum((THETA[:, 0] > 0.7) | ((THETA[:, 0] < -0.7) & (THETA[:, 0] >= -0.8)))
    assert (report.failed, report.not_finite) == (failed, np.sum(THETA[:, 0] < -0.8))
    texts = " ".join(str(w.message) for w in caught)
    assert f"{failed} of 20 simulations failed" in texts
    assert "NaN or infinity" in texts


@pytest.mark.parametrize(
    ("simulator", "message"),
    [
        (lambda theta: 1 / 0, "ZeroDivisionError"),
        (lambda theta: np.full(3, np.nan), "all of the first 20 simulations hold NaN"),
        (lambda theta: np.zeros(int(theta[0] > 0) + 1), "must have one shape"),
        (lambda theta: "text", "expected numbers, got str"),
    ],
)
def test_a_simulator_of_no_use_is_an_error_at_once(simulator, message):
    with pytest.raises(dmm.SimulationError, match=message):
        dmm.run_simulations(simulator, THETA, KEY, workers=2)


def test_a_simulator_that_always_hangs_is_stopped():
    with pytest.raises(dmm.SimulationError, match=r"took longer than 0\.2 s"):
        dmm.run_simulations(lambda theta: time.sleep(60), THETA[:2], KEY, timeout=0.2, workers=2)


def test_a_simulator_that_jax_cannot_trace_is_told_so():
    def simulator(key, theta):
        return np.sin(theta)  # NumPy does not take traced arrays

    with pytest.raises(dmm.SimulationError, match="first argument is named key"):
        dmm.run_simulations(simulator, THETA, KEY)


def test_a_simulator_that_cannot_be_sent_is_named():
    lock = threading.Lock()
    with pytest.raises(ValueError, match="simulator: cannot be sent"):
        dmm.run_simulations(lambda theta: lock.locked(), THETA, KEY)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path):
    """Also with more simulations; and no file is needed for what is done."""
    log = tmp_path / "log"

    def simulator(theta):
        with log.open("a") as file:
            file.write(f"{theta[0]}\n")
        if not (tmp_path / "go").exists() and theta[0] > 0:
            raise KeyboardInterrupt
        return theta * 2

    folder = tmp_path / "simulations"
    with pytest.warns(UserWarning, match="failed"):
        _, first, report = dmm.run_simulations(simulator, THETA[:16], KEY, folder=folder, workers=1)
    assert report.failed == 6
    assert np.array_equal(first, 2 * THETA[:10])
    (tmp_path / "go").touch()
    with pytest.warns(UserWarning, match="6 of 20 simulations failed"):
        _, x, _ = dmm.run_simulations(simulator, THETA, KEY, folder=folder, workers=1)
    assert np.array_equal(x, 2 * THETA[[*range(10), *range(16, 20)]])
    assert len(log.read_text().splitlines()) == 20
    assert np.array_equal(Store.parameters(folder), THETA)


def test_a_folder_of_other_simulations_is_refused(tmp_path):
    dmm.run_simulations(noisy, THETA, KEY, folder=tmp_path, workers=1)
    with pytest.raises(ValueError, match="another prior or key"):
        dmm.run_simulations(noisy, THETA + 1, KEY, folder=tmp_path, workers=1)
    with pytest.raises(ValueError, match="another prior or key"):
        dmm.run_simulations(noisy, THETA, jax.random.key(1), folder=tmp_path, workers=1)


def test_a_damaged_file_is_named(tmp_path):
    dmm.run_simulations(noisy, THETA, KEY, folder=tmp_path, workers=1)
    (block,) = pathlib.Path(tmp_path).glob("block_*.npz")
    block.write_bytes(block.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"block_00000\.npz cannot be read"):
        dmm.run_simulations(noisy, THETA, KEY, folder=tmp_path, workers=1)


def test_simulations_in_trees_are_kept_as_trees(tmp_path):
    def simulator(key, theta):
        return {"a": jnp.sum(theta["b"]), "c": (theta["d"], jnp.zeros((2, 2)))}

    theta = {"b": THETA, "d": np.arange(20.0)}
    made = dmm.run_simulations(simulator, theta, KEY, folder=tmp_path)
    read = dmm.run_simulations(simulator, theta, KEY, folder=tmp_path)
    assert jax.tree.structure(made[1]) == jax.tree.structure(read[1])
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, made[:2], read[:2])))
