"""What the experiment `gandk` computes around its fits."""

import json

import numpy as np
import pytest

from dmm.experiments import gandk


def test_distances_of_exact_draws():
    # Means over 2 data sets of 4 distances, each known to a third of itself.
    random = np.random.default_rng(0)
    truth, draws = random.normal(size=(2, 800, 4)), random.normal(size=(2, 400, 4))
    truths = random.uniform(0, 10, (100, 4))
    found = gandk.judge(draws, truth, truths, random.uniform(0, 10, (100, 20, 4)))
    floor = gandk.noise(truth, 400)
    assert floor.shape == (4,)
    assert 0.4 < np.mean(found["distances"]) / np.mean(floor) < 2.5
    assert found["p_value"] > 1e-3
    # Standard normal draws are negative, all four are positive once in 16.
    assert found["leakage"] == pytest.approx(15 / 16 * 800 / 2_800, abs=0.03)


def test_what_other_methods_reached_is_read(tmp_path):
    path = tmp_path / "peers_250.json"
    assert gandk.read_peers(path) == ({}, {})
    rows = [{"method": m, "wasserstein1_over_sd": [0.1, 0.2, 0.3, 0.4]} for m in ("ours", "npe")]
    path.write_text(json.dumps({"methods": rows}))
    np.savez(path.with_suffix(".npz"), reference=np.zeros((3, 4)), npe=np.ones((3, 4)))
    found, clouds = gandk.read_peers(path)
    assert list(found) == list(clouds) == ["npe"]
    result = {"distances": np.full(4, 0.05), "c2st": [0.5, 0.6]}
    table = gandk.distances(250, {"box": result}, found, np.full(4, 0.01))
    assert table[1]["npe"] == 0.2
    assert table[1][gandk.PROCESSES["box"]] == 0.05
    assert table[-1][gandk.PROCESSES["box"]] == pytest.approx(0.55)


def test_all_methods_are_drawn():
    """Ours, the reference, and others, a few a figure; every name within it."""
    random, drawn = np.random.default_rng(0), {}

    class Run:
        def figure(self, name, figure):
            drawn[name] = figure

    ours = {name: random.normal(size=(50, 4)) for name in ("NUTS", *gandk.PROCESSES.values())}
    others = {f"method {i}": random.normal(size=(50, 4)) for i in range(5)}
    gandk.draw_posteriors(Run(), 250, ours, others)
    assert {"marginals_250", "pairs_250", "methods_250_3"} <= set(drawn)
    figure = drawn["methods_250_1"]
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1
