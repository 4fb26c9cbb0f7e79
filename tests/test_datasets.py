"""Datasets with a known law: the law is one, the draws follow it, the posterior is Bayes's.

Those in files: what is read is what the file says, and an error says where it cannot be read.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from dmm.datasets import (
    DataError,
    DirichletMixture,
    GaussianMixture,
    LinearGaussian,
    TwoMoons,
    earth,
    files,
    microbiome,
    split,
)

UNEQUAL = ([[0.0, 0.0], [1.5, -1.0], [-1.0, 1.0]], [0.5, 0.2, 0.3], [2.0, 1.0, 3.0])
PLANAR = {
    "ring": lambda: GaussianMixture.ring(),
    "unequal mixture": lambda: GaussianMixture(*UNEQUAL),
    "moons": lambda: TwoMoons(),
    "thin moons": lambda: TwoMoons(noise=0.05),
}


@pytest.fixture(autouse=True, params=[False, True], ids=["float32", "float64"])
def precision(request):
    with jax.enable_x64(request.param), jax.numpy_rank_promotion("raise"):
        yield request.param


def draws(sample, n, seed=0):
    return np.asarray(jax.jit(jax.vmap(sample))(jax.random.split(jax.random.key(seed), n)))


EDGES = np.linspace(-3.4, 3.4, 35)


@functools.cache
def probabilities(name, precision, refine=12):
    """Mass of each cell between `EDGES`, by the midpoint rule on `refine`² points a cell.

    `precision` is the one in force: it only tells the cached results apart.
    """
    law, edges = PLANAR[name](), EDGES
    fine = np.linspace(edges[0], edges[-1], refine * (len(edges) - 1) + 1)
    middle = (fine[1:] + fine[:-1]) / 2
    plane = jnp.asarray(np.stack(np.meshgrid(middle, middle, indexing="ij"), -1).reshape(-1, 2))
    density = np.exp(np.asarray(jax.jit(jax.vmap(law.log_prob))(plane), dtype=np.float64))
    cells = density.reshape(len(edges) - 1, refine, len(edges) - 1, refine).sum((1, 3))
    return cells * (fine[1] - fine[0]) ** 2


def assert_standard_normal(values):
    values = values.ravel().astype(np.float64)
    assert stats.kstest(values, "norm").pvalue > 1e-4
    below = stats.chi2.cdf((values**2).sum(), values.size)
    assert 2 * min(below, 1 - below) > 1e-4


@pytest.mark.parametrize("name", PLANAR)
def test_densities_integrate_to_one(name, precision):
    # The integrand is smooth and vanishes at the edges: the midpoint rule is exact to rounding.
    mass = probabilities(name, precision).sum()
    assert mass == pytest.approx(1.0, abs=1e-9 if precision else 1e-5)


@pytest.mark.parametrize("name", PLANAR)
def test_samples_follow_their_density(name, precision):
    """χ² over cells of side 0.2, those that expect fewer than 5 points pooled.

    For a right sampler the test fails at one key in 10⁴; the key is fixed.
    """
    n = 60_000
    points = draws(PLANAR[name]().sample, n)
    assert points.shape == (n, 2)
    counts = np.histogram2d(*points.T, bins=(EDGES, EDGES))[0].ravel()
    expected = n * probabilities(name, precision).ravel()
    large = expected >= 5
    counts = np.append(counts[large], n - counts[large].sum())
    expected = np.append(expected[large], n - expected[large].sum())
    assert stats.chisquare(counts, expected).pvalue > 1e-4


def test_mixture_has_its_formula_in_any_dimension(precision):
    means, scales, weights = np.eye(3, 5), np.array([0.5, 1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    mixture, x = GaussianMixture(means, scales, weights), np.linspace(-1, 1, 5)
    terms = zip(weights / 4, means, scales, strict=True)
    truth = sum(w * stats.multivariate_normal.pdf(x, m, s**2) for w, m, s in terms)
    value = mixture.log_prob(jnp.asarray(x))
    assert value == pytest.approx(np.log(truth), rel=1e-12 if precision else 1e-5)
    assert mixture.sample(jax.random.key(0)).shape == (5,)


def test_mixture_leaves_out_a_component_without_weight():
    mixture = GaussianMixture([[0.0, 0.0], [50.0, 0.0]], [0.1, 0.1], [1, 0])
    assert np.abs(draws(mixture.sample, 1_000)).max() < 1
    assert np.isfinite(jax.grad(mixture.log_prob)(jnp.ones(2))).all()


def test_ring_is_evenly_spaced():
    ring = GaussianMixture.ring(components=4, radius=3.0, scale=0.1)
    np.testing.assert_allclose(ring.means, [[3, 0], [0, 3], [-3, 0], [0, -3]], atol=1e-6)
    np.testing.assert_allclose(ring.weights, 0.25)


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.4])
def test_moons_quadrature_is_accurate(noise, precision):
    """Against a composite rule, 200 panels of 20 nodes, in log p out to |x_i| = 6."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    angles = np.pi / 200 * (np.arange(200)[:, None] + (nodes[None] + 1) / 2).ravel()
    weights = np.tile(weights / 800, 400)
    log_prob, cos, sin = jax.jit(TwoMoons(noise).log_prob), np.cos(angles), np.sin(angles)
    curve = np.concatenate([np.c_[cos, sin], np.c_[1 - cos, 0.5 - sin]])
    for x in np.random.default_rng(0).uniform(-6, 6, (50, 2)):
        logs = stats.norm.logpdf(x[None], curve, noise).sum(axis=1)
        truth = special.logsumexp(logs, b=weights)
        # Float32 rounds an exponent of thousands before any quadrature.
        tolerance = 1e-6 if precision else 1e-6 * max(1.0, abs(truth))
        assert log_prob(jnp.asarray(x)) == pytest.approx(truth, abs=tolerance)


