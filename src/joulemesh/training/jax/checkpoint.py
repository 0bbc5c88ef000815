"""The engine's state on disk: complete and verified, or absent.

A checkpoint is one safetensors file, ``ITERATIONS.safetensors``, written whole and synced, with a
digest of every leaf. What is written is in the order of devices, [seeds, devices, ...] (one device
where all hold the same): it can be read on any number of processors and processes. Of several
processes the leader writes and reads.
"""

from __future__ import annotations

__all__ = ["Checkpoints"]

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from joulemesh.errors import ScenarioError
from joulemesh.files import DISK, make_folder
from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.engine import Engine, State
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.jax.tensors import read_tree, write_tree

_SUFFIX = ".safetensors"


class Checkpoints:
    """The checkpoints of one run, by iterations completed.

    With several processes all of them save and restore together.

    Args:
        folder: where they lie; made when the first is saved. Only the leader looks at it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def path(self, iteration: int) -> Path:
        """Of the checkpoint after some iterations."""
        return self.folder / f"{iteration}{_SUFFIX}"

    def saved(self) -> list[int]:
        """Iterations completed in each checkpoint, ascending."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return []
        names = [path.name.removesuffix(_SUFFIX) for path in self.folder.glob(f"*{_SUFFIX}")]
        return sorted(int(name) for name in names if name.isdecimal())

    def save(self, engine: Engine, state: State) -> None:
        """Write a checkpoint.

        Args:
            engine: that the state is of.
            state: it is not consumed.

        Raises:
            ScenarioError: the disk is full or the folder cannot be written; older ones are kept.
        """
        whole = _portable(engine, state)
        hosts.on_leader(partial(self._write, whole))

    def _write(self, whole: State) -> str:
        try:
            make_folder(self.folder)
            write_tree(self.path(int(whole.iteration)), whole)
        except ScenarioError as error:
            raise ScenarioError(
                f"{str(error).removesuffix('choose another place')}make room, then --resume"
            ) from None
        return ""

    def drop(self, *, keep: tuple[int, ...]) -> None:
        """Remove all checkpoints but some."""
        for iteration in set(self.saved()) - set(keep):
            DISK.get().remove(self.path(iteration))

    def restore(self, engine: Engine, iteration: int) -> State:
        """The state after some iterations, placed as the engine wants it.

        Raises:
            ScenarioError: the checkpoint is damaged, or of another run.
        """
        blank = _blank(engine)
        found: list[State] = []

        def read() -> str:
            try:
                found.append(read_tree(self.path(iteration), blank))
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise ScenarioError(
                    f"the checkpoint {self.path(iteration)} cannot be used: {reason}; start the "
                    "run again in another folder"
                ) from None
            return ""

        hosts.on_leader(read)
        return _placed(engine, found[0] if found else blank)


def _portable(engine: Engine, state: State) -> State:
    """The state as NumPy arrays, rows as [S, N, ...]; its leaves are None but on the leader."""

    def by_device(leaf: Any) -> Any:
        rows = hosts.fetch(leaf)
        return None if rows is None else engine.held.devices_of(rows)[:, : _kept(engine)]

    return State(
        jax.tree.map(by_device, state.params),
        jax.tree.map(by_device, state.optimizer),
        jax.tree.map(hosts.fetch, state.exchange),
        np.asarray(state.iteration),
    )


def _kept(engine: Engine) -> int:
    """Devices in a checkpoint."""
    return 1 if engine.alike else engine.schedule.devices


def _blank(engine: Engine) -> State:
    """A portable state of zeros, for its shapes."""
    state = engine.shapes()
    ahead = (len(engine.seeds), _kept(engine))

    def zeros(leaf: Any) -> Any:
        return np.zeros(leaf.shape, leaf.dtype)

    def by_device(leaf: Any) -> Any:
        return np.zeros((*ahead, *leaf.shape[1:]), leaf.dtype)

    return State(
        jax.tree.map(by_device, state.params),
        jax.tree.map(by_device, state.optimizer),
        jax.tree.map(zeros, state.exchange),
        np.zeros((), np.int32),
    )


def _placed(engine: Engine, whole: State) -> State:
    """A portable state (the leader's) on the processors of all."""
    by_rows, everywhere = engine.shardings

    # One array after another: no process need hold all of them at once but the leader.
    def put(leaf: Any) -> Any:
        return hosts.put(hosts.from_leader(leaf, leaf.shape, leaf.dtype), everywhere)

    def put_rows(leaf: Any) -> Any:
        values = hosts.from_leader(leaf, leaf.shape, leaf.dtype)
        held = np.broadcast_to(values, (len(values), engine.held.devices, *values.shape[2:]))
        return hosts.put(engine.held.rows_of(held), by_rows)

    with precision_scope(engine.options.precision):
        return State(
            jax.tree.map(put_rows, whole.params),
            jax.tree.map(put_rows, whole.optimizer),
            jax.tree.map(put, whole.exchange),
            put(whole.iteration),
        )
