"""`joulemesh methods`: the contenders of a comparison, their parameters and publications."""

from __future__ import annotations

import dataclasses
import json as json_format
from typing import TYPE_CHECKING, Annotated, Any

import typer

from joulemesh.cli import completion
from joulemesh.cli.common import JsonOption, LoadOption, load_files

if TYPE_CHECKING:
    from rich.console import Console

    from joulemesh.methods import Method

__all__ = ["methods"]

_WORDS = {("jax",): "JAX and Flax", ("jax", "torch"): "JAX, Flax and PyTorch"}


def methods(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One method; otherwise all of them.",
            autocompletion=completion.method_names,
        ),
    ] = None,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """List the methods that `joulemesh compare` knows, with parameters, models and citations.

    A method is written `name`, `name:value` (the value of the parameter that is listed first) or
    `name:parameter=value,parameter=value`.
    """
    from joulemesh.methods import lookup, names

    load_files(load)
    chosen = [lookup(one) for one in (names() if name is None else (name,))]
    if json:
        typer.echo(json_format.dumps([_record(method) for method in chosen]))
        return
    from joulemesh.views.terminal import open_console

    console = open_console()
    for k, method in enumerate(chosen):
        if k:
            console.print()
        _show(method, console, whole=name is not None)


def _models(method: Method) -> str:
    """Whose models a method trains, in a line; empty if that is not known."""
    from joulemesh.methods import libraries

    found = libraries(method.name)
    return f"models: {_WORDS[found]}" if found else ""


def _record(method: Method) -> dict[str, Any]:
    from joulemesh.methods import libraries

    cited = method.citation
    return {
        "libraries": list(libraries(method.name)),
        "name": method.name,
        "description": method.description,
        "citation": None
        if cited is None
        else {**dataclasses.asdict(cited), "url": cited.url, "text": str(cited)},
        "built_in": method.built_in,
        "main": method.main,
        "parameters": [
            {
                "name": name,
                "default": parameter.default,
                "meaning": parameter.meaning,
                "values": parameter.what,
            }
            for name, parameter in method.listed
        ],
    }


def _show(method: Method, console: Console, *, whole: bool) -> None:
    """One method: what it does, one line for each parameter, and where it was published."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    console.print(
        Text.assemble((method.name, "bold"), f": {method.description or '(no description)'}")
    )
    if method.parameters:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("parameter", "default", "meaning"):
            table.add_column(heading, overflow="fold")
        for name, parameter in method.listed:
            values = parameter.what if whole or parameter.words else ""
            meaning = "; ".join(filter(None, (parameter.meaning, values)))
            table.add_row(Text(name), Text(parameter.default or "–"), Text(meaning))
        console.print(Padding(table, (0, 0, 0, 2)))
    if words := _models(method):
        console.print(Padding(Text(words), (0, 0, 0, 2)))
    if method.citation is not None:
        cited = method.citation
        line = Text(str(cited), style=f"link {cited.url}" if cited.url else "")
        console.print(Padding(line, (0, 0, 0, 2)))
