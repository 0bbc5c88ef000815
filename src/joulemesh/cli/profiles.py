"""`joulemesh profiles`: hardware and radios by name, with their figures and sources."""

from __future__ import annotations

import dataclasses
import json as json_format
from typing import Annotated, Any

import typer

from joulemesh.cli import completion
from joulemesh.cli.common import JsonOption

__all__ = ["profiles"]


def profiles(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One profile; otherwise all of them.",
            autocompletion=completion.profile_names,
        ),
    ] = None,
    json: JsonOption = False,
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
    from joulemesh.views.terminal import Column, show_table

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
    show_table(console, [Column("device", figures=False), *figures, what], devices)
    show_table(console, [Column("radio", figures=False), *radio_figures, what], radios)


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
