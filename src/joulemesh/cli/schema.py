"""`joulemesh schema`: the scenario's JSON Schema, for editors."""

from __future__ import annotations

import json

import typer

from joulemesh.cli.common import LoadOption, load_files
from joulemesh.scenario import Scenario

__all__ = ["schema"]


def schema(load: LoadOption = None) -> None:
    """Print the JSON Schema of a scenario file, so that editors complete and check it."""
    load_files(load)
    typer.echo(json.dumps(Scenario.model_json_schema(), indent=2))
