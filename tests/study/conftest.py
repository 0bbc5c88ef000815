"""A small scenario on a few digits, compared once for all tests that only look at the outcome."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.data import Dataset
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.training.jax import engine as learners
from joulemesh.training.jax.engine import Engine
from tests.comparisons import Counting, few_digits, kept_folder, seven_methods, small_scenario


@pytest.fixture(scope="session")
def small() -> Scenario:
    """Five devices on a ring."""
    return small_scenario()


@pytest.fixture(scope="session")
def digits() -> Dataset:
    """A few digits."""
    return few_digits()


@pytest.fixture(scope="session")
def kept() -> Path:
    """Where the session's runs are kept; tests that spoil it take a copy."""
    return kept_folder()


@pytest.fixture(scope="session")
def seven() -> tuple[Comparison, list[Engine]]:
    """Seven methods at two seeds on equal batteries, and the engines that it took."""
    return seven_methods()


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[Engine]:
    """Every engine that a test makes."""
    monkeypatch.setattr(learners, "Engine", Counting)
    made: list[Engine] = []
    monkeypatch.setattr(Counting, "made", made)
    return made


@pytest.fixture
def same() -> Callable[[Any, Any], bool]:
    """Do two entries hold the same bits?"""

    def same(one: Any, other: Any, seeds: slice = slice(None)) -> bool:
        curves = all(
            np.array_equal(one.curves[k][:, seeds], other.curves[k][:, seeds], equal_nan=True)
            for k in one.curves
        )
        costs = np.array_equal(one.energy_j[:, seeds], other.energy_j[:, seeds], equal_nan=True)
        return curves and costs and np.array_equal(one.spent_j[seeds], other.spent_j[seeds])

    return same
