"""The engine's state on disk: complete or absent, never in between.

Orbax writes a checkpoint under another name and renames it when it is complete, so a folder with a
number for a name is a good checkpoint. The two newest are kept. What is written is in the order of
devices, [seeds, devices, ...] (one device where all hold the same): it can be read on any number of
processors and processes. Of several processes the leader writes and reads.
"""

from __future__ import annotations

__all__ = ["Checkpoints"]

import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from joulemesh.errors import ScenarioError
from joulemesh.training import hosts
from joulemesh.training.engine import Engine, State
from joulemesh.training.platform import precision_scope

_KEPT = 2


class Checkpoints:
    """The checkpoints of one run, by iterations completed.

    With several processes all of them save and restore together.

    Args:
        folder: where they lie; made when the first is saved. Only the leader looks at it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        # Orbax would wait for the other processes, which leave the writing to the leader.
        self._writer = (
            ocp.StandardCheckpointer(
                multiprocessing_options=ocp.options.MultiprocessingOptions(
                    active_processes=None if hosts.alone() else {0}
                )
            )
            if hosts.leads()
            else None
        )

    def saved(self) -> list[int]:
        """Iterations completed in each good checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdigit())

    def save(self, engine: Engine, state: State) -> None:
        """Write a checkpoint, then drop all but the newest.

        Args:
            engine: that the state is of.
            state: it is not consumed.

        Raises:
            ScenarioError: the disk is full or the folder cannot be written; older ones are kept.
        """
        whole = _portable(engine, state)

        hosts.on_leader(partial(self._write, whole))

    def _write(self, whole: State) -> str:
        assert self._writer is not None
        place = self.folder / str(int(whole.iteration))
        # Orbax logs the traceback of what is raised below; the user needs the one line only.
        log = logging.getLogger("absl")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            self._writer.save(place, whole._asdict(), force=True)
            self._writer.wait_until_finished()
            for old in self.saved()[:-_KEPT]:
                shutil.rmtree(self.folder / str(old), ignore_errors=True)
            return ""
        except (OSError, ValueError) as error:  # tensorstore reports a full disk as a ValueError
            reason = " ".join(str(error).split())
            full = "No space left on device"
            reason = full if full in reason else reason[:200]
            raise ScenarioError(
                f"cannot write the checkpoint {place}: {reason}; make room, then --resume"
            ) from error
        finally:
            log.setLevel(level)

    def restore(self, engine: Engine) -> State | None:
        """The newest state that can be read, placed as the engine wants it; None without any."""
        blank = _blank(engine)
        whole = None if self._writer is None else self._read(self._writer, blank)
        (found,) = hosts.any_of(whole is not None)
        return _placed(engine, blank if whole is None else whole) if found else None

    def _read(self, reader: Any, blank: State) -> State | None:
        for iteration in reversed(self.saved()):
            try:
                return State(**reader.restore(self.folder / str(iteration), blank._asdict()))
            except (OSError, ValueError):
                continue  # damaged after it was written: an older one will do
        return None

    def close(self) -> None:
        """Let go of the writer's threads."""
        if self._writer is not None:
            self._writer.close()


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
