"""A learner's state on disk: complete and verified, or absent.

A checkpoint is one safetensors file, ``ITERATIONS.safetensors``, written whole and synced, with a
digest of every leaf. What is written is in the order of devices, [seeds, devices, ...] (one device
where all hold the same): it can be read on any number of processors and processes. Of several
processes the leader writes and reads.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import DISK, make_folder, open_arrays
from joulemesh.training import hosts
from joulemesh.training.learner import Learner, State
from joulemesh.training.tensors import Arrays, read_arrays, write_arrays

S = TypeVar("S", bound=State)

BESIDE = "trace."  # names of what is kept beside a state begin with it
_SUFFIX = ".safetensors"


class Checkpoints:
    """The checkpoints of one run, by iterations completed.

    With several processes all of them save and restore together.
    """

    def __init__(self, folder: str | Path, remedy: str = "make room, then --resume") -> None:
        self.folder, self._remedy = Path(folder).absolute(), remedy

    def path(self, iteration: int) -> Path:
        """Of the checkpoint after some iterations."""
        return self.folder / f"{iteration}{_SUFFIX}"

    def saved(self) -> list[int]:
        """Iterations completed in each checkpoint, ascending."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return []
        names = [path.name.removesuffix(_SUFFIX) for path in self.folder.glob(f"*{_SUFFIX}")]
        return sorted(int(name) for name in names if name.isdecimal())

    def save(
        self, learner: Learner[S], state: S, beside: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """Write a checkpoint."""
        arrays, done = learner.save(state), int(state.iteration)
        hosts.on_leader(partial(self._write, done, {**arrays, **(beside or {})}))

    def _write(self, iteration: int, arrays: Arrays) -> str:
        try:
            make_folder(self.folder)
            write_arrays(self.path(iteration), arrays)
        except ScenarioError as error:
            raise ScenarioError(
                f"{str(error).removesuffix('choose another place')}{self._remedy}"
            ) from None
        return ""

    def drop(self, *, keep: tuple[int, ...]) -> None:
        """Remove all checkpoints but some."""
        for iteration in set(self.saved()) - set(keep):
            DISK.get().remove(self.path(iteration))

    def restore(self, learner: Learner[S], iteration: int) -> tuple[S, Arrays]:
        """The state after some iterations, placed as the learner wants it."""
        found: Arrays = {}

        def read() -> str:
            try:
                shapes = learner.saved_shapes()
                found.update(read_arrays(self.path(iteration), shapes, besides=BESIDE))
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise ScenarioError(
                    f"the checkpoint {self.path(iteration)} cannot be used: {reason}; start the "
                    "run again in another folder"
                ) from None
            return ""

        hosts.on_leader(read)
        beside = {name: found.pop(name) for name in list(found) if name.startswith(BESIDE)}
        return learner.load(found), _everywhere(beside)


def _everywhere(arrays: Arrays) -> Arrays:
    """The leader's arrays, on all processes; they are small beside a state."""
    if hosts.alone():
        return arrays

    def packed() -> str:
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return base64.b64encode(buffer.getvalue()).decode("ascii")

    content = base64.b64decode(hosts.on_leader(packed))
    with open_arrays(content) as file:
        return dict(file)
