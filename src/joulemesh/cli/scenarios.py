"""What a scenario begins with: `joulemesh new`, `init`, `profiles`, `schema`."""

from __future__ import annotations

__all__ = ["init", "new", "profiles", "schema"]

import dataclasses
import json
import json as json_format
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from joulemesh.base.errors import say
from joulemesh.cli import common, completion
from joulemesh.scenario import Scenario


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder, or an empty one.")],
) -> None:
    """Lay out a project: a scenario, a device table, data and a model of your own, and a README.

    It runs as it stands; put your own devices, data and model in the place of the invented ones.
    """
    from joulemesh.templates import lay_out

    made = lay_out(folder)
    say(f"wrote {', '.join(path.name for path in made)} in {folder}; now:")
    there = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    say(f"{there}python data.py && joulemesh plan scenario.toml")


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")],
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a scenario file in which every field is explained."""
    from joulemesh.planning.notes import figures
    from joulemesh.scenario.varied import value_of

    scenario = common.read_scenario(None, preset, changes)
    # Figures that decide the plan are given in the file, as far as no profile or table gives them.
    names = [one.name for one in figures(scenario) if one.origin.kind in ("assumed", "preset")]
    figure = {name: value_of(scenario, name) for name in names}
    scenario = scenario.override({k: value for k, value in figure.items() if value is not None})
    common.write_text(file, scenario.to_toml(comments=True), force=force)
    say(f"wrote {file}; now: joulemesh plan {file}")


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One profile; otherwise all of them.",
            autocompletion=completion.profile_names,
        ),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """List hardware and radios that a scenario can name, with their figures and sources.

    A scenario says `devices.profile` and `network.profile`, or has a column `profile` in its device
    table; fields that it gives itself win.
    """
    from joulemesh.scenario.profiles import find
    from joulemesh.scenario.profiles import profiles as known

    chosen = known() if name is None else (find(name),)
    if json:
        typer.echo(json_format.dumps([dataclasses.asdict(profile) for profile in chosen]))
        return
    from joulemesh.views.terminal import open_console

    console = open_console()
    if name is None:
        _tables(chosen, console)
        console.print("sources and derivations: joulemesh profiles NAME", style="dim")
    else:
        _one(chosen[0], console)


def _tables(chosen: Any, console: Any) -> None:
    from joulemesh.base.units import si
    from joulemesh.views.table import Column, Table
    from joulemesh.views.terminal import show_table

    what = Column("what it is", prose=16, rank=2)
    figures = [Column("clock"), Column("power"), Column("a cycle"), Column("cores", rank=1)]
    radio_figures = [Column("draws"), Column("rate"), Column("bandwidth", rank=1)]
    devices: list[list[str]] = []
    radios: list[list[str]] = []
    for profile in chosen:
        said = profile.said
        if profile.kind == "device":
            clock, power = said["cpu_hz"], said["power_w"]
            cells = [si(clock, "Hz"), si(power, "W"), si(power / clock, "J"), str(said["cores"])]
            devices.append([profile.name, *cells, profile.summary])
        else:
            pairs = (("transmit_power_w", "W"), ("max_rate_bps", "bit/s"), ("bandwidth_hz", "Hz"))
            cells = [
                si(said[field], unit) if field in said else "no limit" for field, unit in pairs
            ]
            radios.append([profile.name, *cells, profile.summary])
    show_table(console, Table([Column("device", figures=False), *figures, what], devices))
    columns = [Column("radio", figures=False), *radio_figures, what]
    show_table(console, Table(columns, radios))


def _one(profile: Any, console: Any) -> None:
    from rich.text import Text

    lines = [f"{profile.name}: {profile.summary}", "", "In a scenario:"]
    for section in ("devices", "network", "plan"):
        fields = getattr(profile, section)
        lines += [f"  {section}.{field} = {value!r}" for field, value in fields.items()]
    lines += ["", "As the sources say it:"]
    lines += [f"  {field} = {value!r}" for field, value in profile.said.items()]
    lines += ["", "Sources:"]
    for source in profile.sources:
        lines.append(f"  {source.title}, {source.year} ({source.how})")
        lines += [f"    for {source.gives}", f"    {source.url}"]
    console.print(Text("\n".join(lines)), soft_wrap=True)


def schema(load: common.LoadOption = None) -> None:
    """Print the JSON Schema of a scenario file, so that editors complete and check it."""
    common.load_files(load)
    typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))
