"""Metrics to the user's own loggers: each evaluation once, also over a stop and a resume."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

import joulemesh
from joulemesh.study.result import Result
from joulemesh.study.tracking import TensorBoard

SCENARIO = joulemesh.Scenario.preset("adaptive").override(
    {
        "devices.count": 4,
        "plan.iterations": 12,
        "training.model": "logistic",
        "training.l2": 0.01,
        "training.chunk_iterations": 3,
        "training.eval_every": 2,
    }
)

Told: TypeAlias = tuple[Result, Path, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    rows: list[dict[str, Any]] = []
    folder = tmp_path_factory.mktemp("metrics") / "run"
    return joulemesh.run(SCENARIO, seeds=2, out=folder, on_metrics=rows.append), folder, rows


def as_text(rows: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Rows as ``metrics.csv`` has them."""
    return [{name: str(value) for name, value in row.items()} for row in rows]


def test_every_evaluation_is_told_as_metrics_csv_has_it(told: Told) -> None:
    _, folder, rows = told
    with open(folder / "metrics.csv") as file:
        assert as_text(rows) == list(csv.DictReader(file))
    assert [row["iteration"] for row in rows if row["seed"] == 0] == [2, 4, 6, 8, 10, 12]
    assert all(type(value) in (int, float) for row in rows for value in row.values())


def test_the_frame_is_the_same_rows(told: Told) -> None:
    pytest.importorskip("pandas")
    result, _, rows = told
    frame = result.frame()
    assert list(frame.columns) == list(rows[0])
    assert frame.to_dict("records") == rows
    last = frame[frame["iteration"] == 12]["test_accuracy"]
    np.testing.assert_array_equal(last, result.accuracy[-1].astype(float))


def test_devices_that_agree_have_the_mean_models_curve(told: Told) -> None:
    """A tree averages exactly: a gap between the two lines would be one between samples."""
    _, _, rows = told
    for row in rows:
        assert row["consensus"] == 0
        assert row["device_accuracy_min"] == row["device_accuracy_max"] == row["test_accuracy"]
        assert row["device_accuracy_mean"] == row["test_accuracy"]
        assert (row["test_samples"], row["device_samples"]) == (360, 360)


class StopError(Exception):
    """The user's own reason to stop."""


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize("after", [pytest.param(3, marks=SLOW), 6, pytest.param(9, marks=SLOW)])
def test_a_stopped_run_tells_each_evaluation_once(told: Told, tmp_path: Path, after: int) -> None:
    _, _, wanted = told
    rows: list[dict[str, Any]] = []

    def stop(progress: Any) -> None:
        if progress.completed == after:
            raise StopError

    folder = tmp_path / "run"
    with pytest.raises(StopError):
        joulemesh.run(SCENARIO, seeds=2, out=folder, on_progress=stop, on_metrics=rows.append)
    joulemesh.run(SCENARIO, seeds=2, out=folder, resume=True, on_metrics=rows.append)
    assert rows == wanted


# TensorBoard -----------------------------------------------------------------------------------


class Writer:
    """Stands for a SummaryWriter, and keeps what it is given."""

    made: list[Writer] = []  # noqa: RUF012

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.closed = folder, purge_step, False
        self.scalars: list[tuple[str, float, int]] = []
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    Writer.made = []
    module = type(sys)("tensorboardX")
    module.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorboardX", module)
    return Writer.made


def row(seed: int, iteration: int) -> dict[str, Any]:
    return {"seed": seed, "iteration": iteration, "test_accuracy": 0.5, "energy_j": 2.0}


def test_each_seed_has_its_own_log(writers: list[Writer], tmp_path: Path) -> None:
    with TensorBoard(tmp_path, seeds=2) as log:
        for iteration in (5, 10):
            for seed in (0, 7):
                log(row(seed, iteration))
    assert [writer.folder for writer in writers] == [str(tmp_path / f"seed-{s}") for s in (0, 7)]
    assert writers[0].scalars == [
        (name, value, step)
        for step in (5, 10)
        for name, value in (("test_accuracy", 0.5), ("energy_j", 2.0))
    ]
    assert all(writer.closed for writer in writers)


def test_a_resumed_log_voids_what_was_beyond(writers: list[Writer], tmp_path: Path) -> None:
    for first in (5, 15):
        with TensorBoard(tmp_path) as log:
            log(row(0, first))
    assert [(writer.folder, writer.purge_step) for writer in writers] == [
        (str(tmp_path), 5),
        (str(tmp_path), 15),
    ]


def test_a_real_log_holds_the_curves(told: Told, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.event_pb2 import Event

    _, _, rows = told
    mine = [one for one in rows if one["seed"] == 0]
    with TensorBoard(tmp_path) as log:
        for one in mine:
            log(one)
    (file,) = tmp_path.glob("events.*")
    data, found = file.read_bytes(), []
    while data:  # length, its checksum, the record, its checksum
        size = int.from_bytes(data[:8], "little")
        event = Event.FromString(data[12 : 12 + size])
        found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
        data = data[16 + size :]
    accuracy = {step: value for tag, step, value in found if tag == "test_accuracy"}
    assert accuracy == pytest.approx({one["iteration"]: one["test_accuracy"] for one in mine})
    assert len(found) == len(mine) * (len(rows[0]) - 5)  # neither seed, iteration nor counts
