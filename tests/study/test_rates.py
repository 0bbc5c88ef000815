"""Each method's own learning rate: equal effort, other seeds, the best of one grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.scenario import Scenario
from joulemesh.study.compare import rates_of, tuning_seeds
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import TunedRate
from joulemesh.training.jax.engine import Engine
from tests.compiled import compiled_programs

GRID = (0.01, 0.3, 1e38)  # the last one diverges
METHODS = ("adaptive", "fixed:1", "d-psgd")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this module's runs are kept."""
    return tmp_path_factory.mktemp("rates")


def tuned(scenario: Scenario, data: Dataset, cache: Path, **options: object) -> Comparison:
    methods = options.pop("methods", METHODS)
    given = {"tune_lr": GRID, "data": data, "cache": cache, **options}
    return joulemesh.compare(scenario, methods, "batteries", (0, 1), **given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_all_methods_are_tried_alike(
    small: Scenario, digits: Dataset, home: Path, engines: list[Engine]
) -> None:
    found = tuned(small, digits, home)
    rates = [(engine.options.learning_rate, engine.seeds) for engine in engines]
    trial = [(rate, seeds) for rate, seeds in rates if 500_000 in seeds]
    # Three methods at three rates, all tuning seeds of each together. A rate that diverges is
    # tried once more without the seed at which it did so first.
    assert [pair for pair in trial if pair[0] < 1] == [
        (rate, (500_000, 500_001)) for _ in METHODS for rate in GRID[:2]
    ]
    assert {rate for rate, seeds in rates if seeds == (0, 1)} == {0.3}
    assert found.computed == len(METHODS) * (len(GRID) * 2 + 2)
    assert found.tuned_on == (500_000, 500_001)
    assert not set(found.tuned_on) & set(found.seeds)
    for entry in found.entries:
        assert entry.tuned is not None
        assert entry.learning_rate == entry.tuned.chosen == 0.3
        assert np.isnan(entry.tuned.accuracy[2]).all()  # diverged rates lose
        assert entry.tuned.accuracy[1].mean() > entry.tuned.accuracy[0].mean()


def test_a_rate_needs_no_program_of_its_own(
    small: Scenario, digits: Dataset, tmp_path: Path, engines: list[Engine]
) -> None:
    tuned(small, digits, tmp_path, methods=["d-psgd"], tune_lr=[0.1, 0.2, 0.3])
    assert len(engines) == 4
    assert len({id(engine.programs) for engine in engines}) == 1
    assert compiled_programs(engines[0].programs.watched) == 1


def test_what_is_chosen_is_what_that_rate_gives(
    small: Scenario, digits: Dataset, home: Path, tmp_path: Path
) -> None:
    found = tuned(small, digits, home)
    for rate in GRID[:2]:
        plain = joulemesh.compare(
            small.override({"training.learning_rate": rate}),
            METHODS,
            "batteries",
            found.tuned_on,
            data=digits,
            cache=tmp_path,
        )
        for ours, theirs in zip(found.entries, plain.entries, strict=True):
            assert ours.tuned is not None
            row = ours.tuned.accuracy[GRID.index(rate)]
            np.testing.assert_array_equal(row, theirs.final["test_accuracy"])
    plain = joulemesh.compare(
        small.override({"training.learning_rate": 0.3}),
        METHODS,
        "batteries",
        (0, 1),
        data=digits,
        cache=tmp_path,
    )
    for ours, theirs in zip(found.entries, plain.entries, strict=True):
        np.testing.assert_array_equal(ours.final["test_accuracy"], theirs.final["test_accuracy"])
        np.testing.assert_array_equal(ours.curves["test_loss"], theirs.curves["test_loss"])


def test_all_rates_diverge(small: Scenario, digits: Dataset, tmp_path: Path) -> None:
    found = tuned(small, digits, tmp_path, methods=["fixed:1"], tune_lr=[1e37, 1e38])
    assert found.entries[0].learning_rate == 1e37
    assert any("diverged at every learning rate" in note for note in found.entries[0].remarks)


def test_the_choice() -> None:
    tried = TunedRate((0.1, 0.2, 0.4), (7, 8), np.array([[0.5, 0.6], [0.8, 0.7], [0.7, 0.8]]))
    assert tried.chosen == 0.2
    assert "beyond" not in tried.notes[0]
    edge = TunedRate((0.1, 0.2), (7,), np.array([[0.5], [0.8]]))
    assert "0.2, the best of 2 from 0.1 to 0.2, tried on 1 seed" in edge.notes[0]
    assert "the largest of them, so that a better one may lie beyond" in edge.notes[0]
    lost = TunedRate((0.1, 0.2), (7, 8), np.array([[0.5, 0.5], [0.9, np.nan]]))
    assert lost.chosen == 0.1
    assert [line[2] for line in lost.lines()] == [0.5, 0.5, 0.9, ""]


@pytest.mark.parametrize("wanted", ["", "fast", "0.1,0.1", "-1", "0", "inf", [], [0.1, None]])
def test_bad_grids_are_refused(wanted: object) -> None:
    with pytest.raises(ScenarioError, match="the grid of learning rates is") as refused:
        rates_of(Scenario(), wanted)  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)


def test_tuning_seeds_avoid_those_of_the_result() -> None:
    scenario = Scenario(seed=3)
    assert tuning_seeds(scenario, 2, (3, 4)) == (500_003, 500_004)
    assert tuning_seeds(scenario, 2, (500_003, 500_005)) == (500_004, 500_006)
    with pytest.raises(ScenarioError, match="tune_seeds = 0"):
        tuning_seeds(scenario, 0, (1,))
