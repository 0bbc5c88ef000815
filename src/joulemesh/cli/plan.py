"""`joulemesh plan`: what would be done, and what it would cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)
from joulemesh.printable import say

__all__ = ["plan"]


def plan(
    file: FileArgument = None,
    preset: PresetOption = "default",
    changes: SetOption = None,
    load: LoadOption = None,
    json: JsonOption = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the plan: .npz (all arrays), .json (everything), or .csv (one row for each "
            "iteration and device).",
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="Draw map, rounds and energy (.png, .svg, .pdf)."),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline",
            help="Write the time line of one iteration: who trains, sends and receives when, for "
            "how many joules (.csv, .json).",
        ),
    ] = None,
    iteration: Annotated[
        int, typer.Option("--iteration", help="The iteration of --timeline, from 1.")
    ] = 1,
) -> None:
    """Plan a scenario: scheme, iterations, everybody's rounds, and a ledger that adds up."""
    from joulemesh.planning.export import check_format
    from joulemesh.planning.gantt import check_suffix
    from joulemesh.planning.static import plan as make_plan

    if out is not None:
        check_format(out)
    if timeline is not None:
        check_suffix(timeline)
    made = make_plan(read_scenario(file, preset, changes, load))
    chart = None if timeline is None else made.gantt(iteration)
    if out is not None:
        made.save(out)
    if chart is not None and timeline is not None:
        chart.save(timeline)
    if figure is not None:
        from joulemesh.views.plan.figure import plan_figure
        from joulemesh.views.style import save_figure

        save_figure(plan_figure(made), figure)
    if json:
        typer.echo(made.to_json())
        return
    from joulemesh.views.plan.console import show_plan
    from joulemesh.views.terminal import open_console

    show_plan(made, open_console())
    for path in (out, figure, timeline):
        if path is not None:
            say(f"wrote {path}")
