"""One immutable, validated `Scenario`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from joulemesh.errors import ScenarioError
from joulemesh.scenario.given import (
    absolute_paths,
    forget_profiles,
    forget_table,
    with_profiles,
    with_table_rows,
)
from joulemesh.scenario.graph import graph_fields
from joulemesh.scenario.sections import (
    Bounds,
    Budget,
    Devices,
    Network,
    PlanOptions,
    Training,
)
from joulemesh.scenario.text import check_links, check_table, one_line, to_toml

__all__ = ["PRESETS", "Scenario"]

PRESETS = ("default", "paper", "narrowband")


class Scenario(BaseModel):
    """One training to plan: devices, radio, budgets, and what is learned.

    >>> scenario = Scenario.preset("default").override({"devices.count": 8})
    >>> scenario.devices.count, scenario.network.topology
    (8, 'ring')
    >>> Scenario(devices={"cout": 3})
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: devices.cout: unknown field; did you mean 'count'?
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: Annotated[
        int, Field(ge=0, strict=True, description="makes the world, and all chance")
    ] = 0
    devices: Devices = Devices()
    network: Network = Network()
    budget: Budget = Budget()
    plan: PlanOptions = PlanOptions()
    training: Training = Training()
    bounds: Bounds = Bounds()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**with_profiles(with_table_rows(values)))
        except ValidationError as error:
            raise ScenarioError(one_line(error, Scenario)) from None
        check_links(self.network)
        check_table(self.devices, self.budget)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a scenario from a TOML (or ``.json``) file; paths in it are relative to it."""
        path = Path(path)
        kind, read = ("JSON", json.loads) if path.suffix == ".json" else ("TOML", tomllib.loads)
        try:
            values = read(path.read_bytes().decode())
        except OSError as error:
            raise ScenarioError(
                f"cannot read {path}: {error.strerror}; "
                f"`joulemesh init {path.with_suffix('.toml')}` writes one"
            ) from None
        except (ValueError, RecursionError) as error:  # of the decoder, the parser, or the text
            raise ScenarioError(
                f"{path} is not a {kind} file ({_reason(error)}); "
                "`joulemesh init FILE` writes a good one"
            ) from None
        return cls(**absolute_paths(_mapping(values, str(path)), path.parent))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The scenario that `to_json` wrote.

        >>> one = Scenario.preset("default")
        >>> Scenario.from_json(one.to_json()) == one
        True
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ScenarioError(
                f"the text is no JSON ({_reason(error)}); Scenario.to_json writes it"
            ) from None
        return cls(**_mapping(values, "the text"))

    @classmethod
    def preset(cls, name: str) -> Self:
        """A scenario by name: one of `PRESETS`."""
        if name not in PRESETS:
            raise ScenarioError(f"unknown preset {name!r}; the presets are {', '.join(PRESETS)}")
        text = resources.files("joulemesh.presets").joinpath(f"{name}.toml").read_text("utf-8")
        return cls(**tomllib.loads(text))

    def override(self, changes: Mapping[str, Any]) -> Self:
        """The same scenario with some fields changed: ``{"devices.count": 50}``.

        What is said last wins: another profile brings its own figures, whatever was given before.

        >>> one = Scenario(devices={"cpu_hz": 1e9}).override({"devices.profile": "esp32"})
        >>> one.devices.cpu_hz
        240000000.0
        """
        values = self.model_dump(exclude_unset=True)
        if "devices.table" in changes and self.devices.table is not None:
            forget_table(values)
        forget_profiles(values, changes, self.devices, self.network)
        for name, value in changes.items():
            section, dot, field = name.partition(".")
            if not dot:
                values[name] = value
            elif isinstance(values.get(section, {}), dict):
                values.setdefault(section, {})[field] = value
            else:
                raise ScenarioError(f"{name}: {section!r} is not a section")
        return type(self)(**values)

    def to_toml(self, *, comments: bool = False) -> str:
        """The whole scenario as TOML; with ``comments`` every field says what it is."""
        return to_toml(self, comments)

    def to_json(self) -> str:
        """The whole scenario as JSON."""
        return self.model_dump_json()

    def with_graph(self, graph: Any) -> Self:
        """The same scenario on a graph of the user's own.

        Args:
            graph: an undirected ``networkx.Graph``. Its nodes, in their order, are devices 0, 1, …;
                a node's ``pos`` (or ``x_m`` and ``y_m``) is its place in metres, an edge's ``gain``
                the power gain of the link. Either all have them, or none.

        Returns:
            A scenario that holds the links, and needs neither the graph nor networkx.

        >>> import networkx as nx
        >>> Scenario().with_graph(nx.path_graph(3)).network.topology
        ((0, 1), (1, 2))
        """
        return self.override(graph_fields(graph))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import joulemesh  # the front door knows the views; this room does not

        page: str = joulemesh.notebook_html(self)
        return page


def _mapping(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ScenarioError(f"{where} holds no scenario: write an object with sections")
    return values


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
