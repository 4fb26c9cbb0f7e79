"""Denoising Markov models: generative models and posterior inference on any state space.

Public names live in the folders below and are re-exported here. They are resolved on first use,
so that `dmm --help` need not import JAX.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# In the order of the map: a folder imports only from those before it.
_PUBLIC = (
    "spaces",
    "processes",
    "schedules",
    "parameterisations",
    "objectives",
    "samplers",
    "likelihood",
    "networks",
    "model",
    "training",
    "inference",
)

if TYPE_CHECKING:
    from .inference import *
    from .likelihood import *
    from .model import *
    from .networks import *
    from .objectives import *
    from .parameterisations import *
    from .processes import *
    from .samplers import *
    from .schedules import *
    from .spaces import *
    from .training import *


def _names() -> dict[str, str]:
    """Every public name and the module that holds it."""
    modules = [importlib.import_module(f"{__name__}.{folder}") for folder in _PUBLIC]
    return {name: module.__name__ for module in modules for name in module.__all__}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    if importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    module = _names().get(name)
    if module is None:
        raise AttributeError(f"module 'dmm' has no public name {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_names()})
