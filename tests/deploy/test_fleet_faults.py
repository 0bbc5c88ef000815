"""Real fleets with a fault each: a sample of ``python -m benchmarks.fleet_faults 100``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.fleet_faults import KINDS, good, tried, wanted

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="signals")]


@pytest.mark.parametrize("seed", [36, 67, 68, 69, 34, 71], ids=lambda seed: wanted(seed).kind)
def test_a_fleet_ends_or_stops_and_says_why(seed: int, tmp_path: Path) -> None:
    came = tried(wanted(seed), tmp_path)
    if "skipped" in came:
        pytest.skip(came["skipped"])
    assert good(came), came
    assert came["complete"] >= 4, came  # of five: all whom nothing has befallen


def test_every_kind_of_fault_comes_with_budgets_that_bind_and_that_do_not() -> None:
    drawn = {(one.kind, one.binds) for one in map(wanted, range(100))}
    assert drawn == {(kind, binds) for kind in KINDS for binds in (False, True)}
    assert {wanted(seed).device for seed in range(100)} == set(range(5))
