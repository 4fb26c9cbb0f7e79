"""What the experiment `gandk` computes around its fits, and its network."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import dmm
from dmm.experiments import gandk
from dmm.experiments._centred import FEATURES, Centred

WIDTH, CENTRE = 0.03, 0.4


def centred(kind: str, process, parameterisation):
    """A network whose Gaussian has a known centre and width, and its score."""
    x = jnp.zeros(1)
    shapes = (
        jax.eval_shape(lambda: parameterisation.inputs(process, x, 1.0)),
        jax.ShapeDtypeStruct((1,), x.dtype),
    )
    network = Centred(jax.random.key(0), *shapes, jnp.zeros(FEATURES), kind=kind, width=8)
    network = jax.tree.map(lambda leaf: leaf.astype(x.dtype), network)
    for name, value in (("centre", CENTRE), ("log_width", math.log(WIDTH))):
        bias = getattr(network, name).bias
        network = jax.tree.map(
            lambda leaf, bias=bias, value=value: (
                jnp.full_like(leaf, value) if leaf is bias else leaf
            ),
            network,
        )

    def score(x, tau):
        inputs = parameterisation.inputs(process, x, tau)
        return parameterisation.score(process, network(inputs, tau, jnp.zeros(FEATURES)), x, tau)

    return score


@pytest.mark.parametrize("tau", [1e-5, 1e-3, 0.1, 3.0])
def test_gaussian_posteriors_on_the_line_are_exact_before_training(x64, tau):
    process = dmm.OrnsteinUhlenbeck(dmm.Euclidean(1))
    score = centred("real", process, dmm.Preconditioned())
    q = math.exp(-tau)
    mean, sd = math.sqrt(q) * CENTRE, math.sqrt(q * WIDTH**2 + 1 - q)
    for x in (mean - 2 * sd, mean + 0.5 * sd):
        expected = jax.grad(lambda y: norm.logpdf(y, mean, sd))(x)
        np.testing.assert_allclose(score(jnp.array([x]), tau)[0], expected, rtol=1e-9)


def test_narrow_posteriors_in_a_box_are_nearly_exact_before_training(x64):
    # For a short time the process is a Brownian motion of arcsin(2x − 1).
    process = dmm.Jacobi(dmm.Box([0.0], [1.0]))
    tau, score = 1e-4, centred("box", process, dmm.default_parameterisation(process))
    sd = math.sqrt(WIDTH**2 + tau)

    def log_prob(x):
        y = jnp.arcsin(2 * x - 1)
        return norm.logpdf(y, CENTRE, sd) - 0.5 * jnp.log(x * (1 - x))

    for away in (-1.5, 1.0, 2.0):
        x = 0.5 * (1 + math.sin(CENTRE + away * sd))
        np.testing.assert_allclose(
            score(jnp.array([x]), tau)[0], jax.grad(log_prob)(x), rtol=0.05, atol=2.0
        )


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
