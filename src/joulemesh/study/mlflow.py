"""A run's curves for MLflow, where it is installed (``mlflow`` or ``mlflow-skinny``)."""

from __future__ import annotations

__all__ = ["MLflow"]

import os
import time
from pathlib import Path
from typing import Any, Self

from joulemesh._version import __version__
from joulemesh.base.optional import require
from joulemesh.scenario import Scenario
from joulemesh.study.result import Metrics
from joulemesh.study.tracking import curves_of, ended, fields_of, run_id

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
        """Log one evaluation of one seed."""
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
