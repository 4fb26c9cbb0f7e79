"""Bad input: each a one-line error that names the argument and the fix, before any long work."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from jax.random import key

import dmm

LINE, PLANE = dmm.Euclidean(1), dmm.Euclidean(2)
PRODUCT = dmm.Product(LINE, PLANE)

pytestmark = pytest.mark.xdist_group("bad input")


@pytest.fixture(autouse=True)
def as_users_see_it():
    """Users do not run beartype: the library must find what is wrong by itself."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def network(*shapes):
    return dmm.MLP(*shapes, width=4, depth=1)


def fit(data=None, **settings):
    chosen = {
        "space": PLANE,
        "key": key(0),
        "network": network,
        "steps": 2,
        "block": 2,
        "batch_size": 4,
        "validation": 0.0,
    }
    return dmm.fit(points() if data is None else data, **(chosen | settings))


def points(n=8, **changes):
    """Stacked points, some replaced: `at_3=value` changes the fourth."""
    x = np.random.default_rng(0).normal(size=(n, 2))
    for name, value in changes.items():
        x[int(name.removeprefix("at_")), 0] = value
    return x


class Nowhere(dmm.Space):
    """A space that no process of the library lives on."""

    def contains(self, x):
        return jnp.ones((), bool)

    def check(self, data, name="data"):
        return data

    def features(self, x):
        return x


class Bare(dmm.Diffusion):
    """A process that does not say how data become noise."""

    space: dmm.Euclidean = PLANE

    def drift(self, x):
        return -0.5 * x

    def covariance(self, x):
        return jnp.eye(2)


class Simulated(Bare, dmm.Simulated):
    data: dmm.Euclidean = PLANE
    reference: dmm.Law = dmm.Gaussian((2,))
    horizon: float = eqx.field(static=True, default=5.0)
    substeps: int = eqx.field(static=True, default=2)


class Wide(eqx.Module):
    """A network that returns three numbers."""

    def __call__(self, inputs, tau, given, present):
        return jnp.zeros(3)


class OneArgument(eqx.Module):
    """A network that takes the inputs alone."""

    def __call__(self, inputs):
        return inputs


class Unstacked(eqx.Module):
    """A network that returns a tuple."""

    def __call__(self, inputs, tau, given, present):
        return inputs, inputs


def stream(*batches):
    return dmm.Stream(lambda step: iter(batches[step:]))


LABELS = np.arange(8) % 3

