"""A sweep is a product of comparisons: the same runs, each of them once."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import verified
from joulemesh.data import Dataset
from joulemesh.study.sweep import Progress
from joulemesh.study.sweep_result import Sweep
from tests.comparisons import SEEDS, few_digits, small_scenario, small_sweep, swept_folder

METHODS = ["adaptive", "fixed:1"]


@pytest.fixture(scope="module")
def swept() -> Sweep:
    return small_sweep()


@pytest.fixture(scope="module")
def kept() -> Path:
    """Where the sweep's runs are kept."""
    return swept_folder()


def test_runs_are_those_of_comparisons(swept: Sweep, digits: Dataset, kept: Path) -> None:
    for point in swept.points[:3]:
        at = {one.name: one.values[k] for one, k in zip(swept.varied, point.at, strict=True)}
        alone = joulemesh.compare(
            small_scenario().override(at), METHODS, seeds=SEEDS, data=digits, cache=kept
        )
        assert alone.computed == 0
        want = alone["fixed:1"]
        rows = [row for row in point.runs if row["method"] == "fixed:1"]
        assert [row["accuracy"] for row in rows] == want.final["test_accuracy"].tolist()
        assert [row["energy_j"] for row in rows] == want.total_energy_j.tolist()
        assert [row["time_s"] for row in rows] == want.total_time_s.tolist()
        table = alone.table()
        assert [row["accuracy_ci95"] for row in point.methods] == [
            row["accuracy_ci95"] for row in table
        ]
        assert point.methods[1]["accuracy_difference"] == table[1]["accuracy_difference"]


def test_the_table_has_every_run_once(swept: Sweep) -> None:
    rows = swept.table()
    keys = [
        (row["budget.energy_j"], row["training.learning_rate"], row["method"], row["seed"])
        for row in rows
    ]
    rates, energies = (0.05, 0.1, 0.2), ("[0.5, 1.5]", 1e-6)
    assert keys == [(e, r, m, s) for e in energies for r in rates for m in METHODS for s in SEEDS]
    assert [row["status"] for row in rows] == ["ran"] * 12 + ["infeasible"] * 12
    assert all(row["accuracy"] is None and "device" in row["reason"] for row in rows[12:])
    assert all(row["reason"] == "" and 0 < row["accuracy"] <= 1 for row in rows[:12])
    assert swept.array("accuracy").shape == (2, 3, 2, 2)
    assert np.isnan(swept.array("energy_j")[1]).all()
    assert swept.array()[0, 2, 1, 0] == rows[10]["accuracy"]
    summary = swept.summary_table()
    assert len(summary) == 12
    assert summary[0]["accuracy"] == (rows[0]["accuracy"] + rows[1]["accuracy"]) / 2
    assert summary[0]["seeds"] == 2


def test_tables_as_text_frame_and_parquet(swept: Sweep, tmp_path: Path) -> None:
    text = swept.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == text
    cells = list(csv.DictReader(io.StringIO(text)))
    assert float(cells[0]["accuracy"]) == swept.table()[0]["accuracy"]
    assert (cells[-1]["accuracy"], cells[-1]["status"]) == ("", "infeasible")
    frame = swept.to_pandas()
    assert frame.shape[0] == 24
    assert frame["accuracy"].notna().sum() == 12
    assert swept.to_pandas("summary").shape[0] == 12
    with pytest.raises(ScenarioError, match="use 'runs' or 'summary'"):
        swept.to_pandas("all")
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    swept.to_parquet(tmp_path / "table.parquet")
    read = pandas.read_parquet(tmp_path / "table.parquet")
    assert list(read.columns) == list(frame.columns)
    assert read["accuracy"].tolist()[:12] == frame["accuracy"].tolist()[:12]
    assert read["budget.energy_j"].tolist()[0] == "[0.5, 1.5]"