def test_moons_are_those_of_scikit_learn():
    from sklearn.datasets import make_moons

    points, side = make_moons(200, shuffle=False)
    law = TwoMoons(noise=0.05)
    # On a thin moon, away from its ends and the other, the density is that of a line's blur.
    peak = 1 / (2 * np.pi * np.sqrt(2 * np.pi) * 0.05)
    for moon in (points[side == 0], points[side == 1]):
        density = np.exp(jax.vmap(law.log_prob)(jnp.asarray(moon[30:70])))
        np.testing.assert_allclose(density, peak, rtol=2e-3)


@pytest.mark.parametrize(("prior_scale", "noise_scale"), [(0.1**0.5, 0.1**0.5), (2.0, 0.5)])
def test_posterior_is_bayes_rule(prior_scale, noise_scale, precision):
    task = LinearGaussian(1, prior_scale=prior_scale, noise_scale=noise_scale)
    theta, x = np.linspace(-4, 4, 4_001), 0.7
    joint = stats.norm.pdf(theta, 0, prior_scale) * stats.norm.pdf(x, theta, noise_scale)
    truth = joint / (joint.sum() * (theta[1] - theta[0]))
    observed = jnp.full(1, x)
    logs = jax.vmap(task.posterior_log_prob, (0, None))(jnp.asarray(theta)[:, None], observed)
    np.testing.assert_allclose(np.exp(logs), truth, atol=1e-9 if precision else 1e-4)
    mean, scale = task.posterior(observed)
    density = truth * (theta[1] - theta[0])
    assert mean[0] == pytest.approx((theta * density).sum(), rel=1e-5)
    assert scale == pytest.approx(np.sqrt(((theta - mean[0]) ** 2 * density).sum()), rel=1e-5)


