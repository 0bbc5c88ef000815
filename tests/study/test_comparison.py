"""The table of a comparison, on runs made by hand."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any

import numpy as np
import pytest

from joulemesh.models.curves import CURVES
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Entry, Record, entry_of

T2 = 4.302653 / math.sqrt(3)  # half-width per standard deviation, three seeds
BATTERY = np.array([10.0, 20.0])


def run(accuracies: list[float], energy: float = 1.0, devices: float = 0.5) -> Record:
    """A run evaluated in iterations 10, 20, ...; each costs ``energy`` J and half a second."""
    count = len(accuracies)
    curves = np.zeros((count, len(CURVES)))
    curves[:, CURVES.index("test_accuracy")] = accuracies
    curves[:, CURVES.index("device_accuracy_mean")] = devices
    done = np.arange(1, count + 1)
    ends = done.astype(np.float64)
    return Record(
        10 * done,
        curves,
        curves[-1],
        energy * ends,
        0.5 * ends,
        np.array([0.25, 0.75]) * energy * count,
        np.array([0.9 * energy * count, 0.1 * energy * count, 0.0, 800.0]),
    )


def study(*entries: Entry, **fields: Any) -> Comparison:
    return Comparison(Scenario(), "energy", (4, 5, 6), entries, **fields)


def entry(name: str, *records: Record, notes: tuple[str, ...] = ()) -> Entry:
    return entry_of(name, dict(zip((4, 5, 6), records, strict=True)), BATTERY, notes)


FIRST = entry("first", run([0.5, 0.70]), run([0.6, 0.80]), run([0.7, 0.90]))
SECOND = entry(
    "second", run([0.4, 0.71], 2.0), run([0.5, 0.82], 2.0), run([0.95, 0.93], 3.0), notes=("slow",)
)
REFUSED = Entry.refused("third", "device 1 cannot pay", 3, 2)


def test_the_table_by_hand() -> None:
    one, two, three = study(FIRST, SECOND, REFUSED, wanted=0.6).table()
    assert one["accuracy"] == pytest.approx(0.8)
    assert one["accuracy_ci95"] == pytest.approx(0.1 * T2, rel=1e-6)
    assert one["accuracy_difference"] is None
    assert (one["energy_j"], one["time_s"], one["iterations"]) == (2.0, 1.0, 20)
    assert one["energy_j_ci95"] == 0.0
    assert one["leftover_j"] == 28.0
    spent = [one["compute_j"], one["exchange_j"], one["server_j"], one["bits"]]
    assert spent == pytest.approx([1.8, 0.2, 0.0, 800.0])
    # To 0.6: seed 4 half of the way between 1 and 2 J, seeds 5 and 6 at the first evaluation.
    assert one["energy_to_target_j"] == pytest.approx(3.5 / 3)
    assert one["time_to_target_s"] == pytest.approx(1.75 / 3)
    # Half a joule to either side for seed 4; all of the first joule for seeds 5 and 6.
    assert one["energy_to_target_j_error"] == pytest.approx(2.5 / 3)
    assert one["time_to_target_s_error"] == pytest.approx(1.25 / 3)
    assert one["energy_to_target_j_difference_error"] is None
    assert two["accuracy_difference"] == pytest.approx(0.02)
    assert two["accuracy_difference_ci95"] == pytest.approx(0.01 * T2, rel=1e-6)
    # Second: 7, 4 and 10 iterations of ten (the ends of those that cross 0.6) after 2, 2 and 0 J.
    taken = np.array([2 + 2 * 0.7, 2 + 2 * 0.4, 3.0]) - np.array([1.5, 1, 1])
    assert two["energy_to_target_j"] == pytest.approx(9.2 / 3)
    assert two["energy_to_target_j_difference"] == pytest.approx(taken.mean())
    assert two["energy_to_target_j_difference_ci95"] == pytest.approx(
        np.std(taken, ddof=1) * T2, rel=1e-6
    )
    # 1.4 (of 2 to 3.4), 1.2 (of 2.8 to 4) and 3 J (from 0) are left open; and the first's 2.5 J.
    assert two["energy_to_target_j_error"] == pytest.approx(5.6 / 3)
    assert two["energy_to_target_j_difference_error"] == pytest.approx(8.1 / 3)
    assert two["notes"] == ["slow"]
    assert (three["status"], three["accuracy"], three["iterations"]) == ("infeasible", None, None)
    assert three["notes"] == ["device 1 cannot pay"]


def test_the_target_is_95_percent_of_the_best_unless_given() -> None:
    found = study(FIRST, SECOND, REFUSED)
    assert found.target == pytest.approx(0.95 * 0.82)
    assert "95 % of the best" in found.target_words
    assert study(FIRST, wanted=0.75).target == 0.75
    assert "as asked" in study(FIRST, wanted=0.75).target_words


def test_a_target_that_some_seeds_miss_has_no_mean() -> None:
    row = study(FIRST, wanted=0.85).table()[0]
    assert (row["reached"], row["seeds"]) == (1, 3)
    assert row["energy_to_target_j"] is None
    assert row["time_to_target_s_ci95"] is None
    assert row["time_to_target_s_error"] is None
    high = entry("high", run([0.5, 0.9]), run([0.5, 0.9]), run([0.5, 0.9]))
    row = study(FIRST, high, wanted=0.85).table()[1]
    assert row["energy_to_target_j"] == pytest.approx(1.9)
    assert row["energy_to_target_j_difference"] is None  # the first is at the target once in three
    assert row["accuracy_difference"] == pytest.approx(0.1)


def test_a_seed_that_diverged_is_left_out_and_named() -> None:
    lost = entry("lost", run([0.5, 0.9]), Record(diverged=17), run([0.5, 0.7]))
    row = study(FIRST, lost, wanted=0.6).table()[1]
    assert (row["status"], row["seeds"], row["reached"]) == ("diverged", 2, 2)
    assert row["accuracy"] == pytest.approx(0.8)
    assert row["accuracy_difference"] == pytest.approx((0.2 - 0.2) / 2)  # seeds 4 and 6 only
    assert row["notes"] == ["diverged: seed 5 in iteration 17; figures are of the other seeds"]
    assert row["energy_to_target_j"] == pytest.approx((1.3 + 1.5) / 2)


def test_a_method_of_which_all_seeds_diverged() -> None:
    gone = entry("gone", *[Record(diverged=3)] * 3)
    found = study(gone, FIRST)
    one, two = found.table()
    assert (one["status"], one["accuracy"], one["seeds"]) == ("diverged", None, 0)
    assert two["accuracy_difference"] is None
    assert found.target == pytest.approx(0.95 * 0.8)
    assert math.isnan(study(gone, REFUSED).target)
    assert json.loads(json.dumps(study(gone).summary(), allow_nan=False))["target"] is None


def test_one_seed_has_figures_without_intervals() -> None:
    alone = Comparison(Scenario(), "time", (4,), (entry_of("a", {4: run([0.5, 0.7])}, BATTERY),))
    row = alone.table()[0]
    assert (row["accuracy"], row["accuracy_ci95"]) == (pytest.approx(0.7), None)


def test_csv_has_a_line_for_every_evaluation_and_exact_numbers(tmp_path: Any) -> None:
    lost = entry("lost", run([0.5, 0.9]), Record(diverged=17), run([0.5, 1 / 3]))
    found = study(FIRST, lost, REFUSED)
    found.to_csv(tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert len(rows) == 2 * 3 + 2 * 2
    assert {(row["method"], row["seed"]) for row in rows} == {
        ("first", "4"), ("first", "5"), ("first", "6"), ("lost", "4"), ("lost", "6"),
    }  # fmt: skip
    assert float(rows[-1]["test_accuracy"]) == 1 / 3
    table = list(csv.DictReader(io.StringIO(found.table_csv())))
    assert [row["method"] for row in table] == ["first", "lost", "third"]
    assert float(table[0]["accuracy"]) == pytest.approx(0.8)
    assert table[2]["notes"] == "device 1 cannot pay"
