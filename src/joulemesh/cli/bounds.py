"""`joulemesh bounds`: the measured gap under the corrected bound."""

from __future__ import annotations

import dataclasses
import json as json_format

import typer

from joulemesh.cli.common import (
    FileArgument,
    JsonOption,
    LoadOption,
    PresetOption,
    SetOption,
    read_scenario,
)

__all__ = ["bounds"]


def bounds(
    file: FileArgument = None,
    preset: PresetOption = None,
    changes: SetOption = None,
    load: LoadOption = None,
    json: JsonOption = False,
) -> None:
    """Train the logistic model and hold its gap to the optimum against the corrected Theorem 1."""
    from joulemesh.theory.measured.estimate import gap_under_bound

    study = gap_under_bound(read_scenario(file, preset, changes, load))
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
    from joulemesh.views.terminal import Column, open_console, show_table

    console = open_console()
    names = ("iteration", "measured gap", "corrected bound", "bound / gap")
    rows = [
        [str(t), f"{gap:.4f}", f"{bound:.4f}", f"{bound / gap:.2f}"]
        for t, gap, bound in zip(study.iteration, study.gap, study.bound, strict=True)
    ]
    show_table(console, [Column(name) for name in names], rows)
    figures = ", ".join(f"{k} {v:.4g}" for k, v in dataclasses.asdict(study.constants).items())
    console.print(f"learning rate {study.learning_rate:.4g} (at most 1/M); {figures}")
    console.print(f"the measured gap is {'under' if study.holds else 'ABOVE'} the bound throughout")
