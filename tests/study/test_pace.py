"""How long a sweep will take: each method by its own pace, each program compiled once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from joulemesh.scenario import Scenario
from joulemesh.study import sweep
from joulemesh.study.sweep import Outlook, Pace, ask, seconds_left, timed

ASKED = ask(
    Scenario(),
    {"devices.count": "4,8", "training.alpha": "0.1,1"},
    "spread,adaptive",
    "batteries",
    2,
)
SPREAD, ADAPTIVE = Pace(compile_s=7, step_s=1e-3), Pace(compile_s=0, step_s=1e-4)


def outlooks(*steps: dict[str, int]) -> list[Outlook]:
    return [
        Outlook(one, runs=4, missing=4, steps_of=given)
        for one, given in zip(ASKED.combinations, steps, strict=False)
    ]


def test_methods_have_paces_of_their_own_and_share_what_is_compiled() -> None:
    paces = {"spread": SPREAD, "adaptive": ADAPTIVE}
    both = {"spread": 1000, "adaptive": 50_000}
    # By hand: two shapes, of 4 and of 8 devices, compiled for spread alone; 4 x (1 s + 5 s).
    assert seconds_left(outlooks(both, both, both, both), paces) == pytest.approx(14 + 24)
    # What is kept is neither compiled nor trained.
    kept = {"spread": 0, "adaptive": 50_000}
    assert seconds_left(outlooks(kept, kept, both), paces) == pytest.approx(7 + 1 + 15)
    assert seconds_left([], {}) == 0


def test_every_method_is_timed_once_where_it_first_has_runs_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[str, int]] = []

    def prepared(asked: object, one: Any, options: object) -> Any:
        names = ("spread", "adaptive")
        made = [SimpleNamespace(name=name, number=one.number) for name in names]
        return SimpleNamespace(ready=["it cannot run", made[1]] if one.number == 0 else made)

    def timed_one(made: Any, ready: object) -> Pace:
        calls.append((made.name, made.number))
        return SPREAD

    monkeypatch.setattr(sweep, "prepared", prepared)
    monkeypatch.setattr(sweep, "_pace", timed_one)
    ahead = outlooks({"adaptive": 5}, {"spread": 5, "adaptive": 5}, {"spread": 5})
    assert set(timed(ASKED, ahead)) == {"spread", "adaptive"}
    assert calls == [("adaptive", 0), ("spread", 1)]
    assert timed(ASKED, outlooks({"spread": 0})) == {}