def test_posterior_samples_follow_the_posterior():
    """Standardised draws: their shape, and the sum of their squares, which sees a wrong scale.

    Each test of a right sampler fails at one key in 10⁴; the keys are fixed.
    """
    task = LinearGaussian()
    x = task.sample(jax.random.key(1))[1]
    mean, scale = task.posterior(x)
    theta = draws(lambda key: task.posterior_sample(key, x), 2_000)
    assert theta.shape == (2_000, 10)
    assert_standard_normal((theta - np.asarray(mean)) / scale)


def test_joint_samples_have_a_posterior_that_fits():
    """(θ − mean(x)) / scale is standard normal over the joint law, and so is x in its scale."""
    task = LinearGaussian(dim=3, prior_scale=2.0, noise_scale=0.5)
    keys = jax.random.split(jax.random.key(2), 5_000)
    theta, x = jax.vmap(task.sample)(keys)
    mean, scale = jax.vmap(task.posterior, out_axes=(0, None))(x)
    assert_standard_normal(np.asarray(theta - mean) / scale)
    assert_standard_normal(np.asarray(x) / np.hypot(2.0, 0.5))


def test_default_task_is_the_benchmarks():
    task = LinearGaussian()
    mean, scale = task.posterior(jnp.ones(10))
    np.testing.assert_allclose(mean, 0.5, rtol=1e-6)
    assert scale**2 == pytest.approx(0.05)


LOPSIDED = ([[0.2, 1.0, 3.0, 5.0], [2.0, 0.5, 7.0, 0.1], [9.0, 9.0, 9.0, 9.0]], [1.0, 2.0, 5.0])


def dirichlet_mixture(name):
    return DirichletMixture(*LOPSIDED) if name == "lopsided" else DirichletMixture.paper(5, 0)


@pytest.mark.parametrize("name", ["lopsided", "paper"])
def test_dirichlets_have_their_formula(name, precision):
    mixture = dirichlet_mixture(name)
    alphas, weights = (np.asarray(a, np.float64) for a in (mixture.alphas, mixture.weights))
    points = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(alphas.shape[1]), 20))
    found = jax.jit(jax.vmap(mixture.log_prob))(points)
    for x, value in zip(np.asarray(points, np.float64), found, strict=True):
        logs = [stats.dirichlet.logpdf(x / x.sum(), a) for a in alphas]
        truth = special.logsumexp(logs, b=weights)
        assert value == pytest.approx(truth, abs=1e-11 if precision else 1e-4)


@pytest.mark.parametrize("name", ["lopsided", "paper"])
def test_dirichlet_samples_have_the_exact_moments(name):
    """Each mean and covariance within 5 of its standard errors: two in 10⁶ a moment by chance."""
    mixture, n = dirichlet_mixture(name), 100_000
    alphas, weights = (np.asarray(a, np.float64) for a in (mixture.alphas, mixture.weights))
    totals = alphas.sum(1)[:, None, None]
    means = alphas / totals[..., 0]
    mean = weights @ means
    squares = (alphas[:, :, None] * (alphas[:, None] + np.eye(len(mean)))) / totals / (totals + 1)
    covariance = np.tensordot(weights, squares, 1) - np.outer(mean, mean)
    points = draws(mixture.sample, n).astype(np.float64)
    assert points.min() > 0
    np.testing.assert_allclose(points.sum(1), 1, rtol=1e-5)
    products = (points - mean)[:, :, None] * (points - mean)[:, None]
    for values, truth in ((points, mean), (products, covariance)):
        error = values.std(0) / np.sqrt(n)
        assert np.all(np.abs(values.mean(0) - truth) < 5 * error)


