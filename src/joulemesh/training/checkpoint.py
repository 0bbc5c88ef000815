"""The engine's state on disk: complete or absent, never in between.

Orbax writes a checkpoint under another name and renames it when it is complete, so a folder with a
number for a name is a good checkpoint. The two newest are kept.
"""

from __future__ import annotations

__all__ = ["Checkpoints"]

import logging
import shutil
from pathlib import Path

import jax
import orbax.checkpoint as ocp

from joulemesh.errors import ScenarioError
from joulemesh.training.engine import Engine, State
from joulemesh.training.platform import precision_scope

_KEPT = 2


class Checkpoints:
    """The checkpoints of one run, by iterations completed.

    Args:
        folder: where they lie; made when the first is saved.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._writer = ocp.StandardCheckpointer()

    def saved(self) -> list[int]:
        """Iterations completed in each good checkpoint, ascending."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.name) for p in self.folder.iterdir() if p.name.isdigit())

    def save(self, state: State) -> None:
        """Write a checkpoint, then drop all but the newest.

        Raises:
            ScenarioError: the disk is full or the folder cannot be written; older ones are kept.
        """
        place = self.folder / str(int(state.iteration))
        # Orbax logs the traceback of what is raised below; the user needs the one line only.
        log = logging.getLogger("absl")
        level = log.level
        log.setLevel(logging.CRITICAL)
        try:
            self._writer.save(place, state._asdict(), force=True)
            self._writer.wait_until_finished()
            for old in self.saved()[:-_KEPT]:
                shutil.rmtree(self.folder / str(old), ignore_errors=True)
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
        target = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
                leaf.shape, leaf.dtype, sharding=leaf.sharding
            ),
            engine.init()._asdict(),
        )
        for iteration in reversed(self.saved()):
            try:
                with precision_scope(engine.options.precision):
                    return State(**self._writer.restore(self.folder / str(iteration), target))
            except (OSError, ValueError):
                continue  # damaged after it was written: an older one will do
        return None

    def close(self) -> None:
        """Let go of the writer's threads."""
        self._writer.close()
