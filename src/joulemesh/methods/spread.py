"""Rounds spread over many short iterations, each of which ends with an exact average.

Joulemesh's own plan. Every device trains at the rate that its battery and the time pay for, which
may be less than one round per iteration: then it averages and relays without training in some.
So a weak battery no longer bounds how often all devices average, which matters more than how many
rounds they run in between (docs: comparison).
"""

from __future__ import annotations

__all__: list[str] = []

from collections.abc import Mapping
from typing import Any

from joulemesh.methods.adaptive import contender_of
from joulemesh.methods.base import Contender
from joulemesh.methods.parameters import entry, whole
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Setting
from joulemesh.registries import SCHEMES


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    iterations: int | str = "auto"
    if setting.scenario.origin("plan.iterations").kind == "given":
        iterations = setting.scenario.plan.iterations
    if setting.equal == "iterations":
        iterations = setting.iterations
    plan = setting.plan(
        total_s=setting.limit_s if setting.limits_time else None,
        rounds="spread",
        iterations=given.get("iterations", iterations),
        aggregation=given.get("scheme", "auto"),
    )
    return contender_of(name, setting, plan)


register(
    "spread",
    _build,
    description="Every device trains at the rate that its battery and the time pay for, in some "
    "iterations not at all, and all average exactly after each of many short iterations.",
    parameters={
        "iterations": whole(meaning="number of iterations", default="as given, else auto"),
        "scheme": entry(SCHEMES, meaning="aggregation scheme", default="the best for the budgets"),
    },
    main="iterations",
)
