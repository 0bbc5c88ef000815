"""Comparisons in several worlds: each world is the single comparison; intervals are over worlds."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.data import Dataset
from joulemesh.models.curves import CURVES
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison, WorldsComparison, WorldsEntry
from joulemesh.study.record import Entry, Record, entry_of
from joulemesh.views.comparison import sentence

METHODS = ["adaptive", "fixed:1", "fixed:40"]
# Batteries that pay for some rounds everywhere, and for 40 in an iteration not in every world.
RANGED = {"budget.energy_j": (0.3, 1.5), "plan.iterations": 3, "plan.on_depletion": "leave"}


@pytest.fixture(scope="module")
def ranged(small: Scenario) -> Scenario:
    return small.override(RANGED)


@pytest.fixture(scope="module")
def found(ranged: Scenario, digits: Dataset, kept: Path) -> Comparison:
    return joulemesh.compare(ranged, METHODS, seeds=2, worlds=3, data=digits, cache=kept)


# A tiny example, by hand -----------------------------------------------------------------------


def entry(name: str, accuracies: list[float], joules: float = 1.0, end: int = 4) -> Entry:
    """Two evaluations of each seed: half of its accuracy half-way, and all of it at the end."""

    def record(accuracy: float) -> Record:
        if math.isnan(accuracy):
            return Record(diverged=3)
        curves = np.full((2, len(CURVES)), accuracy) * [[0.5], [1.0]]
        costs = np.array([joules / 2, joules])
        return Record(
            np.array([end // 2, end]), curves, curves[-1], costs, costs, np.full(2, joules / 2),
            np.full(4, joules),
        )  # fmt: skip

    records = {seed: record(accuracy) for seed, accuracy in enumerate(accuracies)}
    return entry_of(name, records, np.full(2, 10.0), (f"spends {joules:g} J",))


def study(seed: int, *entries: Entry) -> Comparison:
    return Comparison(Scenario(seed=seed), "energy", (0, 1), entries)


def combined(*worlds: Comparison, target: float | None = None) -> WorldsComparison:
    return WorldsComparison.of(Scenario(), worlds, target)


def test_the_interval_is_over_worlds_not_seeds() -> None:
    """Two worlds with means 0.4 and 0.6; within each, seeds differ by 0.02."""
    one = study(0, entry("a", [0.39, 0.41]), entry("b", [0.49, 0.50]))
    two = study(1, entry("a", [0.59, 0.61]), entry("b", [0.68, 0.71]))
    first, second = combined(one, two).table()
    # t(0.975, 1) = 12.7062; s of (0.4, 0.6) = 0.141421; over sqrt(2).
    assert first["accuracy"] == pytest.approx(0.5)
    assert first["accuracy_ci95"] == pytest.approx(12.7062 * 0.1, rel=1e-5)
    assert (first["worlds"], first["worlds_asked"], first["seeds"]) == (2, 2, 4)
    assert first["accuracy_difference"] is None
    # Differences by world: (0.10 + 0.09)/2 = 0.095 and (0.09 + 0.10)/2 = 0.095.
    assert second["accuracy_difference"] == pytest.approx(0.095)
    assert second["accuracy_difference_ci95"] == pytest.approx(0.0, abs=1e-12)
    # Four seeds taken for independent would have claimed t(0.975, 3) s/2 = 3.18 · 0.1159/2.
    assert first["accuracy_ci95"] > 6 * 3.1824 * 0.1159 / 2


def test_differences_are_paired_by_seed_within_a_world() -> None:
    nan = math.nan
    one = study(0, entry("a", [0.2, 0.8]), entry("b", [0.3, nan]))
    two = study(1, entry("a", [0.5, 0.5]), entry("b", [0.7, 0.7]))
    row = combined(one, two).table()[1]
    assert row["accuracy_difference"] == pytest.approx((0.1 + 0.2) / 2)  # not 0.3 − 0.5
    assert row["seeds"] == 3
    assert any("world 0: diverged: seed 1 in iteration 3" in note for note in row["notes"])


def test_what_the_target_took_is_one_figure_for_one_target() -> None:
    one = study(0, entry("a", [0.8, 0.8], joules=2.0), entry("b", [0.9, 0.9], joules=4.0))
    two = study(1, entry("a", [0.8, 0.8], joules=6.0), entry("b", [0.6, 0.6], joules=4.0))
    study_ = combined(one, two, target=0.8)
    first, second = study_.table()
    assert first["energy_to_target_j"] == pytest.approx((2.0 + 6.0) / 2)
    assert first["energy_to_target_j_ci95"] == pytest.approx(12.7062 * 2.0, rel=1e-5)
    # One world of the other never gets there: a mean of the rest would flatter it.
    assert second["energy_to_target_j"] is None
    assert second["energy_to_target_j_difference"] is None
    assert (second["reached"], second["seeds"]) == (2, 4)
    # 95 % of the best of all worlds together, 0.8, not of each world.
    assert combined(one, two).target == pytest.approx(0.95 * 0.8)
    rows = list(csv.DictReader(io.StringIO(study_.worlds_csv())))
    assert [(row["world"], row["method"], row["reached"]) for row in rows] == [
        ("0", "a", "2"), ("0", "b", "2"), ("1", "a", "2"), ("1", "b", "0"),
    ]  # fmt: skip


def test_worlds_without_a_run_are_counted_and_named() -> None:
    out = Entry.refused("b", "device 3 cannot pay", 2, 2)
    worlds = [
        study(0, entry("a", [0.5, 0.5]), out),
        study(1, entry("a", [0.6, 0.6]), entry("b", [0.8, 0.8])),
        study(2, entry("a", [0.7, 0.7]), entry("b", [0.8, 0.8])),
    ]
    row = combined(*worlds).table()[1]
    assert (row["worlds"], row["worlds_asked"]) == (2, 3)
    assert row["status"] == "ran in 2 of 3 worlds"
    assert row["accuracy"] == pytest.approx(0.8)
    assert row["accuracy_difference"] == pytest.approx((0.2 + 0.1) / 2)
    assert row["notes"][0] == (
        "infeasible in 1 of 3 worlds (world 0), and figures are of the others; "
        "world 0: device 3 cannot pay"
    )
    none = combined(*(study(k, entry("a", [0.5, 0.5]), out) for k in range(2)))
    lost = none.table()[1]
    assert (lost["status"], lost["worlds"], lost["accuracy"]) == ("infeasible", 0, None)
    assert "infeasible in 2 of 2 worlds (worlds 0, 1), and there are no figures" in lost["notes"][0]
    assert "ran in 2 of 3 worlds" not in sentence(combined(*worlds))


def test_curves_meet_at_equal_shares_of_their_runs() -> None:
    over = WorldsEntry.over([entry("a", [0.4, 0.4], 2.0, end=4), entry("a", [0.8, 0.8], 6.0, 8)])
    assert over.iteration.tolist() == [3, 6]
    np.testing.assert_allclose(over.curves["test_accuracy"], [[0.2, 0.4], [0.4, 0.8]])
    np.testing.assert_allclose(over.energy_j, [[1.0, 3.0], [2.0, 6.0]])
    np.testing.assert_allclose(over.final["test_accuracy"], [0.4, 0.8])
    assert (np.diff(over.iteration) > 0).all()


# Real comparisons ------------------------------------------------------------------------------


def test_each_world_is_the_comparison_with_its_seed(
    found: Comparison, ranged: Scenario, digits: Dataset, kept: Path, same: Any
) -> None:
    assert isinstance(found, WorldsComparison)
    assert found.seeds == (0, 1_000_000, 2_000_000)
    for seed, world in zip(found.seeds, found.worlds, strict=True):
        alone = joulemesh.compare(
            ranged.override({"seed": seed}), METHODS, seeds=2, data=digits, cache=kept
        )
        assert alone.computed == 0  # the very same runs
        assert (world.seeds, world.scenario.seed) == ((seed, seed + 1), seed)
        for one, other in zip(alone.entries, world.entries, strict=True):
            assert (one.status, one.remarks) == (other.status, other.remarks)
            assert same(one, other) or not one.ran
