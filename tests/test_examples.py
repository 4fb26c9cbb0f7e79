"""The examples run, and so does every Python block of the documentation and the README.

Fits are cut to a few steps of a small network: what is tested is that the code works as shown. The
numbers it is to give are the business of the other tests.
"""

import functools
import inspect
import re
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dmm

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
PAGES.sort(key=lambda path: -path.stat().st_size)  # the longest first, so that it ends in time
WITHOUT_CODE = {"README.md", "changelog.md", "contributing.md"}  # may have none

STEPS, BATCH = 10, 16


@pytest.fixture(autouse=True)
def _tiny(monkeypatch, tmp_path):
    """`fit` and `match` do next to nothing; files go to a folder of their own."""
    network = functools.partial(dmm.MLP, width=8, depth=1)
    monkeypatch.setattr(dmm, "fit", _cut(dmm.fit, network=network, validation=0.0))
    monkeypatch.setattr(dmm, "match", _cut(dmm.match))
    small = {"width": 8, "depth": 1, "validation": 0.0, "early_stopping": None}
    monkeypatch.setattr(dmm, "infer", _cut(dmm.infer, **small))
    monkeypatch.chdir(tmp_path)


def _cut(function, **defaults):
    @functools.wraps(function)
    def cut(*args, **kwargs):
        steps = min(STEPS, kwargs.pop("steps", STEPS))
        batch_size = min(BATCH, kwargs.pop("batch_size", BATCH))
        return function(*args, steps=steps, batch_size=batch_size, **{**defaults, **kwargs})

    return cut


def assert_finite(results):
    for path, leaf in jax.tree.leaves_with_path(results):
        assert np.all(np.isfinite(leaf)), f"{jax.tree_util.keystr(path)} is not finite"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_blocks_of_a_page_run_in_order(path):
    blocks = python_blocks(path.read_text())
    assert blocks or path.name in WITHOUT_CODE, f"{path.name} shows no code"
    namespace = {"__name__": f"page_{path.stem}"}
    for line, source in blocks:
        # Line numbers of the page, for tracebacks.
        code = compile("\n" * line + source, str(path), "exec")
        exec(code, namespace)
    assert_finite([v for v in namespace.values() if isinstance(v, jax.Array) and _is_real(v)])


def python_blocks(text: str) -> list[tuple[int, str]]:
    """The ```python blocks of a page, each with the number of the line that opens it.

    A block that is not to run is fenced as something else: ```text, ```console, ```py.
    """
    fences = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, m.start(1)), m.group(1)) for m in fences]


def _is_real(array: jax.Array) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tmp_path):
    main = runpy.run_path(str(path))["main"]
    draws = "figure" in inspect.signature(main).parameters
    file = tmp_path / "figure.png"
    results = main(steps=STEPS, **({"figure": str(file)} if draws else {}))
    assert results
    assert_finite(results)
    assert not draws or file.read_bytes().startswith(b"\x89PNG")


def test_examples_are_short():
    assert len(EXAMPLES) >= 4
    for path in EXAMPLES:
        assert len(path.read_text().splitlines()) <= 80, f"{path.name} has grown: cut it"
