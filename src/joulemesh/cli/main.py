"""`joulemesh`: commands, and what happens when one of them refuses."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from joulemesh._version import __version__
from joulemesh.cli import bounds, compare, estimate, init, plan, report, reproduce, run, schema
from joulemesh.errors import JoulemeshError

__all__ = ["app", "main"]

app = typer.Typer(
    name="joulemesh",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Plan and simulate decentralized federated learning on an energy and latency budget.",
)
app.command("init")(init.init)
app.command("plan")(plan.plan)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("reproduce")(reproduce.reproduce)
app.command("estimate")(estimate.estimate)
app.command("bounds")(bounds.bounds)
app.command("schema")(schema.schema)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"joulemesh {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that go before every command."""


def main() -> None:
    """Run a command; a refusal is one line on standard error and exit code 2."""
    try:
        app()
    except JoulemeshError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
