"""`joulemesh plan`: what would be done, and what it would cost."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.base.errors import ScenarioError, say
from joulemesh.cli import common

if TYPE_CHECKING:
    from joulemesh.scenario import Scenario
    from joulemesh.views.printing import Printing

__all__ = ["plan"]


def plan(
    file: common.FileArgument = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
    json: common.JsonOption = False,
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
        typer.Option(
            "--figure",
            help="Draw map, rounds and energy (.png, .svg, .pdf, .pgf; or a name for --format).",
        ),
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
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
    against: Annotated[
        Path | None,
        typer.Option("--against", help="Print only what differs from the plan of another file."),
    ] = None,
) -> None:
    """Plan a scenario: scheme, iterations, everybody's rounds, and a ledger that adds up."""
    from joulemesh.planning.export import check_format
    from joulemesh.planning.gantt import check_suffix
    from joulemesh.planning.static import plan as make_plan

    if out is not None:
        check_format(out)
    if timeline is not None:
        check_suffix(timeline)
    drawn = _figures(figure, formats, width)
    scenario = common.read_scenario(file, preset, changes, load)
    if against is not None:
        _show_difference(scenario, against, as_json=json)
        return
    made = make_plan(scenario)
    chart = None if timeline is None else made.gantt(iteration)
    if out is not None:
        made.save(out)
    wrote = [] if out is None else [out]
    if chart is not None and timeline is not None:
        chart.save(timeline)
        wrote.append(timeline)
    if drawn is not None:
        from joulemesh.views.plan_figure import plan_figure
        from joulemesh.views.style import save_figure

        stem, printing = drawn
        picture = plan_figure(made, printing.width)
        wrote += save_figure(picture, stem, printing.formats)
    if json:
        typer.echo(made.to_json())
        return
    from joulemesh.views.console import show_plan
    from joulemesh.views.terminal import open_console

    show_plan(made, open_console())
    for path in wrote:
        say(f"wrote {path}")


def _figures(
    figure: Path | None, formats: str | None, width: str | None
) -> tuple[Path, Printing] | None:
    """Where figures go, without a suffix, and which; a suffix asks for its own format."""
    from joulemesh.views.printing import FORMATS, Printing, read_formats

    asked = () if formats is None else read_formats(formats)
    if figure is None:
        if asked or width is not None:
            option = "--format" if asked else "--width"
            raise ScenarioError(f"{option} needs --figure, the name of the figure")
        return None
    suffix = figure.suffix.lower().removeprefix(".")
    if suffix in FORMATS:
        asked, figure = tuple(dict.fromkeys((suffix, *asked))), figure.with_suffix("")
    elif not asked:
        raise ScenarioError(
            f"{figure}: figures end in .png, .svg, .pdf or .pgf, not {figure.suffix!r}; "
            "or add --format pdf,svg"
        )
    printing = Printing.asked(asked, width)
    return None if printing is None else (figure, printing)


def _show_difference(scenario: Scenario, against: Path, *, as_json: bool) -> None:
    from joulemesh.planning.static import plan as make_plan
    from joulemesh.studio.document import document, plan_difference

    before = common.read_scenario(against, None)
    for one in (before, scenario):
        make_plan(one)  # what cannot be planned is refused as everywhere
    found = plan_difference(document(before), document(scenario))
    if as_json:
        typer.echo(json_format.dumps(found))
        return
    from joulemesh.views.table import Column, Table
    from joulemesh.views.terminal import open_console, show_table

    columns = [Column("", figures=False), Column(str(against)), Column("now"), Column("change")]
    show_table(open_console(), Table(columns, _rows(found)))


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
