"""What studies are made of: `joulemesh methods`, `metrics`, `estimate`, `bounds`, `reproduce`."""

from __future__ import annotations

__all__ = ["bounds", "estimate", "methods", "metrics", "publication", "reproduce"]

import dataclasses
import json as json_format
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.cli import common, completion

if TYPE_CHECKING:
    from rich.console import Console

    from joulemesh.methods import Method


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
    load: common.LoadOption = None,
    json: common.JsonOption = False,
) -> None:
    """List the methods that `joulemesh compare` knows, with parameters, models and citations.

    A method is written `name`, `name:value` (the value of the parameter that is listed first) or
    `name:parameter=value,parameter=value`.
    """
    from joulemesh.methods import lookup, names

    common.load_files(load)
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


def metrics(load: common.LoadOption = None, json: common.JsonOption = False) -> None:
    """List the losses that training can minimise and the metrics that evaluations can measure.

    A scenario says `training.loss`, `training.score` (the metric that runs are compared by; the
    loss's own unless it is given) and `training.metrics` (what else is reported).
    """
    from joulemesh.registries import LOSSES, METRICS

    common.load_files(load)
    losses = [
        {name: getattr(one, name) for name in ("name", "targets", "score")}
        | {"metrics": list(one.metrics), "description": one.description}
        for one in LOSSES
    ]
    known = [
        {name: getattr(one, name) for name in ("name", "targets", "better")}
        | {"unit": "%" if one.share else "", "description": one.description}
        for one in METRICS
    ]
    if json:
        typer.echo(json_format.dumps({"losses": losses, "metrics": known}))
        return
    from rich.box import SIMPLE_HEAD

    from joulemesh.views.table import Column, Table
    from joulemesh.views.terminal import open_console, show_table

    console = open_console()
    for kind, rows in (("loss", losses), ("metric", known)):
        names = [name for name in rows[0] if name not in ("name", "description", "metrics")]
        columns = [Column(kind, figures=False), *(Column(name, figures=False) for name in names)]
        columns.append(Column("what it is", figures=False, prose=30, rank=1))
        cells = [
            [str(row["name"]), *(str(row[name]) for name in names), str(row["description"])]
            for row in rows
        ]
        show_table(console, Table(columns, cells), box=SIMPLE_HEAD)


def estimate(
    file: common.FileArgument = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
    json: common.JsonOption = False,
) -> None:
    """Measure m, M, σ, G, δ and the initial gap on the scenario's own model and data.

    Prints a `[bounds]` section to paste into the scenario; `joulemesh plan` then shows the bounds.
    """
    from joulemesh.theory.measured import estimate

    constants = estimate(common.read_scenario(file, preset, changes, load))
    if json:
        typer.echo(json_format.dumps(constants))
        return
    typer.echo("[bounds]")
    for name, value in constants.items():
        typer.echo(f"{name} = {value!r}")


def bounds(
    file: common.FileArgument = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
    json: common.JsonOption = False,
) -> None:
    """Train the logistic model and hold its gap to the optimum against the corrected Theorem 1."""
    from joulemesh.theory.measured import gap_under_bound

    study = gap_under_bound(common.read_scenario(file, preset, changes, load))
    if json:
        record = {
            "iteration": study.iteration.tolist(),
            "gap": study.gap.tolist(),
            "bound": study.bound.tolist(),
            "constants": dataclasses.asdict(study.constants),
            "learning_rate": study.learning_rate,
            "holds": study.holds,
        }
        typer.echo(json_format.dumps(record))
        return
    from joulemesh.views.table import Column, Table
    from joulemesh.views.terminal import open_console, show_table

    console = open_console()
    names = ("iteration", "measured gap", "corrected bound", "bound / gap")
    rows = [
        [str(t), f"{gap:.4f}", f"{bound:.4f}", f"{bound / gap:.2f}"]
        for t, gap, bound in zip(study.iteration, study.gap, study.bound, strict=True)
    ]
    show_table(console, Table([Column(name) for name in names], rows))
    figures = ", ".join(f"{k} {v:.4g}" for k, v in dataclasses.asdict(study.constants).items())
    console.print(f"learning rate {study.learning_rate:.4g} (at most 1/M); {figures}")
    console.print(f"the measured gap is {'under' if study.holds else 'ABOVE'} the bound throughout")


_PAPER = Path("publications", "yan-li-2024")
_PACKAGE = "yan_li_2024"


def publication() -> Any:
    """The package that redoes the paper, of the checkout that this is or that one stands in."""
    for root in (Path(joulemesh.__file__).parents[2], Path.cwd()):
        if (root / _PAPER / _PACKAGE).is_dir():
            if str(root / _PAPER) not in sys.path:
                sys.path.insert(0, str(root / _PAPER))
            return import_module(_PACKAGE)
    raise ScenarioError(
        f"{_PAPER.as_posix()} comes with the sources, not with the installed package: unpack the "
        f"source distribution (pip download --no-deps --no-binary joulemesh joulemesh) and call "
        f"joulemesh reproduce in its folder"
    )


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(
            metavar="PART",
            help="table1, fig4, fig5, fig6, fig7, fig8, fig9 or all.",
            autocompletion=completion.figures,
        ),
    ] = "all",
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Digits and few devices: minutes on a CPU, a smoke test."),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Repetitions: 5, or 2 with --quick, unless given."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the results: reproduction, or reproduction-quick."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Folder with the published files of the data sets."),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option("--cache", help="Folder for cached runs (default: the user cache)."),
    ] = None,
    redraw: Annotated[
        bool,
        typer.Option("--redraw", help="Only draw figures and page again, from --out's numbers."),
    ] = False,
    formats: common.FormatOption = None,
    width: common.WidthOption = None,
    json: common.JsonOption = False,
) -> None:
    """Redo the paper's tables and figures, and say of each of its sentences whether it holds.

    Every run is kept: interrupted and called again, it computes only what is missing. Figures whose
    data are not available are left out, and the exit code is then 2.

    `--format` and `--width` draw the figures for a paper too, in the folder `paper` of the results;
    with `--redraw` from the numbers of an earlier run.
    """
    from joulemesh.views.printing import Printing

    printing = Printing.asked(formats, width)
    publication()
    import_module(f"{_PACKAGE}.command").command(
        figure,
        quick=quick,
        seeds=seeds,
        out=out,
        data_dir=data_dir,
        cache=cache,
        redraw=redraw,
        printing=printing,
        json=json,
    )
