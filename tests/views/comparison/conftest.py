"""The comparison that the tests of its views look at."""

from __future__ import annotations

import pytest

from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.training.jax.engine import Engine
from tests.comparisons import seven_methods, small_scenario


@pytest.fixture(scope="session")
def small() -> Scenario:
    """Five devices on a ring."""
    return small_scenario()


@pytest.fixture(scope="session")
def seven() -> tuple[Comparison, list[Engine]]:
    """Seven methods at two seeds on equal batteries, and the engines that it took."""
    return seven_methods()
