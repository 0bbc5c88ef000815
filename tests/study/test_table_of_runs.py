"""The table of runs: means and paired differences by hand, and the same as a comparison's table."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.study.runs import Runs, Table
from joulemesh.study.statistics import estimate
from tests.views.publication.studies import study

FIGURES = {
    ("a", 0, 0): 0.9, ("a", 0, 1): 0.8, ("a", 1, 0): 0.7, ("a", 1, 1): None,
    ("b", 0, 0): 0.6, ("b", 0, 1): 0.7, ("b", 1, 0): 0.6, ("b", 1, 1): 0.1,
}  # fmt: skip
WORLDS = Runs(
    tuple(
        {"world": world, "method": method, "seed": seed, "accuracy": value, "energy_j": 2.0 - world}
        for (method, world, seed), value in FIGURES.items()
    ),
    keys=("world", "method", "seed"),
)


def test_worlds_are_what_is_counted() -> None:
    (row,) = WORLDS.paired(against="b").rows
    # World 0: (0.3 + 0.1) / 2; world 1: seed 0 alone, since the other has no figure.
    expected = estimate(np.array([0.2, 0.1]))
    assert row == {
        "method": "a",
        "difference": pytest.approx(expected.mean),
        "difference_ci95": pytest.approx(expected.half),
    }
    assert WORLDS.best()["accuracy"] == pytest.approx((0.85 + 0.7) / 2)


def test_without_worlds_seeds_are_counted_and_less_of_a_cost_is_better() -> None:
    rows = [
        {"method": method, "seed": seed, "accuracy": 0.5, "energy_j": joules + seed}
        for method, joules in (("a", 3.0), ("b", 1.0))
        for seed in (0, 1, 2)
    ]
    runs = Runs(tuple(rows))
    assert runs.best("energy_j")["method"] == "b"
    (row,) = runs.paired(against="a", figure="energy_j").rows
    assert (row["difference"], row["difference_ci95"]) == (-2.0, 0.0)


def test_differences_are_taken_within_the_same_setting() -> None:
    rows = [
        {"devices.count": n, "method": method, "seed": 0, "accuracy": n / 100 + (method == "a") / n}
        for n in (10, 20)
        for method in ("a", "b")
    ]
    runs = Runs(tuple(rows), keys=("devices.count", "method", "seed"))
    found = {row["devices.count"]: row["difference"] for row in runs.paired(against="b").rows}
    assert found == {10: pytest.approx(0.1), 20: pytest.approx(0.05)}
    assert (runs.best()["devices.count"], runs.best()["method"]) == (20, "a")


def test_a_comparisons_table_has_the_same_differences() -> None:
    compared = study({"a": (0.9, 0.91, 0.93), "b": (0.88, 0.9, 0.9), "c": (0.7, 0.72, math.nan)})
    table = {row["method"]: row for row in compared.table()}
    for row in compared.runs.paired(against="a").rows:
        mine = table[row["method"]]
        assert row["difference"] == mine["accuracy_difference"]
        assert row["difference_ci95"] == mine["accuracy_difference_ci95"]


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"'c' is not among these runs: they have a, b"):
        WORLDS.paired(against="c")
    with pytest.raises(ScenarioError, match=r"'loss' is no column: use one of world, method"):
        WORLDS.best("loss")
    nothing = Runs(({"method": "a", "seed": 0, "accuracy": None},))
    with pytest.raises(ScenarioError, match="no run has a figure"):
        nothing.best()


def test_a_table_without_rows_has_its_header() -> None:
    assert Table((), ("method", "seed")).to_csv() == "method,seed\n"
    rows = list(csv.DictReader(io.StringIO(Table.of([{"a": 1, "n": ["x", "y"]}, {"b": 2}], last=("n",)).to_csv())))  # fmt: skip # noqa: E501
    assert rows == [{"a": "1", "b": "", "n": "x; y"}, {"a": "", "b": "2", "n": ""}]
