"""A plan's page in the terminal says which medium its exchanges are priced in."""

from __future__ import annotations

import io

from rich.console import Console

import joulemesh
from joulemesh.views.console import show_plan


def shown(changes: dict[str, object]) -> str:
    scenario = joulemesh.Scenario().override({"devices.count": 4, "plan.iterations": 2, **changes})
    console = Console(width=200, file=io.StringIO())
    show_plan(joulemesh.plan(scenario), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_medium_is_named_where_it_is_not_the_default() -> None:
    assert not [line for line in shown({}).splitlines() if line.startswith("medium")]
    page = shown({"network.medium": "shared", "network.interference_m": 80.0})
    assert "take different slots; interference within 80 m\n" in page
    assert "one transmission serves all neighbours" in shown({"network.broadcast": True})
