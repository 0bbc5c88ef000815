"""`joulemesh studio`: plan on a web page of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

if TYPE_CHECKING:
    from joulemesh.studio.server import Address

__all__ = ["studio"]


def studio(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    port: Annotated[
        int,
        typer.Option("--port", min=0, max=65535, help="Where to listen; 0: any that is free."),
    ] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Plan on a web page: change a field, drag a device, and see the plan at once.

    The page is served on this machine only (127.0.0.1), to whoever has the address that is
    printed. With --json nothing is served: all that the page would show is printed.
    """
    scenario = read_scenario(file, preset, changes, load)
    if json:
        from json import dumps

        from joulemesh.studio.document import document

        typer.echo(dumps(document(scenario)))
        return
    from joulemesh.studio.server import serve

    def ready(address: Address) -> None:
        say(f"studio at {address.url}")
        say("Ctrl-C ends it.", err=True)
        if browser:
            from webbrowser import open as open_page

            open_page(address.url)

    serve(scenario, path=file, port=port, load=load or [], ready=ready)
