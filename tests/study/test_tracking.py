"""Trackers of experiments: each evaluation once, over a resume too, and no failure stops a run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import MissingPackageError
from joulemesh.study.tracking import (
    MLflow,
    Together,
    Tracked,
    WandB,
    open_trackers,
)

SCENARIO = joulemesh.Scenario.preset("adaptive").override(
    {
        "devices.count": 4,
        "plan.iterations": 6,
        "training.model": "logistic",
        "training.l2": 0.01,
        "training.chunk_iterations": 2,
        "training.eval_every": 2,
    }
)


def row(seed: int, iteration: int, accuracy: float = 0.5) -> dict[str, Any]:
    figures = {"test_accuracy": accuracy, "energy_j": 2.0 * iteration}
    return {"seed": seed, "iteration": iteration, **figures, "test_samples": 360}


# A stand-in for MLflow's client, which keeps what it is given ------------------------------------


class Client:
    """The part of ``mlflow.MlflowClient`` that is used, in memory."""

    experiments: dict[str, str]
    runs: dict[str, SimpleNamespace]

    def __init__(self, tracking_uri: str | None = None) -> None:
        Client.uri = tracking_uri  # type: ignore[attr-defined]

    def get_experiment_by_name(self, name: str) -> Any:
        known = Client.experiments.get(name)
        return None if known is None else SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        return Client.experiments.setdefault(name, f"e{len(Client.experiments)}")

    def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> Any:
        run = SimpleNamespace(
            info=SimpleNamespace(run_id=f"r{len(Client.runs)}"),
            data=SimpleNamespace(metrics={}),
            name=run_name, tags=tags, params={}, points=[], status="RUNNING",
        )  # fmt: skip
        Client.runs[run.info.run_id] = run
        return run

    def search_runs(self, experiments: list[str], wanted: str, max_results: int) -> list[Any]:
        return [
            run for run in Client.runs.values()
            if all(
                f"tags.`{name}` = '{run.tags[name]}'" in wanted
                for name in ("joulemesh.run", "joulemesh.seed")
            )
        ][:max_results]  # fmt: skip

    def get_metric_history(self, run: str, name: str) -> list[Any]:
        return [SimpleNamespace(step=p.step) for p in Client.runs[run].points if p.key == name]

    def update_run(self, run: str, status: str) -> None:
        Client.runs[run].status = status

    def log_batch(self, run: str, metrics: Any = (), params: Any = ()) -> None:
        assert len(params) <= 100
        for point in metrics:
            Client.runs[run].points.append(point)
            Client.runs[run].data.metrics[point.key] = point.value
        Client.runs[run].params.update({one.key: one.value for one in params})

    def set_terminated(self, run: str, status: str) -> None:
        Client.runs[run].status = status


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    Client.experiments, Client.runs = {}, {}

    def metric(key: str, value: float, timestamp: int, step: int) -> Any:
        return SimpleNamespace(key=key, value=value, step=step)

    def param(key: str, value: str) -> Any:
        return SimpleNamespace(key=key, value=value)

    module = SimpleNamespace(
        MlflowClient=Client, entities=SimpleNamespace(Metric=metric, Param=param)
    )
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return Client


class Started:
    """Stands for a run of wandb; one that is begun again goes on where it was."""

    made: dict[str, Started]

    def __init__(self, **options: Any) -> None:
        before = Started.made.get(options["id"])
        assert before is None or options["resume"] == "allow"
        self.options, self.ends = options, list[int]()
        self.logged: dict[int, dict[str, Any]] = {} if before is None else before.logged
        Started.made[options["id"]] = self

    @property
    def step(self) -> int:
        return max(self.logged, default=-1) + 1

    def log(self, figures: dict[str, Any], step: int) -> None:
        assert step >= self.step  # wandb drops earlier steps
        self.logged[step] = figures

    def finish(self, exit_code: int) -> None:
        self.ends.append(exit_code)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> type[Started]:
    Started.made = {}
    monkeypatch.setitem(
        sys.modules, "wandb", SimpleNamespace(init=Started)
    )  # fmt: skip
    return Started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "versions.json").write_text('{"started": "now"}')
    return tmp_path


def test_each_seed_is_a_run_of_mlflow_with_the_scenarios_fields(
    mlflow: type[Client], folder: Path
) -> None:
    with MLflow(folder=folder, scenario=SCENARIO, uri="http://there") as log:
        for iteration in (2, 4):
            for seed in (0, 7):
                log(row(seed, iteration))
    first, second = mlflow.runs.values()
    assert [(p.key, p.step, p.value) for p in first.points] == [
        ("test_accuracy", 2, 0.5), ("energy_j", 2, 4.0),
        ("test_accuracy", 4, 0.5), ("energy_j", 4, 8.0),
    ]  # fmt: skip
    assert first.params["devices.count"] == "4"
    assert (first.status, second.tags["joulemesh.seed"]) == ("FINISHED", "7")
    assert mlflow.uri == "http://there"  # type: ignore[attr-defined]
    assert list(mlflow.experiments) == ["joulemesh"]


def test_a_resumed_run_goes_on_in_mlflow(mlflow: type[Client], folder: Path) -> None:
    log = MLflow(folder=folder)
    log(row(0, 2))
    log(row(0, 4))
    log.__exit__(RuntimeError, RuntimeError("power cut"), None)
    assert [run.status for run in mlflow.runs.values()] == ["KILLED"]
    with MLflow(folder=folder) as log:
        for iteration in (4, 6):  # 4 was logged, and then lost with the checkpoint
            log(row(0, iteration))
    (run,) = mlflow.runs.values()
    assert [point.step for point in run.points if point.key == "energy_j"] == [2, 4, 6]
    assert run.status == "FINISHED"
    other = folder / "other"
    other.mkdir()
    (other / "versions.json").write_text('{"started": "later"}')
    with MLflow(folder=other) as log:
        log(row(0, 2))
    assert len(mlflow.runs) == 2


def test_each_seed_is_a_run_of_wandb_that_a_resumed_run_goes_on_with(
    wandb: type[Started], folder: Path
) -> None:
    for iterations in ((2, 4), (4, 6)):
        with WandB("team/fleet", folder=folder, scenario=SCENARIO) as log:
            for iteration in iterations:
                log(row(0, iteration, accuracy=iteration / 10))
                log(row(1, iteration))
    first, second = wandb.made.values()
    assert sorted(first.logged) == [2, 4, 6]
    assert first.logged[4] == {"iteration": 4, "test_accuracy": 0.4, "energy_j": 8.0}
    assert (first.options["entity"], first.options["project"]) == ("team", "fleet")
    assert first.options["config"]["devices.count"] == "4"
    assert first.options["group"] == second.options["group"]
    assert first.ends == [0]


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, module, None)
    run = Tracked(Path("run"), SCENARIO, 1)
    with pytest.raises(MissingPackageError, match="MLflow needs"):
        open_trackers(["mlflow"], run)
    with pytest.raises(MissingPackageError, match="Weights & Biases needs wandb"):
        open_trackers(["wandb:project"], run)
    with pytest.raises(ScenarioError, match="--track neptune: use tensorboard, mlflow or wandb"):
        open_trackers(["neptune"], run)


class Failing:
    """A tracker that fails at the second evaluation, and whenever it is asked again."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, row: Any) -> None:
        self.asked.append(row["iteration"])
        if len(self.asked) >= 2:
            raise ConnectionError("the server is gone")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        raise ConnectionError("still gone")


def test_a_failing_tracker_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    failing, other = Failing(), list[Any]()

    class Working(Failing):
        def __call__(self, row: Any) -> None:
            other.append(row["iteration"])

        def __exit__(self, *error: object) -> None:
            other.append("closed")

    with Together({"mlflow": failing, "wandb": Working()}) as tracker:
        for iteration in (2, 4, 6):
            tracker(row(0, iteration))
    assert failing.asked == [2, 4]
    assert other == [2, 4, 6, "closed"]
    assert caplog.messages == [
        "mlflow logs no more (ConnectionError: the server is gone); the run goes on, and "
        "metrics.csv has every evaluation"
    ]


def test_a_refusal_is_not_swallowed() -> None:
    class Refusing(Failing):
        def __call__(self, row: Any) -> None:
            raise ScenarioError("cannot log there; choose another place")

    with pytest.raises(ScenarioError, match="choose another"):
        Together({"tensorboard": Refusing()})(row(0, 1))


# The real packages -------------------------------------------------------------------------------
