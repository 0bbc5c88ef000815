"""`joulemesh metrics`: what training can minimise, and what evaluations can measure."""

from __future__ import annotations

import json as json_format
from typing import TYPE_CHECKING, Any

import typer

from joulemesh.cli.common import JsonOption, LoadOption, load_files

if TYPE_CHECKING:
    from joulemesh.metrics import Loss, Metric

__all__ = ["metrics"]


def metrics(load: LoadOption = None, json: JsonOption = False) -> None:
    """List the losses that training can minimise and the metrics that evaluations can measure.

    A scenario says `training.loss`, `training.score` (the metric that runs are compared by; the
    loss's own unless it is given) and `training.metrics` (what else is reported).
    """
    from joulemesh.registries import LOSSES, METRICS

    load_files(load)
    losses, known = [_loss(one) for one in LOSSES], [_metric(one) for one in METRICS]
    if json:
        typer.echo(json_format.dumps({"losses": losses, "metrics": known}))
        return
    from rich.box import SIMPLE_HEAD

    from joulemesh.views.terminal import Column, open_console, show_table

    console = open_console()
    for kind, rows in (("loss", losses), ("metric", known)):
        names = [name for name in rows[0] if name not in ("name", "description", "metrics")]
        columns = [Column(kind, figures=False), *(Column(name, figures=False) for name in names)]
        columns.append(Column("what it is", figures=False, prose=30, rank=1))
        cells = [
            [str(row["name"]), *(str(row[name]) for name in names), str(row["description"])]
            for row in rows
        ]
        show_table(console, columns, cells, box=SIMPLE_HEAD)


def _loss(loss: Loss) -> dict[str, Any]:
    return {
        "name": loss.name,
        "targets": loss.targets,
        "score": loss.score,
        "metrics": list(loss.metrics),
        "description": loss.description,
    }


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "targets": metric.targets,
        "better": metric.better,
        "unit": "%" if metric.share else "",
        "description": metric.description,
    }