# What is called, the argument that the message must begin with, and a part of the fix it names.
FIT = {
    "wrong shape": (lambda: fit(np.ones((8, 3))), "data", r"expected shape \(n, 2\).*reshape"),
    "one point unstacked": (lambda: fit(np.ones(2)), "data", r"expected shape \(n, 2\)"),
    "too many axes": (lambda: fit(np.ones((8, 2, 1))), "data", r"expected shape \(n, 2\)"),
    "NaN": (lambda: fit(points(at_3=np.nan)), "data", r"1 of 8 .* index \(3, 0\); drop or repair"),
    "infinity": (lambda: fit(points(at_5=-np.inf)), "data", r"infinity.* index \(5, 0\)"),
    "overflow": (lambda: fit(points(at_5=1e39)), "data", "single precision|infinity"),
    "empty": (lambda: fit(np.ones((0, 2))), "data", "at least one point"),
    "empty list": (lambda: fit([]), "data", "expected shape"),
    "strings": (lambda: fit(np.array([["a", "b"]])), "data", "expected (real )?numbers.*convert"),
    "objects": (lambda: fit(np.array([[None, {}]])), "data", "expected (real )?numbers.*convert"),
    "complex": (lambda: fit(np.ones((8, 2)) * 1j), "data", "expected (real )?numbers.*convert"),
    "ragged": (lambda: fit([[1.0, 2.0], [3.0]]), "data", r"expected shape \(n, 2\)|stack"),
    "function": (lambda: fit(lambda key: key), "data", r"dmm.Simulator\("),
    "none": (lambda: dmm.fit(None, space=PLANE, key=key(0)), "data", "numbers"),
    "integer key": (lambda: fit(key=0), "key", r"jax.random.key\(0\)"),
    "no key": (lambda: fit(key=None), "key", r"jax.random.key\(0\)"),
    "several keys": (lambda: fit(key=jax.random.split(key(0))), "key", r"jax.random.key\(0\)"),
    "no space": (lambda: fit(space=None), "space", r"space=dmm.Euclidean\(2\)"),
    "space as number": (lambda: fit(space=2), "space", "dmm.Euclidean"),
    "space without process": (
        lambda: fit(np.ones((8, 2)), space=Nowhere()), "space", "pass process="
    ),
    "space and process": (
        lambda: fit(process=dmm.OrnsteinUhlenbeck(LINE)), "space", "pass one of them"
    ),
    "bare process": (lambda: fit(process=Bare()), "process", "dmm.Simulated"),
    "process as class": (lambda: fit(process=dmm.Brownian), "process", "dmm.Simulated|call it"),
    "denoising simulated": (
        lambda: fit(process=Simulated(), objective=dmm.denoising), "objective", "dmm.implicit"
    ),
    "explicit density": (
        lambda: fit(process=Simulated(), objective=dmm.DiscreteTime()),
        "objective", "dmm.implicit",
    ),
    "no steps": (lambda: fit(steps=0), "steps", "at least 1"),
    "negative steps": (lambda: fit(steps=-5), "steps", "at least 1"),
    "no batch": (lambda: fit(batch_size=0), "batch_size", "at least 1"),
    "negative block": (lambda: fit(block=-1), "block", "at least 1"),
    "zero block": (lambda: fit(block=0), "block", "at least 1"),
    "no learning rate": (lambda: fit(learning_rate=0.0), "learning_rate", "positive|above 0"),
    "negative learning rate": (lambda: fit(learning_rate=-1.0), "learning_rate", "positive|above"),
    "negative warmup": (lambda: fit(warmup=-1), "warmup", "at least 0|negative"),
    "negative clip": (lambda: fit(clip=-1.0), "clip", "positive|above 0"),
    "ema of one": (lambda: fit(ema=1.0), "ema", r"\[0, 1\)"),
    "drop all": (lambda: fit(given=LABELS, drop_given=1.0), "drop_given", r"\[0, 1\)"),
    "drop negative": (lambda: fit(given=LABELS, drop_given=-0.1), "drop_given", r"\[0, 1\)"),
    "drop what is not there": (lambda: fit(drop_given=0.1), "drop_given", "given"),
    "hold out all": (lambda: fit(validation=1.0), "validation", r"\[0, 1\)"),
    "hold out less": (lambda: fit(validation=-0.5), "validation", r"\[0, 1\)"),
    "stop by nothing": (lambda: fit(early_stopping=3), "early_stopping", "validation > 0"),
    "stop at once": (
        lambda: fit(early_stopping=0, validation=0.5), "early_stopping", "at least 1"
    ),
    "stop a simulator": (
        lambda: fit(dmm.Simulator(lambda k: jnp.zeros(2)), early_stopping=3, validation=0.5),
        "early_stopping", "arrays",
    ),
    "given too short": (lambda: fit(given=np.ones(7)), "given", "length 7 but data has length 8"),
    "given in part too short": (
        lambda: fit(given={"a": np.ones(8), "b": np.ones((9, 2))}), "given", "length 9 but"
    ),
    "given as number": (lambda: fit(given=1.0), "given", "one a point"),
    "given NaN": (lambda: fit(given=points(at_1=np.nan)), "given", "NaN or infinity.*drop"),
    "given strings": (
        lambda: fit(given=np.array(["a"] * 8)), "given", "expected (real )?numbers.*convert"
    ),
    "given empty": (lambda: fit(given={}), "given", "leave it out"),
    "given negative class": (lambda: fit(given=LABELS - 1), "given", "from 0 up; pass floats"),
    "given ragged": (lambda: fit(given=[[1.0], [1.0, 2.0]] * 4), "given", "length|stack"),
    "given to a simulator": (
        lambda: fit(dmm.Simulator(lambda k: jnp.zeros(2)), given=LABELS), "given", "dmm.Example"
    ),
    "network too wide": (lambda: fit(network=Wide()), "network", r"\(3,\).* needs \(2,\)"),
    "network of a tuple": (lambda: fit(network=Unstacked()), "network", r"needs \(2,\)"),
    "network of one argument": (
        lambda: fit(network=OneArgument()), "network", "inputs, tau, given, present"
    ),
    "network as number": (lambda: fit(network=64), "network", "inputs, outputs, given"),
    "product as array": (lambda: fit(space=PRODUCT), "data", "tuple of 2 arrays"),
    "product of three": (
        lambda: fit((np.ones((8, 1)),) * 3, space=PRODUCT), "data", "tuple of 2 arrays"
    ),
    "product unequal": (
        lambda: fit((np.ones((8, 1)), np.ones((7, 2))), space=PRODUCT), "data", r"\[8, 7\]"
    ),
    "product with NaN": (
        lambda: fit((np.ones((8, 1)), points(at_2=np.nan)), space=PRODUCT),
        r"data\[1\]", r"index \(2, 0\)",
    ),
    "simulator of nothing": (lambda: dmm.Simulator(None), "draw", "function of a random key"),
    "simulator of the wrong shape": (
        lambda: fit(dmm.Simulator(lambda k: jnp.zeros(3))), "data", r"expected shape \(n, 2\)"
    ),
    "simulator of NaN": (
        lambda: fit(dmm.Simulator(lambda k: jnp.full(2, jnp.nan))), "data", "NaN or infinity"
    ),
    "simulator of pairs": (
        lambda: fit(dmm.Simulator(lambda k: (jnp.zeros(2), jnp.zeros(3)))), "data", "stack|Example"
    ),
    "stream of nothing": (lambda: dmm.Stream([points()]), "batches", "function of a step"),
    "preview that is a batch": (
        lambda: dmm.Stream(lambda step: iter([]), preview=points()),
        "preview",
        "function that returns",
    ),
    "stream that is empty": (lambda: fit(stream()), "data", "no batch at step 0"),
    "stream that ends": (
        lambda: fit(stream(points(4), points(4), points(4)), steps=8), "data", "ended at step 3"
    ),
    "stream with NaN": (
        lambda: fit(stream(points(4), points(4), points(4), points(4, at_1=np.nan)), steps=4),
        "data", r"index \(1, 0\)",
    ),
    "stream of changing length": (
        lambda: fit(stream(points(4), points(5))), "data", "step 1.*(shape|length|size)"
    ),
    "stream of changing kind": (
        lambda: fit(stream(dmm.Example(points(4), np.ones(4)), points(4))), "given", "step 1"
    ),
    "stream with a new class": (
        lambda: fit(
            stream(*(dmm.Example(points(4), np.array([0, 1, 0, n])) for n in (1, 2, 1, 1)))
        ),
        "given", "0 to 1",
    ),
    "a schedule as class": (lambda: fit(schedule=dmm.Cosine), "schedule", "call it|dmm.Schedule"),
}  # fmt: skip


