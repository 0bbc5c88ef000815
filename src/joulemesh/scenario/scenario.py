"""One immutable, validated `Scenario`."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.base.files import parse_json
from joulemesh.scenario.complete import (
    check_links,
    check_table,
    completed,
    own_statements,
    refusal_of,
    to_toml,
)
from joulemesh.scenario.given import (
    ASSUMED,
    GIVEN,
    Layer,
    Origin,
    absolute_paths,
    fields_of,
    latest,
    nested,
)
from joulemesh.scenario.sections import (
    SECTIONS,
    Bounds,
    Budget,
    Devices,
    Network,
    PlanOptions,
    Training,
)

_ROUNDED = {16: "float16"}  # by bits
_WHOLE = 32  # bits from which on nothing is rounded


def rounded_to(bits_per_parameter: int) -> str:
    """The NumPy type to which every message is rounded; empty where none is."""
    return _ROUNDED.get(bits_per_parameter, "")


def check_bits(network: Network, plan: PlanOptions, training: Training) -> None:
    """Refuse widths that no message has, and those that contradict each other."""
    if plan.bits not in (_WHOLE, "auto"):
        _check_quantised(network, plan)
    bits = network.bits_per_parameter
    if bits < _WHOLE and not rounded_to(bits):
        raise ScenarioError(
            f"network.bits_per_parameter = {bits} is not carried out: messages have 16 bits "
            f"(rounded to half precision), or {_WHOLE} or more; use 16 or 32, plan.bits = 8 or 4 "
            "for exact averages, or a method that compresses its messages to widths of its own, "
            "for instance balanced:compress=qsgd:8",
            field="network.bits_per_parameter",
        )
    if rounded_to(bits) and training.weights == "samples":
        raise ScenarioError(
            f"network.bits_per_parameter = {bits} rounds sums of equally weighted devices, and "
            'training.weights = "samples" weighs them; set training.weights = "uniform" or '
            "network.bits_per_parameter = 32",
            field="network.bits_per_parameter",
        )


def _check_quantised(network: Network, plan: PlanOptions) -> None:
    """Refuse what quantised averages do not go with."""
    bits, whole = plan.bits, Edit("plan.bits", _WHOLE)
    if network.bits_per_parameter < _WHOLE:
        raise ScenarioError(
            f"plan.bits = {bits} quantises what is sent, and network.bits_per_parameter = "
            f"{network.bits_per_parameter} is another width of the same numbers",
            field="plan.bits",
            remedies=[(Edit("network.bits_per_parameter", _WHOLE),), (whole,)],
        )
    if "paper" in (plan.physics, plan.clock):
        said, known = "timing", "critical-path"
        if plan.physics == "paper":
            said, known = "physics", "physical"
        real = Edit(f"plan.{said}", known)
        raise ScenarioError(
            f'plan.bits = {bits} has no price under plan.{said} = "paper", which knows messages '
            "of whole vectors only",
            field="plan.bits",
            remedies=[(real,), (whole,)],
        )
    exchange = plan.exchange
    if exchange == "neighbours" or getattr(exchange, "between", None) == "neighbours":
        raise ScenarioError(
            f"plan.bits = {bits} sends what has changed since an average that all devices hold, "
            "and neighbours who mix have none (balanced:compress=qsgd:8 is a method that has a "
            "copy for each of them)",
            field="plan.bits",
            remedies=[(Edit("plan.exchange", "exact"),), (whole,)],
        )
    if network.packet_error != 0.0:
        raise ScenarioError(
            f"plan.bits = {bits} needs every device to hold the same average, and with "
            f"network.packet_error = {network.packet_error!r} a message may be lost for good",
            field="plan.bits",
            remedies=[(Edit("network.packet_error", 0.0),), (whole,)],
        )


def graph_fields(graph: Any) -> dict[str, Any]:
    """What a graph says of devices and links, as changes to a scenario."""
    try:
        odd = graph.is_directed() or graph.is_multigraph()
        nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    except (AttributeError, TypeError):
        raise ScenarioError(
            f"a {type(graph).__name__} is not a graph; give a networkx.Graph"
        ) from None
    if odd:
        raise ScenarioError(
            f"the graph is a {type(graph).__name__}; links work both ways and are single: "
            "give networkx.Graph(graph)"
        )
    if not edges:
        raise ScenarioError("the graph has no edges; add the links")
    number = {node: k for k, (node, _) in enumerate(nodes)}
    links = [[number[a], number[b]] for a, b, _ in edges]
    own = next((link for link in links if link[0] == link[1]), None)
    if own is not None:
        raise ScenarioError(f"the graph joins device {own[0]} to itself; remove its self-loops")
    fields: dict[str, Any] = {
        "devices.count": len(nodes),
        "network.topology": links,
        "network.gains": _all_or_none([data.get("gain") for _, _, data in edges], "gain", "edges"),
    }
    spots = [_position(data) for _, data in nodes]
    whole = _all_or_none(spots, "pos", "nodes")
    for axis, field in enumerate(("devices.x_m", "devices.y_m")):
        values = None if whole is None else {"values": [spot[axis] for spot in whole]}
        fields[field] = values
    return fields


def _position(data: dict[str, Any]) -> tuple[float, float] | None:
    spot = data.get("pos", (data.get("x_m"), data.get("y_m")))
    if spot is None or any(part is None for part in spot):
        return None
    if len(spot) != 2:
        raise ScenarioError(f"a node's pos has {len(spot)} coordinates; give x and y in metres")
    return float(spot[0]), float(spot[1])


def _all_or_none(values: list[Any], name: str, kind: str) -> list[Any] | None:
    missing = sum(value is None for value in values)
    if 0 < missing < len(values):
        raise ScenarioError(
            f"{missing} of {len(values)} {kind} of the graph have no {name!r}; "
            "give it to all of them, or to none"
        )
    return None if missing else values


def check_medium(network: Network, plan: PlanOptions, devices: Devices) -> None:
    """Refuse combinations of the medium with other settings that have no meaning."""
    shared, range_m = network.medium == "shared", network.interference_m
    if range_m is not None and not shared:
        raise ScenarioError(
            f"network.interference_m = {range_m:g} applies to a shared medium only; set "
            'network.medium = "shared", or leave network.interference_m out',
            field="network.interference_m",
        )
    placed = devices.x_m is not None and devices.y_m is not None
    bare = next((name for name in ("gains", "links") if getattr(network, name) is not None), None)
    if range_m is not None and bare is not None and not placed:
        raise ScenarioError(
            f"network.interference_m = {range_m:g} needs the devices' places, and network.{bare} "
            "has none; give devices.x_m and devices.y_m, or leave network.interference_m out",
            field="network.interference_m",
        )
    if range_m is not None and devices.positions is not None:
        raise ScenarioError(
            f"network.interference_m = {range_m:g} is for devices that stay where they are, and "
            "devices.positions moves them; leave one of them out",
            field="network.interference_m",
        )
    asked = 'network.medium = "shared"' if shared else "network.broadcast = true"
    if (shared or network.broadcast) and "paper" in (plan.physics, plan.timed):
        said = "physics" if plan.physics == "paper" else "timing"
        raise ScenarioError(
            f'{asked} has no price under plan.{said} = "paper", which knows neither slots nor '
            "broadcasts; leave one of them out"
        )
    if network.broadcast and network.duplex == "half" and not shared:
        raise ScenarioError(
            'network.duplex = "half" lets a device serve one link at a time, and '
            'network.broadcast = true several; set network.medium = "shared", where a device takes '
            "part in one transmission at a time, or leave one of them out",
            field="network.duplex",
        )


def check_power(network: Network, plan: PlanOptions, devices: Devices) -> None:
    """Refuse transmit powers that contradict each other or leave nothing to choose."""
    given = [
        name
        for name in ("power_range_w", "power_levels_w", "power_drawn_w", "circuit_w")
        if getattr(devices, name) is not None
    ]
    if given and devices.send_j_per_bit is not None:
        raise ScenarioError(
            f"devices.{given[0]} beside devices.send_j_per_bit, which fixes the joules of a bit "
            "whatever the power; give either",
            remedies=[
                (Edit("devices.send_j_per_bit", None),),
                tuple(Edit(f"devices.{name}", None) for name in given),
            ],
        )
    for one, other in (("power_range_w", "power_levels_w"), ("power_drawn_w", "circuit_w")):
        if one in given and other in given:
            raise ScenarioError(
                f"devices.{one} and devices.{other} are two statements of the same; give either",
                remedies=[(Edit(f"devices.{name}", None),) for name in (one, other)],
            )
    if devices.power_drawn_w is not None and shape_of(devices.power_drawn_w) != shape_of(
        devices.power_levels_w or ()
    ):
        raise ScenarioError(
            "devices.power_drawn_w must give what is drawn at each of devices.power_levels_w",
            field="devices.power_drawn_w",
        )
    if plan.power == "full":
        return
    if devices.power_range_w is None and devices.power_levels_w is None:
        raise ScenarioError(
            f'plan.power = "{plan.power}" has no powers to choose from; give '
            "devices.power_range_w = [lowest, highest] or devices.power_levels_w",
            remedies=[(Edit("plan.power", "full"),)],
        )
    if network.links is not None:
        raise ScenarioError(
            f'plan.power = "{plan.power}" with network.links, whose rates are measured at one '
            "power and do not tell those of another",
            remedies=[(Edit("plan.power", "full"),)],
        )


def shape_of(levels: tuple[Any, ...]) -> tuple[int, ...]:
    """Number of levels, of all devices together or of each."""
    return tuple(len(one) if isinstance(one, tuple) else -1 for one in levels)


def check_clocks(devices: Devices, plan: PlanOptions) -> None:
    """Refuse a range of clocks that no processor has, or clocks without a range."""
    given = devices.clock_range
    if given is not None and not 0 < given[0] <= given[1] <= 1:
        low, high = sorted(min(max(one, 0.0), 1.0) for one in given)
        raise ScenarioError(
            f"devices.clock_range = [{given[0]:g}, {given[1]:g}] must rise within (0, 1], as "
            "shares of full speed",
            remedies=[(Edit("devices.clock_range", [low or 0.1, high or 1.0]),)],
        )
    if given is None and devices.clock_floor is not None:
        raise ScenarioError(
            f"devices.clock_floor = {devices.clock_floor:g} is the floor of a clock_range, and "
            "there is none",
            remedies=[
                (Edit("devices.clock_range", [devices.clock_floor, 1.0]),),
                (Edit("devices.clock_floor", None),),
            ],
        )
    path = devices.operating_points
    for name in ("clock_range", "step_s", "step_j"):
        if path is not None and getattr(devices, name) is not None:
            raise ScenarioError(
                f"devices.operating_points = {path!r:.60} has the devices' speeds, and "
                f"devices.{name} is given as well; give either",
                remedies=[
                    (Edit(f"devices.{name}", None),),
                    (Edit("devices.operating_points", None),),
                ],
            )
    if plan.clock in ("just-in-time", "auto") and given is None and path is None:
        raise ScenarioError(
            f'plan.clock = "{plan.clock}" needs the speeds at which processors can run: '
            "devices.clock_range or devices.operating_points",
            remedies=[(Edit("devices.clock_range", [0.5, 1.0]),), (Edit("plan.clock", "full"),)],
        )


PRESETS = ("default", "adaptive", "paper", "narrowband")


class Scenario(BaseModel):
    """One training to plan: devices, radio, budgets, and what is learned.

    The fields hold what was resolved: given values, completed from the device table, profiles and
    defaults. `given` is what the user said, and `origin` tells where a field's value comes from;
    neither counts when scenarios are compared.

    >>> scenario = Scenario.preset("adaptive").override({"devices.count": 8})
    >>> scenario.devices.count, scenario.network.topology
    (8, 'ring')
    >>> Scenario(devices={"cout": 3})
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: devices.cout: unknown field; did you mean 'count'?
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: Annotated[
        int, Field(ge=0, strict=True, description="determines the world and every random draw")
    ] = 0
    devices: Devices = Devices()
    network: Network = Network()
    budget: Budget = Budget()
    plan: PlanOptions = PlanOptions()
    training: Training = Training()
    bounds: Bounds = Bounds()

    _layers: tuple[Layer, ...] = PrivateAttr(default=())
    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)

    def __init__(self, **values: Any) -> None:
        self._build((Layer(GIVEN, fields_of(values)),))

    @classmethod
    def _of(cls, *layers: Layer) -> Self:
        """The scenario that some layers of statements describe; of two the later one wins."""
        made = cls.__new__(cls)
        made._build(layers)
        return made

    def _build(self, layers: tuple[Layer, ...]) -> None:
        said = completed(layers)
        try:
            super().__init__(**nested(said))
        except ValidationError as error:
            raise refusal_of(error, Scenario) from None
        check_links(self.network)
        check_table(self.devices, self.budget)
        check_medium(self.network, self.plan, self.devices)
        check_power(self.network, self.plan, self.devices)
        check_bits(self.network, self.plan, self.training)
        check_clocks(self.devices, self.plan)
        self._layers = own_statements(layers, said)
        self._origins = {name: one.origin for name, one in said.items()}

    def __eq__(self, other: object) -> bool:
        """Whether all fields are equal, wherever their values come from."""
        return isinstance(other, Scenario) and self.__dict__ == other.__dict__

    @property
    def given(self) -> dict[str, Any]:
        """What the user gave, by field: not what a preset, a table, a profile or a default says.

        >>> Scenario(devices={"profile": "esp32"}).override({"seed": 3}).given
        {'devices.profile': 'esp32', 'seed': 3}
        """
        said = latest(self._layers)
        return {name: one.value for name, one in said.items() if one.origin.kind == "given"}

    @property
    def base(self) -> Origin:
        """Where fields come from that nobody mentions: the preset, or ``assumed``.

        The preset ``"default"`` gives nothing: its figures are the fields' defaults.
        """
        first = self._layers[0] if self._layers else Layer(ASSUMED, {})
        return first.origin if first.origin.kind == "preset" and first.fields else ASSUMED

    @property
    def name(self) -> str:
        """What it is called: its file's name without the ending, or its preset's; or empty.

        >>> Scenario.preset("paper").override({"seed": 3}).name, Scenario().name
        ('paper', '')
        """
        first = self._layers[0].origin if self._layers else ASSUMED
        return Path(first.source).stem

    def origin(self, name: str) -> Origin:
        """Where the value of a field comes from.

        >>> one = Scenario(devices={"profile": "esp32"}, budget={"energy_j": 5.0})
        >>> for name in ("budget.energy_j", "devices.cpu_hz", "budget.total_s"):
        ...     print(name, one.origin(name))
        budget.energy_j given
        devices.cpu_hz from profile esp32
        budget.total_s assumed
        """
        require_field(name)
        return self._origins.get(name, self.base)

    def origins(self) -> dict[str, Origin]:
        """Where the value of every field comes from, by full name.

        >>> len(Scenario().origins()) == len(Scenario.preset("adaptive").origins())
        True
        """
        return {name: self._origins.get(name, self.base) for name in field_names()}

    def with_origins(self, origins: Mapping[str, Origin]) -> Self:
        """The same scenario with origins that were recorded when its values were resolved."""
        made = self.model_copy()
        made._origins = {**self.origins(), **origins}
        return made

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """The JSON Schema, whose defaults are the resolved ones: a radio's where it gives them."""
        schema: dict[str, Any] = super().model_json_schema(*args, **options)
        default = cls().model_dump(mode="json")
        for name, kind in SECTIONS.items():
            schema["properties"][name].pop("default", None)  # said field by field
            for field, part in schema["$defs"][kind.__name__]["properties"].items():
                part["default"] = default[name][field]
        return schema

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a scenario from a TOML (or ``.json``) file; paths in it are relative to it."""
        path = Path(path)
        kind, read = ("JSON", parse_json) if path.suffix == ".json" else ("TOML", tomllib.loads)
        try:
            values = read(path.read_bytes().decode())
        except ScenarioError:
            raise
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
        values = absolute_paths(_mapping(values, str(path)), path.parent)
        return cls._of(Layer(Origin("given", path.name), fields_of(values)))

    @classmethod
    def from_toml(cls, text: str, folder: str | Path = ".") -> Self:
        """The scenario that a TOML text describes; paths in it are relative to a folder.

        >>> Scenario.from_toml("[devices]\\ncount = 8").devices.count
        8
        """
        try:
            values = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise ScenarioError(
                f"the text is no TOML ({_reason(error)}); `joulemesh init FILE` writes a good one"
            ) from None
        values = absolute_paths(_mapping(values, "the text"), Path(folder))
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The scenario that `to_json` wrote.

        >>> one = Scenario.preset("adaptive")
        >>> Scenario.from_json(one.to_json()) == one
        True
        """
        try:
            values = parse_json(text)
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
        presets = resources.files("joulemesh.scenario") / "presets"
        text = (presets / f"{name}.toml").read_text("utf-8")
        return cls._of(Layer(Origin("preset", name), fields_of(tomllib.loads(text))))

    def override(self, changes: Mapping[str, Any], *, source: str = "") -> Self:
        """The same scenario with some fields changed: ``{"devices.count": 50}``.

        What is said last wins: another profile brings its own figures, whatever was given before.

        Args:
            changes: values by full names.
            source: where they come from, for `origin`: a file's name or an option's.

        >>> one = Scenario(devices={"cpu_hz": 1e9}).override({"devices.profile": "esp32"})
        >>> one.devices.cpu_hz
        240000000.0
        """
        return self._of(*self._layers, Layer(Origin("given", source), fields_of(changes)))

    def without(self, *names: str) -> Self:
        """The same scenario in which nobody gives some fields: the default or a profile does.

        >>> Scenario(network={"profile": "lora"}).without("network.profile") == Scenario()
        True
        """
        layers = (
            Layer(one.origin, {k: v for k, v in one.fields.items() if k not in names})
            for one in self._layers
        )
        return self._of(*layers)

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

    def __repr__(self) -> str:
        """In one line; `to_toml` has every field."""
        links = self.network.topology
        graph = links if isinstance(links, str) else f"{len(links)} links"
        n = self.plan.iterations
        times = f"{n:,} iterations" if isinstance(n, int) else f"{n} iterations"
        learns = f"{self.training.model} on {self.training.dataset}, seed {self.seed}"
        return f"Scenario({self.devices.count:,} devices, {graph}, {times}, {learns})"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import joulemesh  # the front door knows the views; this room does not

        page: str = joulemesh.notebook_html(self)
        return page


@cache
def field_names() -> tuple[str, ...]:
    """Full names of all fields: ``"seed"``, ``"devices.count"``, …"""
    own = (f"{name}.{field}" for name, kind in SECTIONS.items() for field in kind.model_fields)
    return ("seed", *own)


def require_field(name: str) -> None:
    """Refuse a name that is not the full name of a field, with the one that was probably meant."""
    names = field_names()
    if name in names:
        return
    own = [known for known in names if known.partition(".")[2] == name.rpartition(".")[2]]
    close = [*difflib.get_close_matches(name[:60], names, 1), *own]
    hint = f"did you mean {close[0]!r}?" if close else "write section.field"
    raise ScenarioError(f"{name[:60]!r} is not a field of a scenario; {hint}")


def _mapping(values: Any, where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ScenarioError(f"{where} holds no scenario: write an object with sections")
    fields, known = len(fields_of(values)), len(field_names())
    if fields > 10 * known:  # each unknown one would be looked at
        raise ScenarioError(
            f"{where} has {fields:,} fields, and a scenario {known}; "
            "`joulemesh init FILE` writes a good one"
        )
    return values


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
