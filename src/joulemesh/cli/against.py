"""`joulemesh plan FILE --against OTHER`: two plans, and what differs between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from joulemesh.cli.common import read_scenario
from joulemesh.scenario import Scenario

__all__ = ["show_difference"]


def show_difference(scenario: Scenario, against: Path, *, as_json: bool) -> None:
    """Print what differs between the plan of another file and that of a scenario.

    Args:
        scenario: as it is now.
        against: the file of the other, which stands first.
        as_json: print it as JSON.

    Raises:
        JoulemeshError: one of them cannot be planned.
    """
    from joulemesh.planning.static import plan
    from joulemesh.studio.difference import plan_difference
    from joulemesh.studio.document import document

    before = read_scenario(against, None)
    for one in (before, scenario):
        plan(one)  # what cannot be planned is refused as everywhere
    found = plan_difference(document(before), document(scenario))
    if as_json:
        typer.echo(json.dumps(found))
        return
    from joulemesh.views.terminal import Column, open_console, show_table

    columns = [Column("", figures=False), Column(str(against)), Column("now"), Column("change")]
    show_table(open_console(), columns, _rows(found))


def _rows(found: dict[str, Any]) -> list[list[str]]:
    """Fields, figures and what binds, one line each."""
    rows = [[one["field"], one["before"], one["now"], ""] for one in found["fields"]]
    for one in found["figures"]:
        change = one["change"]
        words = "" if change is None else "same" if change == 0 else f"{change:+g} %"
        rows.append([one["name"], one["before"], one["now"], words])
    for kind, (before, now) in found["bound"].items():
        words = "same" if before == now else f"{now - before:+d}"
        rows.append([f"devices bound by: {kind}", str(before), str(now), words])
    return rows
