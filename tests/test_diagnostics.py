"""Two-sample distances: known values, indifference to form and units, and plain refusals."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist, pdist

from dmm.diagnostics import c2st, mmd, psnr, ssim, wasserstein1


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def precision(request):
    with jax.enable_x64(request.param), jax.numpy_rank_promotion("raise"):
        yield request.param


def normal(shape, seed, shift=0.0):
    return np.random.default_rng(seed).normal(size=shape) + shift


def key():
    return jax.random.key(0)


EVERY = {
    "c2st": lambda x, y: c2st(key(), x, y, folds=2),
    "mmd": mmd,
    "wasserstein1": wasserstein1,
}


@pytest.mark.parametrize("shift", [0.0, 1.0, 20.0])
def test_c2st_approaches_the_best_accuracy(shift):
    """N(0, 1) against N(shift, 1): no classifier beats Φ(shift / 2).

    Over 60 fresh pairs of sets the accuracy had standard deviation 0.020 at shift 0 (more than the
    binomial 0.016: folds share training points) and 0.015 at 1; four of the larger are allowed.
    """
    accuracy = c2st(key(), normal((500, 1), 1, shift), normal((500, 1), 2))
    assert isinstance(accuracy, float)
    assert accuracy == pytest.approx(stats.norm.cdf(shift / 2), abs=4 * 0.020)


@pytest.mark.usefixtures("precision")
def test_c2st_by_the_classifier_of_the_benchmark():
    """N(0, 1) against N(1, 1), and against itself: as above, and a little overfitted."""
    for shift in (0.0, 1.0):
        sets = normal((500, 1), 1, shift), normal((500, 1), 2)
        accuracy = c2st(key(), *sets, classifier="benchmark")
        assert accuracy == pytest.approx(stats.norm.cdf(shift / 2), abs=4 * 0.020)
    with pytest.raises(ValueError, match="classifier: choose from averaged, benchmark"):
        c2st(key(), normal((9, 1), 1), normal((9, 1), 2), classifier="best")


def test_c2st_agrees_with_the_benchmark_on_what_it_sees():
    """Scikit-learn's classifier, trained as the benchmark does: both accuracies scatter by 0.01."""
    from sklearn.model_selection import cross_val_score
    from sklearn.neural_network import MLPClassifier

    x, y = 1.3 * normal((1000, 2), 1), normal((1000, 2), 2)
    both = (np.concatenate([x, y]) - y.mean(0)) / y.std(0, ddof=1)
    network = MLPClassifier((20, 20), max_iter=10_000, random_state=1)
    order = np.random.default_rng(3).permutation(2000)
    labels = np.repeat([1, 0], 1000)[order]
    wanted = cross_val_score(network, both[order], labels, cv=5).mean()
    assert c2st(key(), x, y, classifier="benchmark") == pytest.approx(wanted, abs=0.035)


def test_c2st_sees_more_than_marginals():
    x = normal((500, 1), 1)
    assert c2st(key(), np.concatenate([x, x], 1), normal((500, 2), 2)) > 0.8


def test_c2st_repeats_with_its_key():
    x, y = normal((60, 2), 1, 0.3), normal((60, 2), 2)
    first = c2st(key(), x, y, folds=2)
    assert c2st(key(), x, y, folds=2) == first
    assert c2st(jax.random.key(5), x, y, folds=2) != first


def test_c2st_does_not_depend_on_units():
    # Powers of two: the standardised inputs are the same to the bit.
    x, y, units = normal((60, 2), 1, 0.3), normal((60, 2), 2), np.array([1024.0, 1 / 64])
    assert c2st(key(), x, y, folds=2) == c2st(key(), x * units, y * units, folds=2)


def test_c2st_sees_a_departure_from_a_constant():
    x, y = normal((60, 2), 1), normal((60, 2), 2)
    x[:, 1], y[:, 1] = 1.0, 0.0
    assert c2st(key(), x, y) > 0.95
    x[:, 1] = 0.0
    assert np.isfinite(c2st(key(), x, y))


def brute_force_mmd(x, y, bandwidth):
    def total(distances):
        return np.exp(-0.5 * (distances / bandwidth) ** 2).mean()

    return total(pdist(x)) + total(pdist(y)) - 2 * total(cdist(x, y))


@pytest.mark.parametrize("entries", [1, 1_000, 2**22])
def test_mmd_is_its_formula_however_it_is_cut(entries, precision, monkeypatch):
    monkeypatch.setattr(importlib.import_module("dmm.diagnostics.mmd"), "_CHUNK_ENTRIES", entries)
    x, y = normal((70, 3), 1, 0.5), normal((41, 3), 2)
    median = np.median(pdist(np.concatenate([x, y])))
    tolerance = 1e-12 if precision else 1e-6
    assert mmd(x, y) == pytest.approx(brute_force_mmd(x, y, median), abs=tolerance)
    assert mmd(x, y, bandwidth=0.7) == pytest.approx(brute_force_mmd(x, y, 0.7), abs=tolerance)


