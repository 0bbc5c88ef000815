"""`joulemesh.tune` from a scenario to a folder, and again after it was stopped."""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.data import from_arrays
from joulemesh.study.contest import Judge, halves
from joulemesh.study.tune import Progress
from joulemesh.study.tuning import Tuned

SCENARIO = joulemesh.Scenario.preset("adaptive").override(
    {
        "devices.count": 4,
        "plan.iterations": 20,
        "training.model": "logistic",
        "training.batch_size": 8,
    }
)
SPACE = {"plan.rounds": ["uniform", "theorem4"], "training.learning_rate": [1e-6, 0.1, 0.3]}


def tuned(folder: Path, **options: Any) -> Tuned:
    return joulemesh.tune(
        SCENARIO, SPACE, seeds=2, search_seeds=1, cache=folder / "cache", **options
    )


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tuned, Path]:
    """A tuning, and the folder that holds its runs and its results."""
    folder = tmp_path_factory.mktemp("tune")
    return tuned(folder, out=folder / "out"), folder


def test_what_is_found(found: tuple[Tuned, Path]) -> None:
    tuning, _ = found
    assert [rung.share for rung in tuning.rungs] == [0.1, 1 / 3, 1.0]
    assert [len(rung.rows) for rung in tuning.rungs][-1] == 2
    for rung in tuning.rungs:
        scores = [row.score for row in rung.rows if row.score is not None]
        assert scores == sorted(scores)
        assert all(0 < row.iterations <= 20 for row in rung.rows)
    winner = tuning.winner.candidate
    assert winner.changes.get("training.learning_rate") != 1e-6  # which learns next to nothing
    last = tuning.rungs[-1].rows
    assert [row.kept for row in last] == [row.candidate == winner.number for row in last]
    assert set(tuning.fresh).isdisjoint(tuning.seeds)
    assert tuning.best == SCENARIO.override(winner.changes)


def test_the_folder(found: tuple[Tuned, Path]) -> None:
    tuning, folder = found
    out = folder / "out"
    with (out / "candidates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows].count("winner") == 1
    assert len(rows) == len(tuning.offer.kept) + len(tuning.offer.dropped)
    assert joulemesh.Scenario.load(out / "best.toml") == tuning.best
    assert tomllib.loads((out / "best.toml").read_text())["training"]["model"] == "logistic"
    page = (out / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert tuning.winner.candidate.name in page
    record = json.loads((out / "tuning.json").read_text())
    assert record["found"]["winner"]["candidate"] == tuning.winner.candidate.number
    assert record["objective"] == "accuracy"


def test_what_is_kept_is_not_computed_again(found: tuple[Tuned, Path]) -> None:
    tuning, folder = found
    before = (folder / "out" / "candidates.csv").read_bytes()
    again = tuned(folder, out=folder / "out", resume=True)
    assert tuning.computed > 0
    assert again.computed == 0
    assert again.summary() == {**tuning.summary(), "computed": 0}
    assert (folder / "out" / "candidates.csv").read_bytes() == before


def test_stopped_and_resumed_it_finds_the_same_bits(
    found: tuple[Tuned, Path], tmp_path: Path
) -> None:
    """Stopped again and again, each time a little later, until nothing is left to do."""
    tuning, _ = found
    again = None
    for attempt in range(1, 100):
        calls = iter(range(1, 1000))

        def stop(step: Progress, most: int = 5 * attempt, calls: Iterator[int] = calls) -> None:
            if next(calls) > most:
                raise KeyboardInterrupt

        try:
            again = tuned(tmp_path, out=tmp_path / "out", resume=True, on_progress=stop)
            break
        except KeyboardInterrupt:
            continue
    assert again is not None
    assert attempt > 3
    assert {**again.summary(), "computed": 0} == {**tuning.summary(), "computed": 0}
    for ours, theirs in zip(again.winner.runs, tuning.winner.runs, strict=True):
        np.testing.assert_array_equal(ours.curves, theirs.curves)


def test_a_folder_is_not_written_over(found: tuple[Tuned, Path]) -> None:
    _, folder = found
    with pytest.raises(ScenarioError, match="holds a tuning; add --resume"):
        tuned(folder, out=folder / "out")
    with pytest.raises(ScenarioError, match=r"objective was .accuracy. and is .time-to:0.5."):
        tuned(folder, out=folder / "out", resume=True, objective="time-to:0.5")
    with pytest.raises(ScenarioError, match=r"holds another tuning: .*devices\.count was 4"):
        joulemesh.tune(
            SCENARIO.override({"devices.count": 5}),
            SPACE,
            seeds=2,
            search_seeds=1,
            out=folder / "out",
            resume=True,
            cache=folder / "cache",
        )


def test_the_other_half_of_the_test_samples_reports() -> None:
    x = np.arange(100, dtype=np.float32)[:, None]
    y = (np.arange(100) % 2).astype(np.int32)
    data = from_arrays(x, y, x, y)
    choose, report = halves(data)
    assert not set(choose.x_test.ravel()) & set(report.x_test.ravel())
    assert len(choose.y_test) == len(report.y_test) == 50
    few = from_arrays(x, y, x[:30], y[:30])
    with pytest.raises(ScenarioError, match="30 test samples are too few"):
        halves(few)


@pytest.mark.slow
def test_candidates_in_one_program_learn_what_they_learn_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: tuple[Tuned, Path]
) -> None:
    tuning, _ = found
    fit = Judge._fitting
    monkeypatch.setattr(Judge, "_fitting", lambda self, job: 3 * fit(self, job))
    together = tuned(tmp_path)
    assert together.summary() == tuning.summary()


def test_a_rate_that_diverges_is_out(tmp_path: Path) -> None:
    tuning = joulemesh.tune(
        SCENARIO, {"training.learning_rate": [1e38]}, seeds=1, search_seeds=1, cache=tmp_path
    )
    assert tuning.winner.candidate.number == 0
    assert [row.score.rank for row in tuning.rungs[0].rows if row.score] == [0, 2]
    assert "diverged" in tuning.to_csv()


def test_a_scenario_without_a_plan_can_still_be_tuned(tmp_path: Path) -> None:
    greedy = SCENARIO.override({"plan.iterations": 100_000})
    options: dict[str, Any] = {"seeds": 1, "search_seeds": 1, "cache": tmp_path}
    tuning = joulemesh.tune(greedy, {"plan.iterations": [20, 30]}, **options)
    assert tuning.given is None
    assert tuning.difference is None
    with pytest.raises(InfeasibleError, match="none of 2 candidates has a plan; of the scenario"):
        joulemesh.tune(greedy, {"plan.iterations": [99_999]}, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "loss"}, "objective 'loss' is unknown"),
        ({"seeds": 0}, "seeds = 0 is too few"),
        ({"candidates": 1}, "candidates = 1 is too few"),
    ],
)
def test_bad_input_is_refused_before_anything_is_done(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ScenarioError, match=message):
        joulemesh.tune(SCENARIO, SPACE, cache=tmp_path / "cache", **options)
    assert not list(tmp_path.iterdir())
