"""Trackers of experiments beside a run: each evaluation is logged, and a failure stops nothing.

A tracker is given to `joulemesh.run` as ``on_metrics`` and opened with ``with``. What a guarded one
raises is said once, and training goes on without it.
"""

from __future__ import annotations

__all__ = ["TRACKERS", "Guarded", "Together", "Tracker", "curves_of", "open_trackers", "run_id"]

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

from joulemesh.base.checksums import sha256_of
from joulemesh.base.errors import ScenarioError
from joulemesh.models.curves import COUNTS
from joulemesh.scenario import Scenario
from joulemesh.study.result import Metrics

_LOG = logging.getLogger("joulemesh")
_LONGEST = 250  # characters of a field's value


class Tracker(Protocol):
    """What logs evaluations, between ``with`` and the end of the run."""

    def __call__(self, row: Metrics) -> None:
        """Log one evaluation of one seed: a row of ``metrics.csv``."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...


def run_id(folder: str | Path | None) -> str:
    """What a run is called in a tracker: the same whenever the run in a folder is resumed.

    Args:
        folder: of the run, which has begun; None for a run without one, which gets a new name.

    >>> run_id(None) != run_id(None)
    True
    """
    if folder is not None:
        with suppress(OSError):
            return sha256_of(Path(folder, "versions.json"))[:16]
    return secrets.token_hex(8)


def curves_of(row: Metrics) -> dict[str, float]:
    """The figures of an evaluation that make curves.

    >>> curves_of({"seed": 0, "iteration": 5, "test_loss": 0.5, "test_samples": 100})
    {'test_loss': 0.5}
    """
    skipped = ("seed", "iteration", "world", *COUNTS)
    return {name: float(value) for name, value in row.items() if name not in skipped}


def fields_of(scenario: Scenario | None) -> dict[str, str]:
    """The fields of a scenario that have a value, by name.

    >>> fields_of(Scenario())["devices.count"]
    '20'
    """
    if scenario is None:
        return {}
    found: dict[str, str] = {}
    for section, values in scenario.model_dump(mode="json").items():
        inside = values if isinstance(values, Mapping) else {"": values}
        for name, value in inside.items():
            if value is not None and value != []:
                found[f"{section}.{name}".rstrip(".")] = str(value)[:_LONGEST]
    return found


class Guarded:
    """A tracker whose failures are said once and stop nothing.

    Refusals of what the user asked for (`ScenarioError`) are passed on.

    Args:
        name: of the tracker, for the note.
        tracker: what logs.
    """

    def __init__(self, name: str, tracker: Tracker) -> None:
        self._name, self._tracker, self._works = name, tracker, True

    def _try(self, action: Callable[[], object]) -> None:
        if not self._works:
            return
        try:
            action()
        except ScenarioError:
            raise
        except Exception as error:  # a tracker's own, the network's, a server's
            self._works = False
            reason = " ".join(str(error).split())[:200] or "no reason given"
            _LOG.warning(
                "%s logs no more (%s: %s); the run goes on, and metrics.csv has every evaluation",
                self._name,
                type(error).__name__,
                reason,
            )

    def __call__(self, row: Metrics) -> None:
        """Log one evaluation, if the tracker still works."""
        self._try(lambda: self._tracker(row))

    def __enter__(self) -> Self:
        self._try(self._tracker.__enter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._try(lambda: self._tracker.__exit__(*error))


class Together:
    """Several trackers as one.

    Args:
        trackers: each gets every evaluation.
    """

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def __call__(self, row: Metrics) -> None:
        """Log one evaluation with each of them."""
        for one in self._trackers:
            one(row)

    def __enter__(self) -> Self:
        for one in self._trackers:
            one.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._trackers:
            one.__exit__(*error)


@dataclass(frozen=True)
class Tracked:
    """What a tracker is told of a run.

    Attributes:
        folder: of the run.
        scenario: what is carried out.
        seeds: how many there are.
        world: name of the world's folder; empty for a run in one world.
    """

    folder: Path
    scenario: Scenario
    seeds: int
    world: str = ""


def _tensorboard(where: str, run: Tracked) -> Tracker:
    from joulemesh.study.tensorboard import TensorBoard

    return TensorBoard(Path(where or "logs") / run.world, seeds=run.seeds)


def _mlflow(where: str, run: Tracked) -> Tracker:
    from joulemesh.study.mlflow import MLflow

    return MLflow(uri=where or None, folder=run.folder, scenario=run.scenario)


def _wandb(where: str, run: Tracked) -> Tracker:
    from joulemesh.study.wandb import WandB

    return WandB(where or "joulemesh", folder=run.folder, scenario=run.scenario)


TRACKERS: dict[str, tuple[str, Callable[[str, Tracked], Tracker]]] = {
    "tensorboard": ("tensorboard:FOLDER", _tensorboard),
    "mlflow": ("mlflow:URI", _mlflow),
    "wandb": ("wandb:PROJECT", _wandb),
}
"""What may be written after ``--track``, and what makes the tracker."""


def open_trackers(asked: Sequence[str], run: Tracked) -> Together | None:
    """The trackers that a command asks for, guarded; None for none.

    Args:
        asked: such as ``"mlflow"`` or ``"tensorboard:logs"``.
        run: what they are told.

    Raises:
        ScenarioError: an unknown tracker.
        MissingPackageError: its package is not installed.

    >>> open_trackers(["comet"], Tracked(Path("run"), Scenario(), 1))
    Traceback (most recent call last):
    joulemesh.ScenarioError: --track comet: use tensorboard, mlflow or wandb
    """
    made: list[Tracker] = []
    for text in asked:
        name, _, where = text.partition(":")
        if name not in TRACKERS:
            *some, last = TRACKERS
            raise ScenarioError(f"--track {text}: use {', '.join(some)} or {last}")
        made.append(Guarded(name, TRACKERS[name][1](where, run)))
    return Together(made) if made else None


def _trackers_are_trackers(*trackers: Guarded | Together) -> tuple[Tracker, ...]:
    """Checked by mypy."""
    return trackers


def ended(error: Sequence[Any]) -> bool:
    """Did a run come to its end, by what ``__exit__`` is told?"""
    return not error or error[0] is None
