"""Strictness for the whole suite: shapes checked as it runs, no silent broadcasting."""

import hypothesis
import jaxtyping
import pytest

# Before anything imports dmm: every annotation of the mathematics is then checked at every call.
CHECKED = (
    "spaces", "processes", "calculus", "schedules", "parameterisations", "objectives", "samplers",
    "likelihood", "networks", "learned", "model",
)  # fmt: skip
jaxtyping.install_import_hook([f"dmm.{name}" for name in CHECKED], "beartype.beartype")

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")

# Few examples: each runs compiled code, but what it compiles is the price of a test.
hypothesis.settings.register_profile(
    "dmm", max_examples=6, deadline=None, derandomize=True, database=None
)
hypothesis.settings.load_profile("dmm")


@pytest.fixture
def x64():
    """Double precision, for oracles: identities then hold to rounding or not at all."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def quick_compiling():
    """Where compiling takes the time and speed does not matter; what it made is not for others."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
