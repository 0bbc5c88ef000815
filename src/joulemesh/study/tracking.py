"""Trackers of experiments beside a run: each evaluation is logged, and a failure stops nothing.

A tracker is given to `joulemesh.run` as ``on_metrics`` and opened with ``with``. What a guarded one
raises is said once, and training goes on without it.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

from joulemesh._version import __version__
from joulemesh.base.checksums import sha256_of
from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import MissingPackageError, require
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
    """What a run is called in a tracker: the same whenever the run in a folder is resumed."""
    if folder is not None:
        with suppress(OSError):
            return sha256_of(Path(folder, "versions.json"))[:16]
    return secrets.token_hex(8)


def curves_of(row: Metrics) -> dict[str, float]:
    """The figures of an evaluation that make curves."""
    skipped = ("seed", "iteration", "world", *COUNTS)
    return {name: float(value) for name, value in row.items() if name not in skipped}


def fields_of(scenario: Scenario | None) -> dict[str, str]:
    """The fields of a scenario that have a value, by name."""
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
        self._try(lambda: self._tracker(row))

    def __enter__(self) -> Self:
        self._try(self._tracker.__enter__)
        return self

    def __exit__(self, *error: object) -> None:
        self._try(lambda: self._tracker.__exit__(*error))


class Together:
    """Several trackers as one."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def __call__(self, row: Metrics) -> None:
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
    folder: Path  # of the run
    scenario: Scenario  # what is carried out
    seeds: int  # how many there are
    world: str = ""  # name of the world's folder; empty for a run in one world


def ended(error: Sequence[Any]) -> bool:
    """Did a run come to its end, by what ``__exit__`` is told?"""
    return not error or error[0] is None


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


_TAG, _SEED = "joulemesh.run", "joulemesh.seed"
_AT_ONCE = 100  # parameters in a request, at most


