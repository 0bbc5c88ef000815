"""A run's curves for TensorBoard, through whichever writer is installed."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Self

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import MissingPackageError
from joulemesh.models.curves import COUNTS
from joulemesh.study.result import Metrics

__all__ = ["TensorBoard"]

_WRITERS = ("tensorboardX", "torch.utils.tensorboard")


def _writer() -> Any:
    for module in _WRITERS:
        with suppress(ImportError):
            return import_module(module).SummaryWriter
    raise MissingPackageError(
        "--tensorboard needs tensorboardX, which is not installed; pip install tensorboardX"
    )


class TensorBoard:
    """Logs evaluations, by iteration: ``joulemesh.run(scenario, on_metrics=TensorBoard("logs"))``.

    Args:
        folder: of the log; with several seeds each has its own folder ``seed-K`` in it.
        seeds: how many there are.

    Raises:
        MissingPackageError: no writer is installed.
    """

    def __init__(self, folder: str | Path, *, seeds: int = 1) -> None:
        self._make, self._folder, self._several = _writer(), Path(folder), seeds > 1
        self._open: dict[int, Any] = {}

    def __call__(self, row: Metrics) -> None:
        """Log one evaluation of one seed."""
        seed, iteration = int(row["seed"]), int(row["iteration"])
        if seed not in self._open:
            folder = self._folder / f"seed-{seed}" if self._several else self._folder
            # What an earlier run, or this one before it was killed, logged from here on is void.
            try:
                self._open[seed] = self._make(str(folder), purge_step=iteration)
            except OSError as error:
                raise ScenarioError(
                    f"cannot log to {folder}: {error.strerror}; choose another --tensorboard"
                ) from None
        for name, value in row.items():
            if name not in ("seed", "iteration", *COUNTS):  # counts are not curves
                self._open[seed].add_scalar(name, value, iteration)
        self._open[seed].flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for writer in self._open.values():
            writer.close()
