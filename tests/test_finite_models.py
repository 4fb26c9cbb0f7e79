"""Models on finite spaces, end to end, against the law of their data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm

STATES = 3
LAW = np.array([[0.30, 0.02, 0.08], [0.02, 0.25, 0.03], [0.10, 0.05, 0.15]])
ENTROPY = -np.sum(LAW * np.log(LAW))
ROWS = 8192


def draws(law, n=ROWS, seed=0):
    flat = np.random.default_rng(seed).choice(law.size, n, p=law.ravel() / law.sum())
    return np.stack(np.unravel_index(flat, law.shape), -1)


def frequencies(x):
    x = np.asarray(x)
    return np.bincount(x[:, 0] * STATES + x[:, 1], minlength=9).reshape(3, 3) / len(x)


def variation(x, law=LAW):
    return 0.5 * np.abs(frequencies(x) - law).sum()


KINDS = {
    "absorbing": lambda: dmm.AbsorbingChain(dmm.Finite(2, STATES)),
    "uniform": lambda: dmm.UniformChain(dmm.Finite(2, STATES)),
    "ordinal": lambda: dmm.OrdinalChain(dmm.Finite(2, STATES, ordered=True)),
}


@functools.cache
def fitted(kind, **settings):
    """Given 0 the data have LAW, given 1 its mirror image."""
    data = np.concatenate([draws(LAW), draws(LAW[::-1], seed=1)])
    return dmm.fit(
        data,
        given=np.repeat([0, 1], ROWS),
        drop_given=0.2,
        process=KINDS[kind](),
        key=jax.random.key(0),
        network=lambda *shapes: dmm.MLP(*shapes, width=64, depth=2),
        learning_rate=5e-3,
        steps=1500,
        batch_size=1024,
        **settings,
    )


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.xdist_group(f"finite {k}")) for k in KINDS]
)
def test_law_bound_and_samplers(kind):
    """Samples within 0.07 of the law in total variation, by first-order samplers 0.1 (0.3 for the
    wrong condition; 0.02 by chance), the bound within 0.03 nats below the entropy and above it by
    no more than five standard errors."""
    model = fitted(kind)
    samplers = {
        "absorbing": [None, dmm.Euler(), dmm.FirstHitting()],
        "uniform": [None, dmm.Trapezoidal(), dmm.TauLeaping()],
        "ordinal": [None, dmm.TauLeaping()],
    }[kind]
    assert variation(draws(LAW[::-1])) > 0.25
    for i, sampler in enumerate(samplers):
        x = model.sample(jax.random.key(i), 2048, given=0, sampler=sampler, steps=40)
        assert x.dtype == jnp.int32
        assert x.min() >= 0, sampler
        assert x.max() < STATES, sampler
        first_order = isinstance(sampler, dmm.Euler | dmm.TauLeaping)
        assert variation(x) < (0.1 if first_order else 0.07), sampler
    test = draws(LAW, 1024, seed=5)
    gap = model.elbo(jax.random.key(9), test, given=0, draws=32) - np.log(LAW[tuple(test.T)])
    error = float(gap.std() / len(test) ** 0.5)
    assert -0.03 - 5 * error < gap.mean() < 5 * error


@pytest.mark.xdist_group("finite absorbing")
def test_guidance_on_masks():
    """Without the observation, the two laws mixed; with too much of it, more of what is likelier
    given it than not. By the bridge and by rates."""
    model, mixed = fitted("absorbing"), 0.5 * (LAW + LAW[::-1])
    for sampler in (None, dmm.Euler()):
        settings = {"given": 0, "sampler": sampler, "steps": 60}
        free = model.sample(jax.random.key(0), 4096, guidance=0.0, **settings)
        assert variation(free, mixed) < 0.06
        strong = frequencies(model.sample(jax.random.key(1), 4096, guidance=3.0, **settings))
        assert strong[0, 0] > LAW[0, 0] + 0.04


@pytest.mark.xdist_group("finite absorbing")
@pytest.mark.parametrize(
    ("sampler", "steps"),
    [(None, 60), (dmm.Euler(), 60), (dmm.FirstHitting(), 1)],
    ids=["bridge", "Euler", "first hitting"],
)
def test_inpainting_by_masks_is_conditional_sampling(sampler, steps):
    """The known coordinate stays, the other has its law given it: total variation under 0.04. One
    step will do for `FirstHitting`, since the first step sees the known too."""
    x = fitted("absorbing").sample(
        jax.random.key(0), 4096, given=0, known=[2, -1], where=[True, False],
        sampler=sampler, steps=steps,
    )  # fmt: skip
    assert np.all(x[:, 0] == 2)
    found = np.bincount(np.asarray(x[:, 1]), minlength=3) / 4096
    assert 0.5 * np.abs(found - LAW[2] / LAW[2].sum()).sum() < 0.04


@pytest.mark.xdist_group("finite uniform")
def test_inpainting_several_at_once():
    """Known points stacked, one `where` for all. Clamping by noise is approximate, and repeated
    steps mend it: total variation to the conditional laws under 0.08."""
    known, where = np.array([[0, 0], [1, 1]]), np.array([True, False])

    def error(repeats):
        x = fitted("uniform").sample(
            jax.random.key(0), 2048, given=0, known=known, where=where, steps=60, repeats=repeats
        )
        assert x.shape == (2, 2048, 2)
        for i in range(2):
            assert np.all(x[i, :, 0] == i)
        found = np.stack([np.bincount(np.asarray(y[:, 1]), minlength=3) for y in x]) / 2048
        truth = LAW[:2] / LAW[:2].sum(1, keepdims=True)
        return 0.5 * np.abs(found - truth).sum(1).max()

    assert error(10) < 0.08 < error(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"known": [0, 1]}, "known, where: pass both"),
        ({"known": [7, 0], "where": [True, False]}, "known: .*whole numbers from 0 to 2"),
        ({"repeats": 3}, "repeats: only filling in"),
        ({"known": [0, 1], "where": [True, False, True]}, "where: shape"),
        ({"known": [0, 1, 2], "where": [True] * 3}, "known: expected shape"),
        ({"known": [[0, 1]] * 2, "where": [True, False], "given": [0, 1, 0]}, "known: has another"),
    ],
)
@pytest.mark.xdist_group("finite uniform")
def test_bad_hints(arguments, message):
    arguments = {"given": 0, **arguments}
    with pytest.raises(ValueError, match=f"^{message}"):
        fitted("uniform").sample(jax.random.key(0), 4, **arguments)


@pytest.mark.parametrize("head", [dmm.PredictScore(), dmm.PredictRates()], ids=str)
def test_ratios_and_rates_as_outputs(head):
    """They sample by leaps, and never return a mask; the bridge says what it lacks."""
    model = dmm.fit(
        draws(LAW),
        process=KINDS["absorbing"](),
        parameterisation=head,
        schedule=dmm.Geometric(1e-2, 20.0),
        key=jax.random.key(0),
        network=lambda *shapes: dmm.MLP(*shapes, width=64, depth=2),
        learning_rate=3e-3,
        steps=1500,
    )
    x = model.sample(jax.random.key(1), 4096, steps=60)
    assert x.max() < STATES
    assert variation(x) < 0.1
    with pytest.raises(TypeError, match="Bridge needs a model that predicts data"):
        model.sample(jax.random.key(1), 4, sampler=dmm.Bridge())


@pytest.mark.xdist_group("finite absorbing")
def test_masks_along_a_path():
    """The number after the last state, fewer and fewer, and none at the end."""
    path = fitted("absorbing").sample(jax.random.key(0), 64, given=0, steps=20, path=True)
    masks = np.mean(np.asarray(path) == STATES, axis=(0, 2))
    assert masks[0] == 1
    assert masks[-1] == 0
    assert np.all(np.diff(masks) <= 0)


def test_cross_entropy_does_not_mislead():
    model = dmm.fit(
        draws(LAW),
        process=KINDS["uniform"](),
        objective=dmm.WithCrossEntropy(0.1),
        key=jax.random.key(0),
        network=lambda *shapes: dmm.MLP(*shapes, width=64, depth=2),
        steps=800,
    )
    assert variation(model.sample(jax.random.key(1), 4096, steps=60)) < 0.06


def test_cross_entropy_needs_weights_over_states():
    with pytest.raises(TypeError, match="WithCrossEntropy needs a chain"):
        dmm.fit(
            np.zeros((8, 2)),
            space=dmm.Euclidean(2),
            objective=dmm.WithCrossEntropy(),
            key=jax.random.key(0),
            steps=1,
        )


def test_product_with_masks_returns_none():
    """A chain of masks beside a line: Euler steps, the last masks drawn at the end."""
    space = dmm.Product(dmm.Finite(2, STATES), dmm.Euclidean(1))
    x = draws(LAW, 512)
    data = (x, x[:, :1] + 0.1 * np.random.default_rng(0).normal(size=(512, 1)))
    model = dmm.fit(data, space=space, key=jax.random.key(0), steps=20, batch_size=32)
    states, _ = model.sample(jax.random.key(1), 2048, steps=8)
    assert states.min() >= 0
    assert states.max() < STATES


def test_bits():
    np.testing.assert_allclose(dmm.bits_per_dimension(jnp.array([-np.log(8.0)]), 3), 1.0, rtol=1e-6)
    with pytest.raises(ValueError, match=r"^coordinates"):
        dmm.bits_per_dimension(jnp.zeros(1), 0)