class MLflow:
    """Logs evaluations, by iteration: ``joulemesh.run(scenario, on_metrics=MLflow())``.

    Each seed is an MLflow run of its own, with the scenario's fields as parameters. A run of
    Joulemesh that is resumed goes on in the MLflow runs that it began, and logs nothing twice.

    Args:
        experiment: its name; that of the environment variable MLFLOW_EXPERIMENT_NAME, or
            ``joulemesh``, unless given.
        uri: of the tracking server; MLflow's own choice (MLFLOW_TRACKING_URI) unless given.
        folder: of the run, by which it is found again when it is resumed.
        scenario: whose fields are logged.

    Raises:
        MissingPackageError: MLflow is not installed.
    """

    def __init__(
        self,
        experiment: str | None = None,
        *,
        uri: str | None = None,
        folder: str | Path | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        self._mlflow = require("mlflow", "tracking by MLflow", "mlflow-skinny")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "joulemesh"
        self._uri, self._folder, self._scenario = uri, folder, scenario
        self._client: Any = None
        self._name = ""
        self._open: dict[int, tuple[str, int]] = {}  # by seed: the run, and how far it has come

    def __call__(self, row: Metrics) -> None:
        seed, iteration = int(row["seed"]), int(row["iteration"])
        if seed not in self._open:
            self._open[seed] = self._begin(seed)
        run, done = self._open[seed]
        if iteration <= done:
            return  # logged before the run was interrupted
        entity, now = self._mlflow.entities.Metric, int(time.time() * 1000)
        figures = [entity(name, value, now, iteration) for name, value in curves_of(row).items()]
        self._client.log_batch(run, metrics=figures)
        self._open[seed] = run, iteration

    def _begin(self, seed: int) -> tuple[str, int]:
        """The MLflow run of a seed, found again or made; and the last iteration that it has."""
        if self._client is None:
            self._client = self._mlflow.MlflowClient(tracking_uri=self._uri)
            self._name = run_id(self._folder)
        client, experiment = self._client, self._experiment_id()
        wanted = f"tags.`{_TAG}` = '{self._name}' and tags.`{_SEED}` = '{seed}'"
        found = client.search_runs([experiment], wanted, max_results=1)
        if found:
            run = found[0].info.run_id
            client.update_run(run, status="RUNNING")
            known = next(iter(found[0].data.metrics), None)
            history = client.get_metric_history(run, known) if known else []
            return run, max((point.step for point in history), default=0)
        label = Path(self._folder).name if self._folder is not None else self._name
        tags = {_TAG: self._name, _SEED: str(seed), "joulemesh.version": __version__}
        made = client.create_run(experiment, run_name=f"{label}-seed-{seed}", tags=tags)
        parameter = self._mlflow.entities.Param
        fields = [parameter(name, value) for name, value in fields_of(self._scenario).items()]
        for first in range(0, len(fields), _AT_ONCE):
            client.log_batch(made.info.run_id, params=fields[first : first + _AT_ONCE])
        return made.info.run_id, 0

    def _experiment_id(self) -> str:
        known = self._client.get_experiment_by_name(self._experiment)
        if known is not None:
            return str(known.experiment_id)
        return str(self._client.create_experiment(self._experiment))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for run, _ in self._open.values():
            self._client.set_terminated(run, status="FINISHED" if ended(error) else "KILLED")


class WandB:
    """Logs evaluations, by iteration: ``joulemesh.run(scenario, on_metrics=WandB("project"))``.

    Each seed is a run of its own in one group, with the scenario's fields as its configuration. A
    run of Joulemesh that is resumed goes on in the runs that it began. WANDB_MODE=offline logs to
    files, which ``wandb sync`` sends later.

    Args:
        project: its name, or ``ENTITY/PROJECT``.
        folder: of the run, by which it is known again when it is resumed.
        scenario: whose fields are logged.

    Raises:
        MissingPackageError: ``wandb`` is not installed.
    """

    def __init__(
        self,
        project: str = "joulemesh",
        *,
        folder: str | Path | None = None,
        scenario: Scenario | None = None,
    ) -> None:
        self._wandb = require("wandb", "tracking by Weights & Biases")
        entity, _, self._project = project.rpartition("/")
        self._entity, self._folder, self._scenario = entity or None, folder, scenario
        self._open: dict[int, Any] = {}
        self._name = ""

    def __call__(self, row: Metrics) -> None:
        seed, iteration = int(row["seed"]), int(row["iteration"])
        if seed not in self._open:
            self._open[seed] = self._begin(seed)
        run = self._open[seed]
        if iteration >= run.step:  # otherwise logged before the run was interrupted
            run.log({"iteration": iteration, **curves_of(row)}, step=iteration)

    def _begin(self, seed: int) -> Any:
        self._name = self._name or run_id(self._folder)
        label = Path(self._folder).name if self._folder is not None else self._name
        return self._wandb.init(
            entity=self._entity,
            project=self._project,
            group=f"{label}-{self._name[:6]}",
            name=f"{label}-seed-{seed}",
            id=f"{self._name}-{seed}",
            config={**fields_of(self._scenario), "repetition_seed": seed},
            resume="allow",
            reinit="create_new",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for run in self._open.values():
            run.finish(exit_code=0 if ended(error) else 1)


# What may be written after --track, and what makes the tracker.
TRACKERS: dict[str, tuple[str, Callable[[str, Tracked], Tracker]]] = {
    "tensorboard": (
        "tensorboard:FOLDER",
        lambda where, run: TensorBoard(Path(where or "logs") / run.world, seeds=run.seeds),
    ),
    "mlflow": (
        "mlflow:URI",
        lambda where, run: MLflow(uri=where or None, folder=run.folder, scenario=run.scenario),
    ),
    "wandb": (
        "wandb:PROJECT",
        lambda where, run: WandB(where or "joulemesh", folder=run.folder, scenario=run.scenario),
    ),
}


def open_trackers(asked: Sequence[str], run: Tracked) -> Together | None:
    """The trackers that a command asks for, guarded; None for none."""
    made: list[Tracker] = []
    for text in asked:
        name, _, where = text.partition(":")
        if name not in TRACKERS:
            *some, last = TRACKERS
            raise ScenarioError(f"--track {text}: use {', '.join(some)} or {last}")
        made.append(Guarded(name, TRACKERS[name][1](where, run)))
    return Together(made) if made else None
