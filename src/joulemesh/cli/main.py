"""`joulemesh`: commands, and what happens when one of them refuses."""

from __future__ import annotations

__all__ = ["app", "ask_for_tracebacks", "main", "program", "tell"]

import atexit
import gc
import json
import os
import sys
import traceback
from collections import UserDict
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from joulemesh._version import __version__
from joulemesh.base.errors import JoulemeshError, say
from joulemesh.base.optional import explained, place_in
from joulemesh.cli import completion

_MOST_CHARACTERS = 400
_asked = False


def ask_for_tracebacks(wanted: bool) -> None:
    """Say whether failures are to be shown with their traceback."""
    global _asked
    _asked = wanted


def tell(error: Exception) -> bool:
    """Print one line on standard error about an error that the user can correct, and its notes."""
    # That is a refusal of Joulemesh, and anything that passed through the user's own code. Where
    # the command was to print its result as JSON, standard output gets the refusal as data.
    line = _line(error)
    if line is None:
        return False
    if _asked:
        traceback.print_exception(error)
    say(f"error: {line}", err=True)
    if isinstance(error, JoulemeshError) and "--json" in sys.argv:
        print(json.dumps({"error": error.data}))
    for note in getattr(error, "__notes__", ()):
        if isinstance(error, JoulemeshError) and "\n" not in note:  # JAX adds its own, of several
            say(f"note: {note}", err=True)
    return True


def _line(error: Exception) -> str | None:
    place = place_in(error)
    if isinstance(error := explained(error), JoulemeshError):
        return str(error) if place is None else f"{place}: {error}"
    if place is None:
        return None
    said = error.msg if isinstance(error, SyntaxError) else error  # which else repeats the place
    words = " ".join(f"{type(error).__name__}: {said}".split())
    words = words if len(words) <= _MOST_CHARACTERS else words[: _MOST_CHARACTERS - 1] + "…"
    return f"{place}: {words} (`joulemesh --traceback …` shows all)"


_INTERRUPTED = 130  # exit code of a command that Ctrl-C stopped

# Commands with what to type to try them; then groups of commands. Each has the module of its name,
# except the smaller ones.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "new": ("joulemesh new fleet",),
    "init": (
        "joulemesh init fleet.toml",
        "joulemesh init fleet.toml --set devices.profile=raspberry-pi-4 --set devices.count=50",
    ),
    "profiles": ("joulemesh profiles", "joulemesh profiles raspberry-pi-4"),
    "plan": (
        "joulemesh plan",
        "joulemesh plan fleet.toml --set plan.rounds=backfill --json",
        'joulemesh plan fleet.toml --set budget.energy_j="1 Wh" --set budget.deadline_s=250ms',
        "joulemesh plan --set budget.total_s=9s --set plan.rounds=spread "
        "--set plan.iterations=auto",
    ),
    "studio": (
        "joulemesh studio",
        "joulemesh studio fleet.toml --port 8000 --no-browser",
    ),
    "run": (
        "joulemesh run",
        "joulemesh run fleet.toml --out runs/fleet --seeds 5 --track mlflow",
    ),
    "compare": (
        "joulemesh compare",
        "joulemesh compare fleet.toml --equal time --out study",
        "joulemesh compare --methods adaptive,fixed:3,balanced:tau1=4,tau2=2",
    ),
    "sweep": (
        "joulemesh sweep --vary devices.count=10,20,50 --vary training.alpha=0.1,1",
        "joulemesh sweep fleet.toml --vary budget.energy_j=0.01:1:x10 --methods adaptive,fixed:3",
        'joulemesh sweep --vary "budget.total_s=2s:8s:2s" --dry-run',
    ),
    "tune": (
        "joulemesh tune",
        "joulemesh tune fleet.toml --objective energy-to:0.9 --out tuned",
        'joulemesh tune --try "training.learning_rate=[0.05, 0.1, 0.2]" --try plan.iterations=grid',
    ),
    "methods": (
        "joulemesh methods",
        "joulemesh methods balanced",
        "joulemesh methods --load lazy.py --json",
    ),
    "metrics": ("joulemesh metrics", "joulemesh metrics --load top3.py --json"),
    "cite": ("joulemesh cite study", "joulemesh cite runs/default-001 --out references.bib"),
    "report": ("joulemesh report runs/default-001",),
    "verify": ("joulemesh verify runs/default-001",),
    "watch": ("joulemesh watch fleet", "joulemesh watch fleet --run runs/fleet --port 8000"),
    "reproduce": ("joulemesh reproduce fig7", "joulemesh reproduce all --quick"),
    "estimate": ("joulemesh estimate --set training.model=logistic --set training.l2=0.01",),
    "bounds": ("joulemesh bounds --set training.model=logistic --set training.l2=0.1",),
    "schema": ("joulemesh schema > scenario.schema.json",),
    "doctor": (
        "joulemesh doctor",
        "joulemesh doctor --json > doctor.json",
        "joulemesh doctor farm-07 --quick",
    ),
}
_MODULES = {
    **dict.fromkeys(("new", "init", "profiles", "schema"), "scenarios"),
    **dict.fromkeys(("methods", "metrics", "estimate", "bounds", "reproduce"), "studies"),
    **dict.fromkeys(("report", "cite", "verify"), "results"),
    **dict.fromkeys(("studio", "watch"), "pages"),
}
# The panels of --help, in order, and the commands of each; what most people need comes first.
_PANELS: dict[str, tuple[str, ...]] = {
    "Commands": ("plan", "run", "compare", "tune", "deploy"),
    "Scenarios": ("new", "init", "studio", "profiles", "schema"),
    "Studies": ("sweep", "methods", "metrics", "estimate", "bounds", "reproduce"),
    "Results": ("report", "cite", "verify", "export"),
    "Machines": ("doctor", "calibrate", "node", "watch"),
}
_STYLE: dict[str, Any] = {"rich_markup_mode": "markdown", "pretty_exceptions_enable": False}


