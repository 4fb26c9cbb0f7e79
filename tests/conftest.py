"""Strictness for the whole suite: shapes checked as it runs, no silent broadcasting."""

import gc
import os

import hypothesis
import jaxtyping
import pytest

# Most of the suite's time goes into compiling programs that run once. Set before jax is imported,
# and for the processes that tests start too. Flags from outside come last and win. XLA stops at
# a flag that it does not know: one that a later version drops is to be dropped here.
QUICK = (
    "--xla_cpu_use_fusion_emitters=false",  # an older way to emit loops, in half the time
    "--xla_backend_optimization_level=1",  # for tests that run for long: see `optimised`
)
os.environ["XLA_FLAGS"] = " ".join([*QUICK, os.environ.get("XLA_FLAGS", "")])
# Level 0, for all that is not marked `optimised`: half the time again.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

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

COMPILED = []  # an entry for each program since the caches were last emptied
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: event.endswith("backend_compile_duration") and COMPILED.append(event)
)


@pytest.fixture(scope="module", autouse=True)
def _room():
    """A program that is kept takes a megabyte: many gigabytes if all were, in each worker."""
    yield
    if len(COMPILED) > 1000:
        jax.clear_caches()
        COMPILED.clear()


def pytest_collection_finish():
    """Tracing makes many objects: a collector that walks all modules each time takes a tenth."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture
def optimised():
    """For a test that runs for longer than it compiles."""
    usual = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", usual)


@pytest.fixture
def x64():
    """Double precision, for oracles: identities then hold to rounding or not at all."""
    with jax.enable_x64(True):
        yield
