"""A run's curves for Weights & Biases, where the package ``wandb`` is installed."""

from __future__ import annotations

__all__ = ["WandB"]

from pathlib import Path
from typing import Any, Self

from joulemesh.base.optional import require
from joulemesh.scenario import Scenario
from joulemesh.study.result import Metrics
from joulemesh.study.tracking import curves_of, ended, fields_of, run_id


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
        """Log one evaluation of one seed."""
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
