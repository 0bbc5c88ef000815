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
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import sha256_of
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


class Together:
    """Trackers by their names as one; what one of them raises is said once, and stops nothing.

    Refusals of what the user asked for (`ScenarioError`) are passed on.
    """

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._working = dict(trackers)

    def _each(self, action: Callable[[Tracker], object]) -> None:
        for name, tracker in list(self._working.items()):
            try:
                action(tracker)
            except ScenarioError:
                raise
            except Exception as error:  # a tracker's own, the network's, a server's
                del self._working[name]
                reason = " ".join(str(error).split())[:200] or "no reason given"
                _LOG.warning(
                    "%s logs no more (%s: %s); the run goes on, and metrics.csv has every "
                    "evaluation",
                    name,
                    type(error).__name__,
                    reason,
                )

    def __call__(self, row: Metrics) -> None:
        self._each(lambda tracker: tracker(row))

    def __enter__(self) -> Self:
        self._each(lambda tracker: tracker.__enter__())
        return self

    def __exit__(self, *error: object) -> None:
        self._each(lambda tracker: tracker.__exit__(*error))


@dataclass(frozen=True)
class Tracked:
    folder: Path  # of the run
    scenario: Scenario  # what is carried out
    seeds: int  # how many there are
    world: str = ""  # name of the world's folder; empty for a run in one world


_WRITERS = ("tensorboardX", "torch.utils.tensorboard")


def _writer() -> Any:
    for module in _WRITERS:
        with suppress(ImportError):
            return import_module(module).SummaryWriter
    raise MissingPackageError(
        "--tensorboard needs tensorboardX, which is not installed; pip install tensorboardX"
    )