def test_one_more_value_costs_only_itself(digits: Dataset, kept: Path, swept: Sweep) -> None:
    rates = [0.05, 0.1, 0.2]

    def again(methods: Any = METHODS, **vary: Any) -> Sweep:
        wanted = {"training.learning_rate": rates, **vary}
        return joulemesh.sweep(
            small_scenario(), wanted, methods, seeds=SEEDS, data=digits, cache=kept
        )

    same = again()
    assert same.computed == 0
    assert same.array().tolist() == swept.array()[0].tolist()
    rates.append(0.15)
    more = again()
    assert more.computed == 4
    assert more.array()[:3].tolist() == same.array().tolist()
    assert again("adaptive,fixed:1").computed == 0


def test_a_combination_that_cannot_be_planned_is_a_row(digits: Dataset, tmp_path: Path) -> None:
    vary = {"network.topology": ["ring", [[0, 1], [1, 2]]], "network.gains": [None, [1e-9, 1e-9]]}
    found = joulemesh.sweep(
        small_scenario(), vary, "fixed:9999", seeds=1, data=digits, cache=tmp_path
    )
    status = [row["status"] for row in found.table()]
    assert status == ["infeasible", "refused", "refused", "refused"]  # the others lack devices
    assert "network.gains lists 2 gains" in found.table()[1]["reason"]
    assert all(row["reason"] for row in found.table())


SETS = st.fixed_dictionaries(
    {"training.alpha": st.sampled_from([[0.1], [1.0, 0.5]])},
    optional={
        "devices.count": st.lists(st.sampled_from([3, 5]), min_size=1, max_size=2, unique=True),
        "plan.rounds": st.just(["theorem4", "uniform"]),
    },
)  # fmt: skip


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(vary=SETS, seeds=st.integers(1, 3))
def test_the_table_is_exactly_the_product(vary: dict[str, list[Any]], seeds: int) -> None:
    """With methods that no battery pays for, so that nothing is trained."""
    methods = ["fixed:9998", "fixed:9999"]
    found = joulemesh.sweep(
        small_scenario(), vary, methods, seeds=seeds, data=few_digits(), cache=swept_folder()
    )
    rows = [(*(row[name] for name in vary), row["method"], row["seed"]) for row in found.table()]
    assert len(rows) == len(set(rows))
    sizes = [len(values) for values in vary.values()]
    assert len(rows) == math.prod(sizes) * 2 * seeds
    assert {row[:-2] for row in rows} == {
        tuple(one.values[k] for one, k in zip(found.varied, point.at, strict=True))
        for point in found.points
    }


def test_a_folder_is_taken_up_and_is_intact(
    digits: Dataset, kept: Path, swept: Sweep, tmp_path: Path
) -> None:
    place = tmp_path / "study"

    def sweep(**changes: Any) -> Sweep:
        asked: dict[str, Any] = {"methods": METHODS, "seeds": SEEDS, **changes}
        vary = asked.pop("vary", {"training.learning_rate": [0.05, 0.1]})
        return joulemesh.sweep(small_scenario(), vary, data=digits, cache=kept, out=place, **asked)

    sweep()
    names = ["table.csv", "summary.csv", "figure.png", "figure.svg"]
    before = {name: (place / name).read_bytes() for name in names}
    assert verified(place).intact
    sweep()
    assert {name: (place / name).read_bytes() for name in names} == before
    # More of the same goes into the same folder; something else does not.
    sweep(vary={"training.learning_rate": [0.05, 0.1, 0.2]})
    assert verified(place).intact
    assert (place / "table.csv").read_bytes() != before["table.csv"]
    for changes, message in (
        ({}, "training.learning_rate had 0.2, which is not asked for now"),
        ({"equal": "time"}, "equal was batteries and is time"),
        ({"vary": {"training.alpha": [1.0]}}, "training.learning_rate was varied and not"),
    ):
        with pytest.raises(ScenarioError, match=message):
            sweep(**changes)
    assert verified(place).intact


def test_progress_goes_from_nothing_to_all(digits: Dataset, tmp_path: Path) -> None:
    told: list[Progress] = []
    joulemesh.sweep(
        small_scenario(),
        {"training.learning_rate": [0.05, 0.1]},
        METHODS,
        seeds=SEEDS,
        data=digits,
        cache=tmp_path,
        on_progress=told.append,
    )
    shares = [step.share for step in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert {step.position for step in told} == {0, 1}
