"""The tree is the architecture: what imports what, what may be overridden, what is public."""

import ast
import importlib
import inspect
import pathlib
import pkgutil

import equinox as eqx
import pytest

import dmm
from table import ROWS

ROOT = pathlib.Path(dmm.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PUBLIC = dmm._names()

# A folder (or single file) imports only from those before it. Names with an underscore come first.
MAP = (
    "spaces", "processes", "calculus", "schedules", "parameterisations",
    "objectives", "samplers", "likelihood", "networks", "storage", "learned", "model", "training",
    "inference", "diagnostics", "datasets", "plots", "runs", "report", "experiments", "cli",
    "__main__",
)  # fmt: skip


def rank(name: str) -> int:
    private = name.startswith("_") and name != "__main__"
    return -1 if private else MAP.index(name)


def folder(path: pathlib.Path) -> str:
    """The entry of the map that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: pathlib.Path):
    """The entries of the map that a file imports, and where."""
    package = ["dmm", *path.relative_to(ROOT).parts[:-1]]
    yield from imported_by(path.read_text(encoding="utf-8"), package)


def imported_by(source: str, package: list[str]):
    """The same for the source of a module in a package; inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*origin, *([node.module] if node.module else [])])
            # `from . import storage` names a module in the list, `from .storage import x` does not.
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "dmm" and len(parts) > 1:
                yield parts[1], node.lineno


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if folder(path) != "__init__"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_a_folder_imports_only_from_those_above_it(path):
    """A folder that is not in the map fails too: add it where it belongs."""
    limit = rank(folder(path))
    for other, line in imported(path):
        assert rank(other) <= limit, f"{path}:{line} imports {other}"


def test_the_check_of_imports_sees_every_form():
    source = """
import dmm.plots
from . import base
from .. import model, storage
from ..spaces.tangent import move
def f():
    from ..networks import MLP
"""
    found = dict(imported_by(source, ["dmm", "processes"]))
    assert set(found) == {"plots", "processes", "model", "storage", "spaces", "networks"}
    assert found["networks"] == 7


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 450


# --- Abstract or final ---------------------------------------------------------------------------


def every_module():
    """Every module of the library, imported."""
    for info in pkgutil.walk_packages(dmm.__path__, "dmm."):
        if info.name != "dmm.__main__":
            importlib.import_module(info.name)


def classes() -> list[type]:
    """All of the library's own modules in Equinox's sense."""
    every_module()
    found, queue = [], [eqx.Module]
    while queue:
        for cls in queue.pop().__subclasses__():
            if cls not in found:
                queue.append(cls)
                found.append(cls)
    return [cls for cls in found if cls.__module__.startswith("dmm.")]


def is_abstract(cls: type) -> bool:
    names = ("__abstractmethods__", "__abstractvars__", "__abstractclassvars__")
    return any(getattr(cls, name, ()) for name in names)


def implements(cls: type, name: str) -> bool:
    """Whether a class itself gives a body to a method or property."""
    value = cls.__dict__.get(name)
    is_code = callable(value) or isinstance(value, property | classmethod | staticmethod)
    return is_code and name not in cls.__abstractmethods__


def overridden(cls: type):
    """Methods that a class implements although one of its bases already does."""
    for name in cls.__dict__:
        if name != "__call__" and name.startswith("__"):
            continue  # __init__, __check_init__ and what dataclasses make
        if implements(cls, name):
            for base in cls.__mro__[1:]:
                if base.__module__.startswith("dmm.") and implements(base, name):
                    yield f"{cls.__name__}.{name} overrides {base.__name__}.{name}"


def test_a_method_is_implemented_once():
    found = classes()
    assert len(found) > 30
    assert [line for cls in found for line in overridden(cls)] == []


def test_a_class_with_subclasses_is_abstract():
    found = classes()
    bases = {base for cls in found for base in cls.__bases__ if base in found}
    assert [base.__name__ for base in bases if not is_abstract(base)] == []


def test_the_check_of_overriding_sees_it():
    class Louder(dmm.Euler):
        def step(self, key, at, x, tau, next_tau):
            return x

    assert list(overridden(Louder)) == ["Louder.step overrides Euler.step"]
    assert not is_abstract(dmm.Euler)
    assert is_abstract(dmm.Sampler)


def process_types(process) -> set[type]:
    """Of a process, and of its factors if it is a product."""
    factors = getattr(process, "factors", ())
    return {type(process)}.union(*map(process_types, factors))


def coefficients_of(cls: type) -> type:
    """The class that says how a process moves: two ways of noising may share it, and its laws."""
    return next((c for c in cls.__mro__ if {"drift", "rates"} & vars(c).keys()), cls)


def test_every_process_has_a_row_in_the_table():
    """So that the laws are tested for it."""
    named = [getattr(dmm, name) for name in PUBLIC]
    processes = {c for c in named if inspect.isclass(c) and issubclass(c, dmm.Process)}
    tested = set().union(*(process_types(row.process) for row in ROWS))
    tested = {coefficients_of(c) for c in tested}
    missing = {c.__name__ for c in processes if coefficients_of(c) not in tested}
    assert missing <= {c.__name__ for c in processes if is_abstract(c)}