def one_line(call, argument, fix):
    with pytest.raises((ValueError, TypeError), match=rf"^({argument})[^:]*: .*({fix})") as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", FIT)
def test_fit(name):
    call, argument, fix = FIT[name]
    one_line(call, argument, fix)


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture(scope="module")
def conditional():
    """Given a vector of three and a class of three."""
    given = {"v": np.random.default_rng(0).normal(size=(8, 3)), "label": LABELS}
    return fit(given=given)


@pytest.fixture(scope="module")
def simulated():
    return fit(process=Simulated())


@pytest.fixture(scope="module")
def damped():
    return fit(process=dmm.CriticallyDamped(PLANE))


def observed(**changes):
    return {"v": np.zeros(3), "label": 1} | changes


MODEL = {
    "integer key": (lambda m: m.sample(0, 5), "key", r"jax.random.key\(0\)"),
    "no draws": (lambda m: m.sample(key(0), 0), "n", "at least 1"),
    "negative draws": (lambda m: m.sample(key(0), -1), "n", "at least 1"),
    "part of a draw": (lambda m: m.sample(key(0), 2.5), "n", "whole number|integer"),
    "no steps": (lambda m: m.sample(key(0), 5, steps=0), "n, steps|steps", "at least 1"),
    "no batch": (lambda m: m.sample(key(0), 5, batch_size=0), "batch_size", "at least 1"),
    "sampler as class": (
        lambda m: m.sample(key(0), 5, sampler=dmm.Euler), "sampler", r"call it|Euler\(\)"
    ),
    "given uncalled for": (lambda m: m.sample(key(0), 5, given=1.0), "given", "leave it out"),
    "guidance": (lambda m: m.sample(key(0), 5, guidance=2.0), "guidance", "drop_given > 0"),
    "elbo shape": (lambda m: m.elbo(key(0), np.ones((4, 3))), "x", r"expected shape \(n, 2\)"),
    "elbo point": (lambda m: m.elbo(key(0), np.ones(2)), "x", r"expected shape \(n, 2\)"),
    "elbo empty": (lambda m: m.elbo(key(0), np.ones((0, 2))), "x", "at least one point"),
    "elbo NaN": (lambda m: m.elbo(key(0), points(at_1=np.nan)), "x", r"index \(1, 0\)"),
    "elbo key": (lambda m: m.elbo(1, points()), "key", r"jax.random.key\(0\)"),
    "elbo draws": (lambda m: m.elbo(key(0), points(), draws=0), "draws", "at least 1"),
    "elbo batch": (lambda m: m.elbo(key(0), points(), batch_size=0), "batch_size", "at least 1"),
    "elbo given": (lambda m: m.elbo(key(0), points(), given=1.0), "given", "leave it out"),
    "likelihood shape": (lambda m: m.log_likelihood(np.ones((4, 3))), "x", r"shape \(n, 2\)"),
    "likelihood empty": (lambda m: m.log_likelihood(np.ones((0, 2))), "x", "at least one point"),
    "likelihood steps": (lambda m: m.log_likelihood(points(), steps=0), "steps", "at least 1"),
    "likelihood batch": (
        lambda m: m.log_likelihood(points(), batch_size=0), "batch_size", "at least 1"
    ),
    "probe without key": (lambda m: m.log_likelihood(points(), probe=True), "key", "key=..."),
}  # fmt: skip