@pytest.mark.parametrize(("parts", "value"), [(3, 1.321), (5, 4.122), (10, 15.288), (20, 45.914)])
def test_dirichlets_are_those_of_the_paper(parts, value):
    """The mean log-likelihood over five seeds is the row "Data" of the paper's table.

    Both are sample means: within 4 standard errors of their difference. The paper does not say
    over how many points it took its mean; 10,000 a seed are supposed, an error of 0.006 to 0.013.
    """
    n, papers, random, logs = 20_000, 10_000, np.random.default_rng(0), []
    log_prob = eqx.filter_jit(eqx.filter_vmap(DirichletMixture.log_prob, in_axes=(None, 0)))
    for seed in range(5):
        mixture = DirichletMixture.paper(parts, seed)
        gammas = random.standard_gamma(mixture.alphas[random.integers(4, size=n)])
        logs.append(log_prob(mixture, jnp.asarray(gammas / gammas.sum(1, keepdims=True))))
    logs = np.asarray(logs, np.float64)
    error = np.sqrt(logs.var(1).mean() / 5 * (1 / n + 1 / papers))
    assert logs.mean() == pytest.approx(value, abs=4 * error)


def test_dirichlets_of_other_sizes_are_fixed_draws(precision):
    mixture = DirichletMixture.paper(100, 7)
    assert mixture.alphas.shape == (4, 100)
    truth = np.random.default_rng((100, 7)).gamma(3.0, size=(4, 100))
    np.testing.assert_allclose(mixture.alphas, truth, rtol=1e-15 if precision else 1e-6)


def test_dirichlets_are_sampled_and_evaluated_at_the_edge():
    """Parts below the smallest number are not 0, and a density that is flat there is finite."""
    mixture = DirichletMixture([[0.01, 0.01, 0.01]])
    points = draws(mixture.sample, 1_000)
    log_prob = eqx.filter_jit(eqx.filter_vmap(DirichletMixture.log_prob, in_axes=(None, 0)))
    assert np.isfinite(log_prob(mixture, jnp.asarray(points))).all()
    flat = log_prob(DirichletMixture(np.ones((1, 3))), jnp.asarray([[0.0, 0.5, 0.5]]))
    assert flat[0] == pytest.approx(np.log(2), rel=1e-5)


# --- Files ---------------------------------------------------------------------------------------

HEADERS = {"volerup": 2, "quakes_all": 4, "flood": 2, "fire": 1}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DMM_DATA", str(tmp_path))
    return tmp_path


def write_events(folder, file, rows):
    (folder / "earth").mkdir(exist_ok=True)
    (folder / f"earth/{file}.csv").write_text("\r\n".join([*["# head"] * HEADERS[file], *rows]))


@pytest.mark.parametrize(
    ("name", "file"),
    [("volcano", "volerup"), ("earthquake", "quakes_all"), ("flood", "flood"), ("fire", "fire")],
)
def test_events_point_where_the_file_says(name, file, folder):
    write_events(folder, file, ["0,0", "90.0,17", "0,90", "-45,180", "30,-90", ""])
    half, root = 0.5, np.sqrt(0.5)
    truth = [[1, 0, 0], [0, 0, 1], [0, 1, 0], [-root, 0, -root], [0, -np.sqrt(0.75), half]]
    found = earth(name)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, truth, atol=1e-15)


@pytest.mark.parametrize("row", ["12.5", "1,2,3", "x,1", "91,0", "nan,0", "0,inf"])
def test_events_that_cannot_be_read_are_named(row, folder):
    write_events(folder, "quakes_all", ["1,2", row, "3,4"])
    with pytest.raises(DataError, match=rf"quakes_all\.csv: line 6 must be.*'{row}'"):
        earth("earthquake")
    write_events(folder, "flood", [])
    with pytest.raises(DataError, match=r"flood\.csv: holds no events"):
        earth("flood")


def write_counts(folder, text):
    (folder / "simplex").mkdir(exist_ok=True)
    (folder / "simplex/atlas1006_counts.csv").write_text(text)


def test_counts_are_read_with_and_without_quotes(folder):
    write_counts(folder, '"","Bacillus","Bacteroides, all"\r\n"Sample-1",0,21\r\nSample-2,3.0,4\n')
    found = microbiome()
    assert found.names == ["Bacillus", "Bacteroides, all"]
    np.testing.assert_array_equal(found.counts, [[0.0, 21.0], [3.0, 4.0]])


