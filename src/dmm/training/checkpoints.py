"""Training state on disk, through Orbax: written aside and moved into place, never in parts."""

import json
import logging
import os
from pathlib import Path
from typing import Any, Self

import jax

from . import hosts


class Checkpoints:
    """The checkpoints of one fit in `folder`: the two latest states, saved in the background.

    A state holds the best weights beside the last, so both survive. `settings` identifies the
    fit: a folder that holds another one is refused rather than continued.

    All processes of a run write their share of a state to the same folder; it can be read by any
    number of them, on any number of devices.
    """

    def __init__(self, folder: str | os.PathLike, settings: dict[str, Any]):
        self.folder = Path(folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._claim(settings)
        except OSError as error:
            raise ValueError(
                f"run: cannot write to {self.folder} ({error.strerror}); choose another folder"
            ) from error
        hosts.agree(json.dumps(settings), "run")
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.ERROR)
        self._ocp = ocp
        self._manager = ocp.CheckpointManager(
            self.folder / "checkpoints",
            options=ocp.CheckpointManagerOptions(max_to_keep=2, create=True),
            item_handlers=ocp.StandardCheckpointHandler(),
        )

    def _claim(self, settings: dict[str, Any]) -> None:
        path = self.folder / "fit.json"
        if not path.exists():
            # Several processes may get here at once; they write the same.
            scratch = path.with_suffix(f".{jax.process_index()}.tmp")
            scratch.write_text(json.dumps(settings, indent=1))
            os.replace(scratch, path)
            return
        try:
            found = json.loads(path.read_text())
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ValueError(f"run: {path} is damaged; choose another folder")
        changed = [
            f"{name} was {found.get(name)!r}, now {settings.get(name)!r}"
            for name in {**found, **settings}
            if found.get(name) != settings.get(name)
        ]
        if changed:
            raise ValueError(
                f"run: {self.folder} holds a fit with other settings ({'; '.join(changed)}); "
                "choose another folder to start afresh"
            )

    def latest(self, like: Any) -> Any | None:
        """The last state saved, in the structure of `like`, or None."""
        step = self._manager.latest_step()
        if step is None:
            return None
        self._check_shapes(step, like)
        try:
            return self._manager.restore(step, args=self._ocp.args.StandardRestore(like))
        except Exception as error:  # Orbax and TensorStore raise many kinds, at length
            raise ValueError(
                f"run: {self.folder}/checkpoints/{step} cannot be read ({type(error).__name__}); "
                "delete that folder to go on from the checkpoint before"
            ) from error

    def _check_shapes(self, step: int, like: Any) -> None:
        """Refuse weights of another network, or what another optimiser left."""
        try:
            found = self._manager.item_metadata(step).tree
        except Exception:  # `restore` says what is wrong with the checkpoint
            return
        shapes = [_shapes(tree) for tree in (found, like)]
        other = [
            name for name in {**shapes[0], **shapes[1]} if len({s.get(name) for s in shapes}) > 1
        ]
        if other:
            was, now = (s.get(other[0], "nothing") for s in shapes)
            raise ValueError(
                f"run: {self.folder}/checkpoints/{step} is of another network or optimiser: "
                f"{other[0]} has shape {was} there and {now} here; choose another folder"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        if kind is None or not issubclass(kind, hosts.HostsError):
            self.close()  # with a process gone, this would wait for it

    def save(self, step: int, state: Any) -> None:
        """Save a state; returns once it is copied off the device."""
        if step not in self._manager.all_steps():
            self._manager.save(step, args=self._ocp.args.StandardSave(state))

    def close(self) -> None:
        """Wait for what is being written."""
        self._manager.wait_until_finished()
        self._manager.close()


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """Every array's shape, by names that are the same for the dicts and lists Orbax keeps."""

    def name(key: Any) -> str:
        return str(
            next(getattr(key, kind) for kind in ("name", "key", "idx") if hasattr(key, kind))
        )

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        ".".join(map(name, path)): tuple(leaf.shape)
        for path, leaf in leaves
        if hasattr(leaf, "shape")
    }
