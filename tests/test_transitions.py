"""exp(τB) of rate matrices against high precision, and what a rate matrix must be."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import dmm
from dmm.processes.ordinal import ordinal_rates
from dmm.processes.transitions import Transitions, relaxation_time, stationary
from table import FOUR

REFERENCE = json.loads(
    (pathlib.Path(__file__).parent / "reference_values/ctmc_transition.json").read_text()
)


def rates_of(case):
    """The rate matrix of a reference case."""
    states = case["S"]
    if case["kind"] == "uniform":  # rate 1 to every other state
        return np.ones((states, states)) - states * np.eye(states)
    if case["kind"] == "absorbing":  # in the last state
        matrix = -np.eye(states)
        matrix[:, -1] += 1
        return matrix
    return np.array(case["rate"])


@pytest.mark.parametrize("case", REFERENCE, ids=lambda c: f"{c['kind']}-{c['S']}-{c['tau']}")
def test_transitions_against_high_precision(case):
    """mpmath values, every entry to 1e-6 of itself in float32."""
    found = Transitions(rates_of(case), 50.0)(case["tau"])
    np.testing.assert_allclose(found, case["P"], rtol=1e-6, atol=1e-30)


def test_closed_forms_against_high_precision():
    """Our uniform chain has rate 1/S where the reference's has 1; its mask is the last state."""
    for case in REFERENCE:
        states, truth = case["S"], np.array(case["P"])
        every = jnp.arange(states)
        if case["kind"] == "uniform":
            chain, tau = dmm.UniformChain(dmm.Finite((), states)), states * case["tau"]
        elif case["kind"] == "absorbing":
            chain, tau = dmm.AbsorbingChain(dmm.Finite((), states - 1)), case["tau"]
        else:
            continue
        for x0 in every:
            np.testing.assert_allclose(chain.row(x0, tau), truth[x0], rtol=2e-6, atol=1e-30)
            np.testing.assert_allclose(chain.column(x0, tau), truth[:, x0], rtol=2e-6, atol=1e-30)
        law = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(states)), jnp.float32)
        np.testing.assert_allclose(chain.propagate(law, tau), law @ truth, rtol=2e-6)


def test_ordinal_rates_against_high_precision():
    cases = [case for case in REFERENCE if case["kind"] == "gaussian"]
    assert cases
    for case in cases:
        rates, law = ordinal_rates(case["S"], case["rate_sigma"], case["Q_sigma"])
        np.testing.assert_allclose(rates, case["rate"], rtol=1e-12)
        flow = law[:, None] * rates
        np.testing.assert_allclose(flow, flow.T, rtol=1e-12)


@functools.cache  # made once, outside of any transformation
def images():
    """The paper's chain of grey levels."""
    return dmm.OrdinalChain(dmm.Finite((), 256, ordered=True))


@pytest.mark.xdist_group("images")
def test_ordinal_chain_of_the_paper():
    """Exit rate 11.6 and spectral gap 0.0209, as NUMERICS.md has them."""
    matrix, law = ordinal_rates(256, 6.0, 512.0)
    assert images().transitions.fastest == pytest.approx(11.634, abs=1e-3)
    assert 1 / relaxation_time(matrix) == pytest.approx(0.020920, abs=1e-6)
    np.testing.assert_allclose(images().stationary, law, rtol=1e-6)
    np.testing.assert_allclose(stationary(matrix), law, rtol=1e-8)


@pytest.mark.xdist_group("images")
@pytest.mark.parametrize("tau", [1e-5, 2e-3, 1.7, 297.0])
def test_many_states_by_interpolation(tau):
    """Every probability above 1e-9 to 1e-5 of itself, against squaring in double precision."""
    matrix = ordinal_rates(256, 6.0, 512.0)[0]
    fastest = -matrix.diagonal().min()
    halvings = max(0, int(np.ceil(np.log2(fastest * tau))) + 4)
    h, one, truth = fastest * tau / 2**halvings, np.eye(256), np.eye(256)
    for n in range(14, 0, -1):
        truth = one + (h / n) * ((one + matrix / fastest) @ truth)
    truth = np.linalg.matrix_power(np.exp(-h) * truth, 2**halvings)
    transitions = images().transitions
    found = np.asarray(jax.jit(lambda tau: transitions(tau))(tau), float)
    assert found.min() >= 0
    np.testing.assert_allclose(found.sum(1), 1.0, rtol=1e-6)
    likely = truth > 1e-9
    np.testing.assert_allclose(found[likely], truth[likely], rtol=1e-5)


def test_interpolated_transitions_agree_with_those_on_the_spot(monkeypatch):
    """Where both apply, in the chain's verbs."""
    space = dmm.Finite(3, 20, ordered=True)
    direct = dmm.OrdinalChain(space)
    monkeypatch.setattr(dmm.processes.transitions, "DIRECT", 4)
    tabulated = dmm.OrdinalChain(space)
    assert direct.transitions.table is None
    assert tabulated.transitions.table is not None
    x, tau = jnp.array([0, 7, 19]), 0.8
    law = jax.nn.softmax(jax.random.normal(jax.random.key(0), (3, 20)))
    for verb, argument in (("row", x), ("column", x), ("propagate", law)):
        values = [getattr(chain, verb)(argument, tau) for chain in (direct, tabulated)]
        np.testing.assert_allclose(*values, rtol=2e-5)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 4)), "expected shape"),
        ([[-1.0, 1.0], [2.0, -1.0]], "row 1 sums to 1"),
        ([[1.0, -1.0], [1.0, -1.0]], "rate from 0 to 1 is negative"),
        ([[np.nan, 1.0], [1.0, -1.0]], "NaN"),
        (np.zeros((2, 2)), "no unique stationary law"),
        ([[-1.0, 1.0], [0.0, 0.0]], "state 0 is left for good.*AbsorbingChain"),
    ],
)
def test_bad_rate_matrix(matrix, message):
    with pytest.raises(ValueError, match=f"^matrix: .*{message}"):
        dmm.MatrixChain(dmm.Finite(3, 2), matrix)


def test_stationary_law_is_that_of_the_exponential():
    matrix = np.array(FOUR)
    np.testing.assert_allclose(stationary(matrix), scipy.linalg.expm(200 * matrix)[0])