@pytest.mark.parametrize("row", ["b,1", "b,1,2,3", "b,x,1", "b,-1,0", "b,nan,0"])
def test_counts_that_cannot_be_read_are_named(row, folder):
    write_counts(folder, f"sample,A,B\na,1,2\n{row}\n")
    with pytest.raises(DataError, match=r"counts\.csv: line 3 must be a sample's name and 2 "):
        microbiome()
    for empty in ("", "sample,A,B\n"):
        write_counts(folder, empty)
        with pytest.raises(DataError, match=r"counts\.csv: holds no counts"):
            microbiome()


def test_a_file_without_an_address_says_where_it_comes_from(tmp_path, monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.setenv("DMM_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"^DMM_DATA: .*does not exist; put it there: .*github"):
        microbiome()
    monkeypatch.delenv("DMM_DATA")
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / name)
    with pytest.raises(DataError, match=r"^simplex/.*no address.*set DMM_DATA.*github"):
        microbiome()


def test_split_shares_out_every_row_once():
    data = np.arange(827)
    parts = split(data, 3)
    assert [len(part) for part in parts] == [662, 82, 83]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), data)
    np.testing.assert_array_equal(parts.train, split(data, 3).train)
    assert not np.array_equal(parts.test, split(data, 4).test)
    assert [len(part) for part in split(data, 0, shares=(0.9, 0.0, 0.1))] == [744, 0, 83]


def test_addresses_and_digests_have_their_form():
    for name, file in files.FILES.items():
        assert len(bytes.fromhex(file.digest)) == 32
        assert (file.origin and not file.address) or file.address.startswith("https://"), name


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TwoMoons(noise=0.01), "noise must be at least 0.05"),
        (lambda: GaussianMixture([0.0], [1.0], [1.0]), "means must be"),
        (lambda: GaussianMixture([[0.0]], [1.0, 2.0], [1.0]), r"scales must be \(1,\)"),
        (lambda: GaussianMixture([[0.0]], [1.0], [1.0, 2.0]), r"weights must be \(1,\)"),
        (lambda: GaussianMixture([[0.0]], [-1.0], [1.0]), "scales must be positive"),
        (lambda: GaussianMixture([[0.0]], [1.0], [-1.0]), "weights must be non-negative"),
        (lambda: DirichletMixture([1.0, 2.0]), r"alphas: expected rows.*\(2,\)"),
        (lambda: DirichletMixture([[1.0], [2.0]]), "alphas: expected rows of two"),
        (lambda: DirichletMixture([[1.0, 2.0], [1.0]]), "alphas: rows differ"),
        (lambda: DirichletMixture([["1", "2"]]), "alphas: expected real numbers"),
        (
            lambda: DirichletMixture([[1.0, 0.0]]),
            r"alphas: must be positive.*0.0 at index \(0, 1\)",
        ),
        (lambda: DirichletMixture([[np.inf, 1.0]]), "alphas: must be positive and finite"),
        (lambda: DirichletMixture(np.ones((2, 3)), [1.0]), r"weights: expected shape \(2,\)"),
        (lambda: DirichletMixture(np.ones((2, 3)), [1, -1]), "weights: must be finite and not"),
        (lambda: DirichletMixture.paper(3, 5), "seed: the paper's mixtures of 3 parts have"),
        (lambda: DirichletMixture.paper(1, 0), "parts: must be at least 2"),
        (lambda: DirichletMixture.paper(7, -1), "seed: must be at least 0"),
        (lambda: earth("flod"), "name: expected one of volcano.*'flod'"),
        (lambda: split(np.ones((3, 2)), 0), "data: 3 rows leave none for test"),
        (lambda: split(np.ones(9), 0, shares=(0.5, 0.5, 0.5)), "shares: expected three"),
        (lambda: LinearGaussian(dim=0), "dim must be at least 1"),
        (lambda: LinearGaussian(noise_scale=0.0), "must be positive"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()
