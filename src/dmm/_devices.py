"""Arrays over several devices: copied to each, or cut by rows; and back as ordinary arrays."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

AXIS = "devices"


def mesh_of(devices: Sequence[Any]) -> Mesh:
    """The devices in a row."""
    return Mesh(np.asarray(devices), (AXIS,), axis_types=(AxisType.Auto,))


def along(mesh: Mesh, axis: int | None) -> NamedSharding:
    """Cut along an axis of arrays, or, with None, copied."""
    spec = () if axis is None else (*[None] * axis, AXIS)
    return NamedSharding(mesh, PartitionSpec(*spec))


def place(leaf: Any, sharding: NamedSharding) -> Any:
    """An array that is the same on every process, over the devices of all of them."""
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    if sharding.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def over(devices: Sequence[Any], axis: int | None, tree: Any) -> Any:
    """A tree's arrays cut along an axis over some devices, or copied to them."""
    sharding = along(mesh_of(devices), axis)
    return jax.tree.map(lambda leaf: place(leaf, sharding), tree)


def home(tree: Any) -> Any:
    """Arrays that every device has a copy of, or all of which are here, as any other array is.

    Through the host, since an array moved to a device is bound to it.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), tree)


def free_devices(*trees: Any) -> list[Any]:
    """The local devices to compute on, unless someone chose some for the arrays, or is tracing."""
    leaves = [leaf for leaf in jax.tree.leaves(trees) if isinstance(leaf, jax.Array)]
    chosen = any(isinstance(leaf, jax.core.Tracer) or leaf.committed for leaf in leaves)
    found = jax.local_devices()
    return found[:1] if chosen or jax.config.jax_default_device is not None else found