class PerSeed:
    """A tracker that has a log for each seed: opened when first needed, closed at the end."""

    def __init__(self) -> None:
        self._open: dict[int, Any] = {}

    def begin(self, seed: int, iteration: int) -> Any:
        """Open the log of a seed."""
        raise NotImplementedError

    def log(self, seed: int, iteration: int, row: Metrics) -> None:
        """Write an evaluation into the log of a seed."""
        raise NotImplementedError

    def close(self, one: Any, *, finished: bool) -> None:
        """End the log of a seed."""
        raise NotImplementedError

    def __call__(self, row: Metrics) -> None:
        seed, iteration = int(row["seed"]), int(row["iteration"])
        if seed not in self._open:
            self._open[seed] = self.begin(seed, iteration)
        self.log(seed, iteration, row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for one in self._open.values():
            self.close(one, finished=not error or error[0] is None)


class TensorBoard(PerSeed):
    """Logs evaluations, by iteration: ``joulemesh.run(scenario, on_metrics=TensorBoard("logs"))``.

    Args:
        folder: of the log; with several seeds each has its own folder ``seed-K`` in it.
        seeds: how many there are.

    Raises:
        MissingPackageError: no writer is installed.
    """

    def __init__(self, folder: str | Path, *, seeds: int = 1) -> None:
        super().__init__()
        self._make, self._folder, self._several = _writer(), Path(folder), seeds > 1

    def begin(self, seed: int, iteration: int) -> Any:
        folder = self._folder / f"seed-{seed}" if self._several else self._folder
        # What an earlier run, or this one before it was killed, logged from here on is void.
        try:
            return self._make(str(folder), purge_step=iteration)
        except OSError as error:
            raise ScenarioError(
                f"cannot log to {folder}: {error.strerror}; choose another --tensorboard"
            ) from None

    def log(self, seed: int, iteration: int, row: Metrics) -> None:
        for name, value in row.items():
            if name not in ("seed", "iteration", *COUNTS):  # counts are not curves
                self._open[seed].add_scalar(name, value, iteration)
        self._open[seed].flush()

    def close(self, one: Any, *, finished: bool) -> None:
        one.close()


_TAG, _SEED = "joulemesh.run", "joulemesh.seed"
_AT_ONCE = 100  # parameters in a request, at most


class Named(PerSeed):
    """A log of which each seed is a run, found again by the run's folder when it is resumed."""

    def __init__(self, folder: str | Path | None, scenario: Scenario | None) -> None:
        super().__init__()
        self._folder, self._scenario = folder, scenario

    @cached_property
    def name(self) -> str:
        """What the run is called, once it has begun."""
        return run_id(self._folder)

    @property
    def label(self) -> str:
        """The run's folder, by which a reader knows it."""
        return Path(self._folder).name if self._folder is not None else self.name


class MLflow(Named):
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
        super().__init__(folder, scenario)
        self._mlflow = require("mlflow", "tracking by MLflow", "mlflow-skinny")
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "joulemesh"
        self._uri, self._done = uri, dict[int, int]()

    @cached_property
    def _client(self) -> Any:
        return self._mlflow.MlflowClient(tracking_uri=self._uri)

    def log(self, seed: int, iteration: int, row: Metrics) -> None:
        if iteration <= self._done[seed]:
            return  # logged before the run was interrupted
        entity, now = self._mlflow.entities.Metric, int(time.time() * 1000)
        figures = [entity(name, value, now, iteration) for name, value in curves_of(row).items()]
        self._client.log_batch(self._open[seed], metrics=figures)
        self._done[seed] = iteration

    def begin(self, seed: int, iteration: int) -> str:
        """The MLflow run of a seed, found again or made."""
        client, experiment = self._client, self._experiment_id()
        wanted = f"tags.`{_TAG}` = '{self.name}' and tags.`{_SEED}` = '{seed}'"
        found = client.search_runs([experiment], wanted, max_results=1)
        self._done[seed] = 0
        if found:
            run = str(found[0].info.run_id)
            client.update_run(run, status="RUNNING")
            known = next(iter(found[0].data.metrics), None)
            history = client.get_metric_history(run, known) if known else []
            self._done[seed] = max((point.step for point in history), default=0)
            return run
        tags = {_TAG: self.name, _SEED: str(seed), "joulemesh.version": __version__}
        made = client.create_run(experiment, run_name=f"{self.label}-seed-{seed}", tags=tags)
        parameter = self._mlflow.entities.Param
        fields = [parameter(name, value) for name, value in fields_of(self._scenario).items()]
        for first in range(0, len(fields), _AT_ONCE):
            client.log_batch(made.info.run_id, params=fields[first : first + _AT_ONCE])
        return str(made.info.run_id)

    def _experiment_id(self) -> str:
        known = self._client.get_experiment_by_name(self._experiment)
        if known is not None:
            return str(known.experiment_id)
        return str(self._client.create_experiment(self._experiment))

    def close(self, one: Any, *, finished: bool) -> None:
        self._client.set_terminated(one, status="FINISHED" if finished else "KILLED")


class WandB(Named):
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
        super().__init__(folder, scenario)
        self._wandb = require("wandb", "tracking by Weights & Biases")
        entity, _, self._project = project.rpartition("/")
        self._entity = entity or None

    def log(self, seed: int, iteration: int, row: Metrics) -> None:
        run = self._open[seed]
        if iteration >= run.step:  # otherwise logged before the run was interrupted
            run.log({"iteration": iteration, **curves_of(row)}, step=iteration)

    def begin(self, seed: int, iteration: int) -> Any:
        return self._wandb.init(
            entity=self._entity,
            project=self._project,
            group=f"{self.label}-{self.name[:6]}",
            name=f"{self.label}-seed-{seed}",
            id=f"{self.name}-{seed}",
            config={**fields_of(self._scenario), "repetition_seed": seed},
            resume="allow",
            reinit="create_new",
        )

    def close(self, one: Any, *, finished: bool) -> None:
        one.finish(exit_code=0 if finished else 1)


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


def open_trackers(asked: Sequence[str], run: Tracked) -> Together:
    """The trackers that a command asks for."""
    made: dict[str, Tracker] = {}
    for text in asked:
        name, _, where = text.partition(":")
        if name not in TRACKERS:
            *some, last = TRACKERS
            raise ScenarioError(f"--track {text}: use {', '.join(some)} or {last}")
        made[name if name not in made else text] = TRACKERS[name][1](where, run)
    return Together(made)
