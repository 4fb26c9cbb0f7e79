"""Where training keeps its arrays when there are several devices."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from .._checks import at_least
from .._devices import along, home, mesh_of, place
from . import hosts

SMALL = 2**10  # numbers in an array of weights that is not worth cutting


@dataclass(frozen=True)
class Layout:
    """The rows of a batch over the devices of a mesh, the weights copied to each or cut as well.

    What is here says only where arrays are; XLA finds out what to send. Without a mesh there is
    one device, and what is given comes back.
    """

    mesh: Mesh | None = None
    shard_weights: bool = False

    @property
    def size(self) -> int:
        return 1 if self.mesh is None else self.mesh.size

    @property
    def hosts(self) -> int:
        """How many processes take part."""
        devices = [] if self.mesh is None else self.mesh.devices.ravel()
        return len({device.process_index for device in devices}) or 1

    def check_batch(self, name: str, rows: int, parts: int) -> None:
        """Refuse a batch that does not divide over the devices and into so many parts."""
        unit = self.size * parts
        if rows % unit == 0:
            return
        near = [n for n in (rows // unit * unit, (rows // unit + 1) * unit) if n]
        where = [f"over {self.size} devices"] if self.size > 1 else []
        where += [f"into accumulate={parts} parts"] if parts > 1 else []
        escape = "devices=1" if parts == 1 else "another accumulate"
        raise ValueError(
            f"{name}: {rows} does not divide {' and '.join(where)}; use "
            f"{' or '.join(map(str, near))}, or {escape}"
        )

    def copies(self, tree: Any) -> Any:
        """Arrays of which every device gets a copy."""
        if self.mesh is None:
            return tree
        sharding = along(self.mesh, None)
        return jax.tree.map(lambda leaf: place(leaf, sharding), tree)

    def rows(self, blocks: Any) -> Any:
        """Batches of some steps, stacked (step, row, ...), each process's own rows of them."""
        if self.mesh is None:
            return jax.tree.map(jnp.asarray, blocks)
        sharding = along(self.mesh, 1)
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), blocks
        )

    def split(self, batch: Any) -> Any:
        """In traced code: a batch cut by rows."""
        if self.mesh is None:
            return batch
        return jax.lax.with_sharding_constraint(batch, along(self.mesh, 0))

    def whole(self, tree: Any) -> Any:
        """In traced code: arrays that every device has all of."""
        if self.mesh is None:
            return tree
        return jax.lax.with_sharding_constraint(tree, along(self.mesh, None))

    def place(self, state: Any) -> Any:
        """Weights, averages and what the optimiser keeps, each where it belongs."""
        if self.mesh is None:
            return state
        return jax.tree.map(lambda leaf: place(leaf, self._of(leaf)), state)

    def keep(self, state: Any) -> Any:
        """In traced code: the same, for what a step makes of them."""
        if self.mesh is None:
            return state
        return jax.lax.with_sharding_constraint(state, jax.tree.map(self._of, state))

    def agreed(self, decision: bool) -> bool:
        """What process 0 decides, where all must do the same."""
        return decision if self.hosts == 1 else bool(hosts.from_first(np.asarray(decision)))

    def home(self, tree: Any) -> Any:
        """Weights as ordinary arrays of this process."""
        if self.mesh is None:
            return tree
        if self.shard_weights:
            tree = jax.jit(lambda tree: tree, out_shardings=along(self.mesh, None))(tree)
        return home(tree)

    def _of(self, leaf: Any) -> NamedSharding:
        """Large arrays are cut along the longest axis that divides."""
        assert self.mesh is not None
        axis = None
        if self.shard_weights and math.prod(leaf.shape) >= SMALL:
            dividing = [i for i, length in enumerate(leaf.shape) if length % self.size == 0]
            axis = max(dividing, key=lambda i: leaf.shape[i], default=None)
        return along(self.mesh, axis)


def layout(devices: int | Sequence[Any] | None = None, *, shard_weights: bool = False) -> Layout:
    """The layout over some devices: a number of them, a list, or None for all of all processes."""
    found = jax.devices()
    if hosts.several() and devices is not None:
        raise ValueError("devices: with several processes all are used; leave it out")
    if isinstance(devices, Sequence):
        chosen = list(devices)
        if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
            raise ValueError("devices: expected a number or a list such as jax.devices()[:2]")
        if len(set(chosen)) < len(chosen):
            raise ValueError("devices: names one twice; leave that out")
    elif devices is None:
        # Who set a default device wants that one.
        chosen = found if jax.config.jax_default_device is None else found[:1]
    else:
        at_least(1, devices=devices)
        if devices > len(found):
            raise ValueError(f"devices: there are {len(found)}, got {devices}; ask for fewer")
        chosen = found[:devices]
    alone = len(chosen) == 1 and (chosen == found[:1] or not isinstance(devices, Sequence))
    return Layout(None if alone else mesh_of(chosen), shard_weights)