@pytest.mark.usefixtures("precision")
def test_mmd_of_two_gaussians():
    """N(0, 1) against N(1, 1), h = 1: MMD² = 2 (1 − e^{−1/6}) / √3 ≈ 0.177.

    The estimate's standard deviation at 3,000 points, from the variance of the witness function
    under both laws, is 0.0096 (0.0098 over 300 draws); four are allowed.
    """
    truth = 2 * (1 - np.exp(-1 / 6)) / np.sqrt(3)
    value = mmd(normal((3_000, 1), 1), normal((3_000, 1), 2, 1.0), bandwidth=1.0)
    assert value == pytest.approx(truth, abs=4 * 0.0096)


@pytest.mark.usefixtures("precision")
def test_mmd_survives_a_large_offset():
    x, y = normal((70, 3), 1, 0.5), normal((41, 3), 2)
    assert mmd(x + 1e6, y + 1e6) == pytest.approx(mmd(x, y), abs=1e-6)


@pytest.mark.parametrize(("n", "m"), [(50, 50), (50, 75), (50, 33), (1, 9)])
def test_wasserstein1_is_exact(n, m):
    x, y = normal((n, 3), 1, 0.5), 2 * normal((m, 3), 2)
    truth = [stats.wasserstein_distance(a, b) for a, b in zip(x.T, y.T, strict=True)]
    np.testing.assert_allclose(wasserstein1(x, y), truth, rtol=1e-12)


def test_wasserstein1_of_a_shift_is_the_shift():
    x = normal((100, 2), 1)
    np.testing.assert_allclose(wasserstein1(x[::-1] + np.array([3.0, -0.5]), x), [3.0, 0.5])


@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("name", EVERY)
def test_points_may_be_trees_of_any_arrays(name):
    x, y = normal((40, 6), 1, 1.0), normal((40, 6), 2)

    def tree(a):
        return (a[:, :2], a[:, 2:].reshape(40, 2, 2))

    np.testing.assert_allclose(EVERY[name](tree(x), tree(y)), EVERY[name](x, y))
    rounded = jnp.asarray(x.round(), dtype=jnp.int32), jnp.asarray(y.round(), dtype=jnp.int32)
    np.testing.assert_allclose(EVERY[name](*rounded), EVERY[name](x.round(), y.round()))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (normal((9, 2), 1), normal((9, 3), 2), "samples have 2 coordinates .* reference 3"),
        (np.full((9, 2), np.nan), normal((9, 2), 2), "samples must be finite: 9 of 9"),
        (normal((9, 2), 2), np.full((9, 2), np.inf), "reference must be finite"),
        ((normal(9, 1), normal(8, 1)), normal((9, 2), 2), r"samples must have as many .*\[9, 8\]"),
        (np.zeros((0, 2)), normal((9, 2), 2), "samples must not be empty"),
        (np.zeros(()), normal((9, 2), 2), "samples must be arrays"),
    ],
)
def test_bad_points_are_refused(name, x, y, message):
    with pytest.raises(ValueError, match=message):
        EVERY[name](x, y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: c2st(key(), np.zeros((9, 2)), np.zeros((8, 2))), "cut both to 8"),
        (lambda: c2st(key(), np.zeros((9, 2)), np.zeros((9, 2)), folds=1), "folds must lie"),
        (lambda: mmd(np.zeros((9, 2)), np.zeros((9, 2))), "pass a bandwidth"),
        (lambda: mmd(np.zeros((9, 2)), np.zeros((9, 2)), bandwidth=0.0), "bandwidth must be pos"),
        (lambda: mmd(np.zeros((1, 2)), np.zeros((9, 2))), "at least 2 points"),
    ],
)
def test_bad_settings_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- Images --------------------------------------------------------------------------------------


def test_psnr_against_its_formula():
    """An error of a tenth of the range is 20 dB everywhere; none is that of half a level."""
    truth = np.random.default_rng(0).uniform(0, 200, (3, 8, 8))
    np.testing.assert_allclose(psnr(truth + 25.5, truth, top=255), 20.0)
    np.testing.assert_allclose(psnr(truth, truth, top=255), 20 * np.log10(510))


def test_ssim_is_that_of_scikit_image():
    from skimage.metrics import structural_similarity

    random = np.random.default_rng(0)
    truth, other = random.uniform(0, 16, (2, 4, 8, 8))
    ours = ssim(other, truth, top=16)
    theirs = [structural_similarity(a, b, data_range=16) for a, b in zip(other, truth, strict=True)]
    np.testing.assert_allclose(ours, theirs)
    np.testing.assert_allclose(ssim(truth, truth, top=16), 1.0)


@pytest.mark.parametrize("score", [psnr, ssim])
def test_images_must_match(score):
    with pytest.raises(ValueError, match=r"^images, truth"):
        score(np.zeros((2, 8, 8)), np.zeros((3, 8, 8)), top=1.0)
