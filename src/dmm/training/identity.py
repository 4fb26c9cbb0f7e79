"""What makes a fit the one it is, in words and digests that the next process finds again."""

import hashlib
import re
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .data import Source


def identity_of(settings, model, objective, weighting, data, given, key) -> dict[str, Any]:
    """What makes a fit the one it is: a run folder is continued only by the same.

    Where it is computed is no part of that: a run may go on with other devices.
    """
    network = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(model.network)]
    if isinstance(data, Source):
        content = digest(type(data).__name__ + data.identity(), [])
    else:
        content = digest("", jax.tree.leaves((data, given)))
    described = (model.process, model.schedule, model.times, model.parameterisation)
    return {
        "steps": settings.steps,
        "batch_size": settings.batch_size,
        "block": settings.block,
        "ema": settings.ema,
        "early_stopping": settings.early_stopping,
        "drop_given": model.drop_given,
        "objective": name_of(objective),
        "weighting": name_of(weighting),
        "model": [name_of(part) for part in described],
        "constants": digest("", _constants(described)),
        "network": hashlib.sha256(" ".join(network).encode()).hexdigest()[:16],
        "units": digest(str(jax.tree.structure(model.units)), jax.tree.leaves(model.units)),
        "data": content,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
    }


def _constants(parts: Any) -> list[Any]:
    """The arrays of a process and the like. Large ones are tables, made from the small ones."""
    arrays = [leaf for leaf in jax.tree.leaves(parts) if eqx.is_array(leaf)]
    return [array for array in arrays if array.size <= 2**20]


def digest(text: str, leaves: list[Any]) -> str:
    """Text and arrays in sixteen letters."""
    found = hashlib.sha256(text.encode())
    for leaf in leaves:
        found.update(np.ascontiguousarray(leaf).tobytes())
    return found.hexdigest()[:16]


def name_of(part: Any) -> str:
    """A function or module in words that are the same in the next process."""
    return getattr(part, "__name__", None) or re.sub(r" at 0x[0-9a-f]+", "", str(part))


def classes_of(tree: Any) -> list[type]:
    """The classes of a module tree, so that a model with the user's own loads again."""
    found = set()

    def walk(node):
        if isinstance(node, eqx.Module):
            found.add(type(node))
            for name in node.__dataclass_fields__:
                walk(getattr(node, name, None))
        elif isinstance(node, tuple | list | dict):
            for child in node.values() if isinstance(node, dict) else node:
                walk(child)

    walk(tree)
    return list(found)
