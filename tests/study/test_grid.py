"""The common grids of joules and seconds, and what they make of energy and time to target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.data import Dataset
from joulemesh.ledger import Ledger
from joulemesh.methods import Setting, build
from joulemesh.scenario import Scenario
from joulemesh.study import contest
from joulemesh.study.compare import DEFAULT_METHODS
from joulemesh.study.comparison import Comparison
from joulemesh.study.contest import RATIO, evaluations, grid
from joulemesh.study.runs import figures_of
from joulemesh.study.statistics import Reached


@settings(deadline=None, max_examples=200)
@given(
    st.floats(1e-6, 1e6), st.integers(1, 500), st.floats(1e-9, 1e9), st.floats(1.0, 1e12)
)  # fmt: skip
def test_a_grid_is_fine_everywhere(step: float, steps: int, low: float, times: float) -> None:
    high = low * times
    points = grid(step, steps, low, high)
    assert points[0] <= low * (1 + 1e-9)
    assert points[-1] <= high
    assert (np.diff(points) > 0).all()
    inside = np.concatenate([points, [high]])
    assert (inside[1:] / inside[:-1] <= RATIO * (1 + 1e-9)).all()
    even = points[(points >= step * 20) & (points <= step * steps)]
    np.testing.assert_allclose(np.diff(even), step, rtol=1e-6)  # as dense as the plan's own


def ledger(joules: Any, seconds: Any) -> Ledger:
    each = np.asarray(joules, float)
    return Ledger.of((len(each), 1), compute_j=each[:, None], seconds=seconds)


def test_every_grid_point_of_joules_and_of_seconds_is_met(small: Scenario) -> None:
    setting = Setting(small)
    n = 20_000
    rng = np.random.default_rng(0)
    made = ledger(rng.uniform(1e-4, 3e-4, n), rng.uniform(1e-5, 9e-5, n))
    at = np.array(evaluations(setting, made))
    assert (at[0], at[-1]) == (1, n)
    # No two evaluations are further apart than the ratio, unless they are of neighbours.
    for each in (made.energy_j.sum(axis=1), made.seconds):
        so_far = np.cumsum(each)
        later = so_far[at[1:] - 1] / so_far[at[:-1] - 1]
        slack = 1 + 2 * each.max() / so_far[at[:-1] - 1]
        assert (later <= RATIO * slack).all()
    assert len(at) < 16 * np.log2(n) + 2 * 8 / 2 + 2 / (RATIO - 1)  # and there are few of them


def test_what_costs_nothing_is_evaluated_at_the_end(small: Scenario) -> None:
    free = ledger(np.zeros(50), np.zeros(50))
    assert evaluations(Setting(small), free) == (50,)


# Against an evaluation of every iteration ---------------------------------------------------------


def every_iteration(setting: Setting, made: Ledger) -> tuple[int, ...]:
    return tuple(range(1, made.iterations + 1))


def seen_on_the_grid(dense: Comparison, scenario: Scenario) -> Comparison:
    """What is left of a comparison if methods are evaluated on the grids only."""
    setting = Setting(scenario, dense.equal, dense.seeds)
    entries = []
    for entry in dense.entries:
        at = np.array(evaluations(setting, build(entry.name, setting).reserve)) - 1
        entries.append(
            replace(
                entry,
                iteration=entry.iteration[at],
                curves={name: curve[at] for name, curve in entry.curves.items()},
                energy_j=entry.energy_j[at],
                time_s=entry.time_s[at],
                samples=entry.samples[at],
            )
        )
    return replace(dense, entries=tuple(entries))


TO_TARGET = ("energy_to_target_j", "time_to_target_s")


def assert_contained(found: Comparison, dense: Comparison) -> None:
    for entry, true in zip(found.entries, dense.entries, strict=True):
        assert len(true.iteration) == true.iteration[-1]
        np.testing.assert_array_equal(  # evaluations change nothing that is learned
            entry.final["test_accuracy"], true.final["test_accuracy"]
        )
        brackets, exact = (figures_of(one, found.target) for one in (entry, true))
        for name in TO_TARGET:
            bracket, known = brackets[name], exact[name]
            assert isinstance(bracket, Reached)
            assert isinstance(known, Reached)
            figure = known.value
            assert np.isfinite(figure).all(), entry.name
            assert (bracket.low <= figure * (1 + 1e-12)).all(), entry.name
            assert (figure <= bracket.high * (1 + 1e-12)).all(), entry.name
    for row, other in zip(found.table(), dense.table(), strict=True):
        for name in TO_TARGET:
            assert other[f"{name}_error"] == 0
            assert abs(row[name] - other[name]) <= row[f"{name}_error"] + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.41, 0.59, 0.69])
def test_the_bracket_of_every_method_contains_the_dense_answer(
    dense_seven: tuple[Comparison, Scenario], target: float
) -> None:
    dense = replace(dense_seven[0], wanted=target)
    assert_contained(seen_on_the_grid(dense, dense_seven[1]), dense)


@pytest.fixture(scope="module")
def dense_seven(
    small: Scenario, digits: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Comparison, Scenario]:
    """All methods, evaluated after every iteration."""
    rich = small.override({"budget.energy_j": 15.0, "training.learning_rate": 0.002})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contest, "evaluations", every_iteration)
        found = joulemesh.compare(
            rich, DEFAULT_METHODS, "energy", (0, 1), data=digits,
            cache=tmp_path_factory.mktemp("dense"),
        )  # fmt: skip
    return found, rich
