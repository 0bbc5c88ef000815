"""What it took one run to reach a target: by hand, and as a comparison would say it."""

from __future__ import annotations

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.study.runs import to_target
from joulemesh.views.words import target_tile, target_words

WHEN = np.array([10, 20, 30])
ENERGY, TIME = np.array([100.0, 200.0, 300.0]), np.array([1.0, 2.0, 3.0])
CURVES = np.array([[0.40, 0.50], [0.60, 0.80], [0.80, 0.80]])


def test_means_over_seeds_by_hand() -> None:
    """Seed 0 is at 0.7 halfway between 20 and 30, seed 1 two thirds of the way from 10 to 20."""
    found = to_target(WHEN, CURVES, ENERGY, TIME, 0.7)
    assert found["reached"] == 2
    assert found["energy_to_target_j"] == pytest.approx((250 + 170) / 2)  # the 17th iteration
    assert found["time_to_target_s"] == pytest.approx((2.5 + 1.7) / 2)
    # Each lies between two evaluations: seed 0 in 200..300, seed 1 in 100..200.
    assert found["energy_to_target_j_error"] == pytest.approx((50 + 70) / 2)
    spread = abs(250 - 170) / np.sqrt(2) / np.sqrt(2)
    assert found["energy_to_target_j_ci95"] == pytest.approx(12.7062 * spread, rel=1e-4)


def test_the_target_is_95_per_cent_of_the_final_accuracy_unless_given() -> None:
    found = to_target(WHEN, CURVES, ENERGY, TIME)
    assert found["target"] == pytest.approx(0.95 * 0.8)
    assert not found["target_asked"]
    assert found["target_words"] == (
        "test accuracy 0.7600 of the mean model (95 % of the final accuracy)"
    )


def test_a_mean_needs_all_seeds() -> None:
    found = to_target(WHEN, np.array([[0.4, 0.5], [0.6, 0.9], [0.8, 0.9]]), ENERGY, TIME, 0.85)
    assert found["reached"] == 1
    assert found["energy_to_target_j"] is None
    assert target_words(found, 2).endswith("(as asked): 1 of 2 seeds")
    assert target_tile(found, 2) == ("energy to 85.0 % accuracy", "1 of 2 seeds", "")


@pytest.mark.parametrize("target", [0.0, -0.1, 1.01, 90.0, float("nan")])
def test_what_is_no_accuracy_is_refused(target: float) -> None:
    with pytest.raises(ScenarioError, match="is not an accuracy"):
        to_target(WHEN, CURVES, ENERGY, TIME, target)