def _examples(lines: tuple[str, ...]) -> str:
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\n\n".join([title, *(f"- `{line}`" for line in lines)])


def _built(name: str) -> Any:
    """One command, or one group of commands, as typer builds it."""
    module = import_module(f"joulemesh.cli.{_MODULES.get(name, name)}")
    if name in _EXAMPLES:
        part = typer.Typer(add_completion=False, **_STYLE)
        commands = {getattr(module, name): _EXAMPLES[name]}
    else:
        kind, commands = getattr(module, "GROUP", TyperGroup), module.COMMANDS
        options = {"cls": kind, "no_args_is_help": kind is TyperGroup, "help": module.HELP}
        part = typer.Typer(name=name, add_completion=False, **options, **_STYLE)
    for command, lines in commands.items():
        part.command(command.__name__, epilog=_examples(lines))(command)
    made: Any = typer.main.get_command(part)
    made.rich_help_panel = next(panel for panel, names in _PANELS.items() if name in names)
    return made


class _OnDemand(UserDict[str, Any]):
    """Commands by name, each imported and built when it is first looked up."""

    # Building all of them takes longer than planning.

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = _built(name)
        return self.data[name]


class _Commands(TyperGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = _OnDemand(
            dict.fromkeys(name for names in _PANELS.values() for name in names)
        )

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


app = typer.Typer(
    name="joulemesh",
    no_args_is_help=True,
    cls=_Commands,
    help="Plan, simulate and deploy decentralized federated learning on an energy and latency "
    "budget.",
    epilog="Begin with: `joulemesh run`, or `joulemesh COMMAND --help` for examples.",
    **_STYLE,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"joulemesh {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option(
            "--traceback",
            envvar="JOULEMESH_TRACEBACK",
            help="Show the whole traceback of an error, also of one in your own files.",
        ),
    ] = False,
) -> None:
    ask_for_tracebacks(traceback)


def _collect_seldom() -> None:
    """Look for cyclic garbage less often, and not at exit: it takes a tenth of a short command."""
    # Nearly all objects were made when libraries were imported, and live as long as the process.
    gc.set_threshold(20_000)
    atexit.register(gc.freeze)  # what is frozen is not looked at; the first registered runs last


def _run() -> None:
    app(prog_name="joulemesh")


def main() -> None:
    """Run a command; a refusal is one line on standard error and exit code 2."""
    _collect_seldom()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")  # the code pages of Windows lack some signs
    try:
        if os.environ.get("_JOULEMESH_COMPLETE") == "complete_bash":
            completion.in_bash(_run)
        else:
            _run()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except Exception as error:
        if not tell(error):
            raise
        sys.exit(2)


def program() -> None:
    """Be the process of a command: `main`, and an end of its own for one that is interrupted."""
    # An interrupted command does not wait for what XLA is still computing in its threads. A process
    # that ends in the ordinary way frees the machine code that they are executing, and crashes in
    # them; this one ends without the destructors of libraries.
    try:
        main()
    except SystemExit as end:
        if end.code != _INTERRUPTED:
            raise
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # closed, or the reader is gone
                stream.flush()
        os._exit(_INTERRUPTED)
