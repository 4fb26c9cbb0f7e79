"""The published weights of guided diffusion, as weights of an `Upsampler`."""

import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from .layers import Attention, Conv, Dense, Norm
from .upsampler import Block, Upsampler


def load_published(network: Upsampler, path: str | os.PathLike) -> Upsampler:
    """The network with the weights of a file such as `64_256_upsampler.pt`.

    It may be abstract, as from `eqx.filter_eval_shape`. Only weights are read; a file that holds
    code is refused. Needs `pip install 'dmm[convert]'`.
    """
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("load_published needs PyTorch: pip install 'dmm[convert]'") from error
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ValueError(f"path: {path} cannot be read ({error.strerror}); name a file") from error
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError) as error:
        raise ValueError(
            f"path: {path} is damaged, or holds more than weights; download it again"
        ) from error
    if not isinstance(tensors, Mapping) or not all(map(torch.is_tensor, tensors.values())):
        raise ValueError(f"path: {path} holds no tensors by name; pass a file of weights alone")
    return convert(network, {name: tensor.float().numpy() for name, tensor in tensors.items()})


def convert(network: Upsampler, tensors: Mapping[str, np.ndarray]) -> Upsampler:
    """The network with published tensors as its weights: every one of them, or a `ValueError`."""
    slots = list(_slots(network))
    wanted = {slot.name: slot.shape() for slot in slots}
    found = {name: tuple(np.shape(tensor)) for name, tensor in tensors.items()}
    faults = [f"{name} is missing" for name in wanted if name not in found]
    faults += [f"{name} is left over" for name in found if name not in wanted]
    faults += [
        f"{name} has shape {found[name]}, not {shape}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    if faults:
        raise ValueError(
            f"tensors: not those of this network; give it the settings that the {len(found)} were "
            f"trained with: {'; '.join(faults)}"
        )
    weights = [slot.weight(tensors[slot.name]) for slot in slots]
    return eqx.tree_at(lambda n: [slot.leaf for slot in _slots(n)], network, weights)


class _Slot(NamedTuple):
    """A weight of ours, by its published name. Their axes are ours in the order `axes`, which
    may add axes of length 1; `ordered` puts the entries of its tensor in our order."""

    name: str
    leaf: Any
    axes: tuple[int | None, ...] = (0,)
    ordered: Callable[[np.ndarray], np.ndarray] = np.asarray

    def shape(self) -> tuple[int, ...]:
        return tuple(1 if axis is None else self.leaf.shape[axis] for axis in self.axes)

    def weight(self, tensor: np.ndarray) -> Any:
        kept = [axis for axis in self.axes if axis is not None]
        ones = tuple(i for i, axis in enumerate(self.axes) if axis is None)
        ours = np.transpose(np.squeeze(self.ordered(tensor), ones), np.argsort(kept))
        return jnp.asarray(ours, self.leaf.dtype)


def _slots(network: Upsampler) -> Iterator[_Slot]:
    """Every weight of a network, once."""
    for i, dense in zip((0, 2), network.time, strict=True):
        yield from _dense(f"time_embed.{i}", dense)
    if network.labels is not None:
        yield _Slot("label_emb.weight", network.labels, (0, 1))
    yield from _conv("input_blocks.0.0", network.first)
    for i, block in enumerate(network.down):
        yield from _block(f"input_blocks.{i + 1}", 0, block)
    first, second = network.middle
    yield from _block("middle_block", 0, first)
    yield from _block("middle_block", 2, second)
    for i, (block, *enlarging) in enumerate(network.up):
        yield from _block(f"output_blocks.{i}", 0, block)
        for enlarge in enlarging:
            place = 1 if block.attention is None else 2
            yield from _block(f"output_blocks.{i}", place, enlarge)
    yield from _norm("out.0", network.norm)
    yield from _conv("out.2", network.last)


def _block(folder: str, place: int, block: Block) -> Iterator[_Slot]:
    """A block, at a place in a list; its attention is published at the next."""
    name = f"{folder}.{place}"
    yield from _norm(f"{name}.in_layers.0", block.norm)
    yield from _conv(f"{name}.in_layers.2", block.conv)
    yield from _dense(f"{name}.emb_layers.1", block.told)
    yield from _norm(f"{name}.out_layers.0", block.second_norm)
    yield from _conv(f"{name}.out_layers.3", block.second_conv)
    if block.shortcut is not None:
        yield from _dense(f"{name}.skip_connection", block.shortcut, places=2)
    if block.attention is not None:
        norm, attend = block.attention
        name = f"{folder}.{place + 1}"
        yield from _norm(f"{name}.norm", norm)
        yield from _mix(f"{name}.qkv", attend)
        yield from _dense(f"{name}.proj_out", attend.out, places=1)


def _dense(name: str, layer: Dense, *, places: int = 0) -> Iterator[_Slot]:
    """Published as (outputs, inputs), or as a convolution of size 1 over one or two axes."""
    yield _Slot(f"{name}.weight", layer.weight, (1, 0) + (None,) * places)
    yield _Slot(f"{name}.bias", layer.bias)


def _mix(name: str, attend: Attention) -> Iterator[_Slot]:
    """Published by head, then query, key and value; ours by query, key and value, then head."""

    def ordered(tensor: np.ndarray) -> np.ndarray:
        parts = tensor.reshape(attend.heads, 3, -1, *tensor.shape[1:])
        return np.swapaxes(parts, 0, 1).reshape(tensor.shape)

    for slot in _dense(name, attend.mix, places=1):
        yield slot._replace(ordered=ordered)


def _conv(name: str, layer: Conv) -> Iterator[_Slot]:
    """Published as (outputs, inputs, height, width)."""
    yield _Slot(f"{name}.weight", layer.weight, (0, 3, 1, 2))
    yield _Slot(f"{name}.bias", layer.bias)


def _norm(name: str, layer: Norm) -> Iterator[_Slot]:
    yield _Slot(f"{name}.weight", layer.scale)
    yield _Slot(f"{name}.bias", layer.shift)
