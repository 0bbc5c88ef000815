"""Every remedy of a refusal and every advice of a plan, followed as printed: it comes true."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tools.followed import Followed, drawn, follow, table


def followed(scenarios: int, seed: int, folder: Path) -> list[Followed]:
    """What was offered in some random scenarios, all of it true."""
    found = [one for scenario in drawn(scenarios, seed, folder) for one in follow(scenario)]
    wrong = [f"{one.name}: {one.detail}" for one in found if not one.true]
    assert not wrong, "\n".join([table(found), *wrong])
    return found


def test_what_is_advised_comes_true(tmp_path: Path) -> None:
    found = followed(40, 1, tmp_path)
    kinds = Counter(one.name.partition(":")[0] for one in found)
    assert min(kinds["remedy"], kinds["advice"]) >= 10


@pytest.mark.slow
def test_what_is_advised_comes_true_in_500_scenarios(tmp_path: Path) -> None:
    found = followed(500, 0, tmp_path)
    names = {one.name for one in found}
    assert {
        "advice: scale budget.energy_j",
        "advice: set budget.deadline_s",
        "advice: set budget.total_s",
        "advice: set plan.aggregation",
        "advice: set plan.iterations",
        "advice: set plan.rounds",
        "remedy: lower plan.iterations",
        "remedy: raise budget.deadline_s",
        "remedy: raise budget.energy_j",
        "remedy: raise budget.total_s",
        "remedy: set plan.on_depletion",
    } <= names