@pytest.mark.parametrize("name", MODEL)
def test_model(name, model):
    call, argument, fix = MODEL[name]
    one_line(lambda: call(model), argument, fix)


CONDITIONAL = {
    "missing": (lambda m: m.sample(key(0), 5), "given", "pass given="),
    "missing in elbo": (lambda m: m.elbo(key(0), points()), "given", "pass given="),
    "missing in likelihood": (lambda m: m.log_likelihood(points()), "given", "pass given="),
    "another structure": (
        lambda m: m.sample(key(0), 5, given=np.zeros(3)), "given", "as in fitting"
    ),
    "a part missing": (
        lambda m: m.sample(key(0), 5, given={"v": np.zeros(3)}), "given", "as in fitting"
    ),
    "wrong shape": (
        lambda m: m.sample(key(0), 5, given=observed(v=np.zeros(4))), "given", r"\(3,\)"
    ),
    "too many axes": (
        lambda m: m.sample(key(0), 5, given=observed(v=np.zeros((2, 2, 3)))), "given", r"\(3,\)"
    ),
    "one stacked, one not": (
        lambda m: m.sample(key(0), 5, given=observed(v=np.zeros((2, 3)))), "given", r"\(3,\)"
    ),
    "stacked unequally": (
        lambda m: m.sample(key(0), 5, given={"v": np.zeros((2, 3)), "label": np.zeros(3, int)}),
        "given", "length|stacked",
    ),
    "stacked to nothing": (
        lambda m: m.sample(key(0), 5, given={"v": np.zeros((0, 3)), "label": np.zeros(0, int)}),
        "given", "empty|at least one",
    ),
    "NaN": (lambda m: m.sample(key(0), 5, given=observed(v=np.full(3, np.nan))), "given", "NaN"),
    "strings": (
        lambda m: m.sample(key(0), 5, given=observed(v=np.array(["a"] * 3))), "given", "numbers"
    ),
    "class too large": (lambda m: m.sample(key(0), 5, given=observed(label=3)), "given", "0 to 2"),
    "class negative": (lambda m: m.sample(key(0), 5, given=observed(label=-1)), "given", "0 to 2"),
    "class as float": (
        lambda m: m.sample(key(0), 5, given=observed(label=1.5)), "given", "integer|whole"
    ),
    "another length": (
        lambda m: m.elbo(
            key(0), points(), given={"v": np.zeros((7, 3)), "label": np.zeros(7, int)}
        ),
        "given", "length 7 but x has 8",
    ),
    "guidance without dropping": (
        lambda m: m.sample(key(0), 5, given=observed(), guidance=0.0), "guidance", "drop_given > 0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditional_model(name, conditional):
    call, argument, fix = CONDITIONAL[name]
    one_line(lambda: call(conditional), argument, fix)


def test_bound_of_a_simulated_process(simulated):
    one_line(lambda: simulated.elbo(key(0), points()), "elbo", "use log_likelihood")


def test_likelihood_of_a_lifted_process(damped):
    one_line(lambda: damped.log_likelihood(points()), "key", "key=...")


SPACES = {
    "empty side": (lambda: dmm.Euclidean((2, 0)), "shape", "at least 1"),
    "no factors": (lambda: dmm.Product(), "factors", "one space or more"),
    "a number for a factor": (lambda: dmm.Product(LINE, 2), "factors", "one space or more"),
    "one state": (lambda: dmm.Finite(3, 1), "states", "at least 2"),
    "schedule": (lambda: dmm.Geometric(1.0, 0.5), "start, stop", "start < stop"),
    "rates": (lambda: dmm.Linear(1.0, beta_min=2.0), "beta_min", r"\(0, beta_max\]"),
    "product of a bare process": (lambda: dmm.ProductProcess(Bare()), r"factors\[0\]", "noising"),
}


@pytest.mark.parametrize("name", SPACES)
def test_parts(name):
    call, argument, fix = SPACES[name]
    with pytest.raises(ValueError, match=rf"^{argument}: .*{fix}") as caught:
        call()
    assert "\n" not in str(caught.value)
