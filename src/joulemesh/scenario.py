"""What the user says: one TOML file, one immutable, validated `Scenario`.

Every field has its unit in its name, a default and a one-line description; `joulemesh init`, the
JSON Schema and the reference page are all made from this file.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from joulemesh.errors import ScenarioError
from joulemesh.tables import read_table

__all__ = [
    "PRESETS",
    "SECTIONS",
    "TOPOLOGIES",
    "Bounds",
    "Budget",
    "Devices",
    "Network",
    "PlanOptions",
    "Scenario",
    "Training",
]

PRESETS = ("default", "paper", "narrowband")
TOPOLOGIES = ("ring", "quasi-ring", "grid", "complete", "geometric")

Quantity = float | str | tuple[float, ...] | dict[str, tuple[float, ...]]
"""A per-device quantity: one number, (low, high), a list, {"values": …}, or a column's name."""

_NUMBER = {"type": "number"}
_QUANTITY_SCHEMA = {
    "anyOf": [
        _NUMBER,
        {"type": "array", "items": _NUMBER, "minItems": 2},
        {"type": "string", "description": "a column of devices.table"},
        {"type": "object", "properties": {"range": {"type": "array"}, "values": {"type": "array"}}},
    ]
}


def _number(value: Any, minimum: float, *, strict: bool) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {value!r}")
    if not abs(value) < float("inf"):
        raise ValueError(f"must be a finite number, not {value!r}")
    if value < minimum or (strict and value == minimum):
        raise ValueError(
            f"must be {'greater than' if strict else 'at least'} {minimum:g}, not {value!r}"
        )
    return float(value)


def _quantity_check(minimum: float, *, strict: bool) -> Callable[[Any], Quantity]:
    def check(value: Any) -> Quantity:
        if isinstance(value, str):
            return value
        explicit = isinstance(value, Mapping) and len(value) == 1
        kind, items = next(iter(value.items())) if explicit else ("", value)
        if not isinstance(items, list | tuple):
            if isinstance(value, Mapping):
                raise ValueError("must be {range = [low, high]} or {values = [...]}")
            return _number(value, minimum, strict=strict)
        numbers = tuple(_number(item, minimum, strict=strict) for item in items)
        if explicit and kind not in ("range", "values"):
            raise ValueError(f"must be {{range = ...}} or {{values = ...}}, not {kind!r}")
        if not numbers:
            raise ValueError("is an empty list")
        if kind == "values":
            return {"values": numbers} if len(numbers) == 2 else numbers
        if kind == "range" and len(numbers) != 2:
            raise ValueError("a range has two numbers, [low, high]")
        if len(numbers) == 2 and numbers[0] > numbers[1]:
            raise ValueError(
                f"the range {list(numbers)} runs backwards; "
                "write [low, high], or {values = [...]} for two devices' own values"
            )
        return numbers

    return check


def _or_word(check: Callable[[Any], Any], *words: str) -> BeforeValidator:
    """A number accepted by ``check``, or one of ``words``."""

    def validate(value: Any) -> Any:
        if isinstance(value, str):
            if value not in words:
                raise ValueError(f"must be a number or one of {', '.join(words)}, not {value!r}")
            return value
        return check(value)

    return BeforeValidator(validate)


def _schema(number: dict[str, Any], *words: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [number, {"enum": list(words)}]})


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"must be a whole number of at least 1, not {value!r}")
    return value


def _constant(value: Any) -> float:
    return _number(value, 0.0, strict=False)


_COUNT_SCHEMA = {"type": "integer", "minimum": 1}
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, strict=True)]
Unit = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)]
Iterations = Annotated[
    Any, _or_word(_count, "longest", "bound"), _schema(_COUNT_SCHEMA, "longest", "bound")
]
GossipRounds = Annotated[
    Any, _or_word(_count, "epsilon", "balanced"), _schema(_COUNT_SCHEMA, "epsilon", "balanced")
]
Constant = Annotated[Any, _or_word(_constant, "estimate"), _schema(_NUMBER, "estimate")]
PositiveQuantity = Annotated[
    Any, BeforeValidator(_quantity_check(0.0, strict=True)), WithJsonSchema(_QUANTITY_SCHEMA)
]
Coordinate = Annotated[
    Any,
    BeforeValidator(_quantity_check(-float("inf"), strict=False)),
    WithJsonSchema(_QUANTITY_SCHEMA),
]
Samples = Annotated[  # the word "partition" passes as a column's name would
    Any, BeforeValidator(_quantity_check(1.0, strict=False)), WithJsonSchema(_QUANTITY_SCHEMA)
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class Devices(_Section):
    """The devices: a number, [low, high], a list, or a column of the table for each quantity."""

    count: Count = Field(20, description="number of devices N (the table's rows, if it is given)")
    cpu_hz: PositiveQuantity = Field(2e9, description="processor speed f_i")
    cycles_per_sample: PositiveQuantity = Field(
        (1000.0, 3000.0), description="cycles C_i to train on one sample once"
    )
    capacitance: PositiveQuantity = Field(
        1e-27, description="effective capacitance theta_i, joules per cycle and hertz squared"
    )
    transmit_power_w: PositiveQuantity = Field(1.0, description="radio transmit power p_t")
    samples: Samples = Field(
        "partition", description='samples D_i held by each device, or "partition"'
    )
    x_m: Coordinate | None = Field(None, description="positions, if not drawn from the seed")
    y_m: Coordinate | None = Field(None, description="positions, if not drawn from the seed")
    table: str | None = Field(None, description="CSV file, one row per device, columns by name")


class Network(_Section):
    """The radio graph and its links."""

    topology: str = Field(
        "ring",
        description="ring | quasi-ring | grid | complete | geometric | path of a CSV file (i,j)",
    )
    area_m: Positive = Field(500.0, description="side of the square that holds the devices")
    placement: Literal["auto", "layout", "uniform"] = Field(
        "auto", description="layout: along the topology's shape; uniform: anywhere in the square"
    )
    bandwidth_hz: Positive = Field(20e6, description="bandwidth B of a link")
    noise_dbm_per_hz: Finite = Field(-174.0, description="noise power density N_0")
    path_loss: Literal["3gpp-macro", "power-law"] = Field(
        "3gpp-macro",
        description="3gpp-macro: 128.1 + 37.6 log10(km) dB; power-law: by the next two fields",
    )
    path_loss_exponent: Positive = Field(3.0, description="power-law: exponent")
    path_loss_reference_db: Finite = Field(30.0, description="power-law: loss at 1 m")
    shadowing_db: NonNegative = Field(0.0, description="log-normal shadowing, standard deviation")
    chords: Annotated[int, Field(ge=0, strict=True)] = Field(
        2, description="quasi-ring: chords added to the ring"
    )
    mean_degree: Positive = Field(20.0, description="geometric: wanted mean number of neighbours")
    fading: Literal["none", "rayleigh"] = Field("none", description="block fading: none | rayleigh")
    coherence_iterations: Count = Field(1, description="iterations over which a fade lasts")
    channel_known: bool = Field(True, description="may the planner see the gains?")
    gains: str | None = Field(
        None, description="CSV file (i,j,gain) in place of positions and path loss"
    )
    bits_per_parameter: Count = Field(32, description="bits sent per model parameter")
    duplex: Literal["orthogonal", "half"] = Field(
        "orthogonal", description="half: a device serves one link at a time"
    )


class Budget(_Section):
    """What may be spent."""

    energy_j: PositiveQuantity = Field(
        0.25, description="each device's battery for the whole training"
    )
    deadline_s: Positive = Field(0.012, description="time allowed to each iteration")


class PlanOptions(_Section):
    """How the plan is made."""

    aggregation: Literal["auto", "tree", "ring", "ring-chunked", "gossip", "metropolis"] = Field(
        "auto", description="scheme; auto is Theorem 3"
    )
    rounds: Literal["theorem4", "theorem4-literal", "backfill", "uniform", "fixed", "inverse"] = (
        Field("theorem4", description="policy that spreads a device's rounds over the iterations")
    )
    zeta: Positive = Field(400.0, description="Theorem 4's zeta; must exceed iterations - 1")
    iterations: Iterations = Field(
        100, description='number n of iterations, or "longest", or "bound"'
    )
    fixed_rounds: Count = Field(3, description='rounds per iteration when rounds = "fixed"')
    epsilon: Unit = Field(0.05, description="wanted consensus error of gossip and metropolis")
    gossip_rounds: GossipRounds = Field(
        "epsilon",
        description='gossip ticks or rounds: "epsilon", a number, or "balanced" (Remark 4)',
    )
    gossip_mode: Literal["ticks", "matchings"] = Field(
        "ticks", description="ticks: one pair at a time; matchings: many disjoint pairs a round"
    )
    gossip_guarantee: Literal["expected", "probability"] = Field(
        "expected", description="epsilon holds in mean square, or with probability 1 - epsilon"
    )
    physics: Literal["physical", "paper"] = Field(
        "physical",
        description="paper: both ends pay, latency by eq. tcp, gossip K = ceil(ln 1/eps)",
    )
    accounting: Literal["transmitter", "both-ends"] | None = Field(
        None, description="who pays for a transmission; unset: by physics"
    )
    timing: Literal["critical-path", "paper"] | None = Field(
        None, description="clock of an exchange; unset: by physics"
    )
    on_depletion: Literal["refuse", "leave"] = Field(
        "refuse", description="a battery that cannot pay: refuse the plan, or let the device leave"
    )
    fade_quantile: Unit = Field(0.9, description="quantile of link energy reserved for the future")
    coordination: bool = Field(
        False, description="price the flooding of link costs (64 bits per link) for the tree"
    )
    ring_search_limit: Count = Field(200_000, description="nodes visited in search of a ring")

    @property
    def pays(self) -> str:
        """Who pays for a transmission: ``"transmitter"`` or ``"both-ends"``."""
        return self.accounting or ("both-ends" if self.physics == "paper" else "transmitter")

    @property
    def clock(self) -> str:
        """How an exchange is timed: ``"critical-path"`` or ``"paper"``."""
        return self.timing or ("paper" if self.physics == "paper" else "critical-path")


class Training(_Section):
    """What is learned, and how."""

    dataset: str = Field(
        "digits", description="digits | mnist | fashion-mnist | cifar-10 | path of an .npz file"
    )
    data_dir: str | None = Field(None, description="folder with the data set's original files")
    partition: Literal["iid", "dirichlet", "shards", "quantity", "resample"] = Field(
        "dirichlet", description="how samples are dealt to devices"
    )
    alpha: Positive = Field(0.5, description="dirichlet and quantity: concentration")
    shards_per_device: Count = Field(2, description="shards: label shards per device")
    model: Literal["logistic", "mlp", "cnn"] = Field("mlp", description="model to train")
    hidden: tuple[Count, ...] = Field((64,), description="mlp: sizes of the hidden layers")
    l2: NonNegative = Field(0.0, description="L2 regularisation (logistic needs more than 0)")
    batch_size: Count = Field(32, description="samples in one SGD step")
    learning_rate: Positive = Field(0.05, description="learning rate eta")
    optimizer: str = Field("sgd", description="sgd, or any optimiser of optax by name")
    local_round: Literal["step", "epoch"] = Field(
        "step", description="a round is one SGD step, or one pass over the device's samples"
    )
    weights: Literal["uniform", "samples"] = Field(
        "uniform", description="weights of the mean: 1/N, or by samples"
    )
    eval_every: Count = Field(5, description="iterations between evaluations")
    eval_device_samples: Count = Field(
        1000, description="test samples on which the devices' own models are evaluated"
    )
    precision: Literal["float32", "float64", "bfloat16"] = Field(
        "float32", description="arithmetic; bfloat16 keeps float32 parameters"
    )
    chunk_iterations: Count = Field(20, description="iterations in one compiled call")


class Bounds(_Section):
    """Constants of the convergence bounds: numbers, or "estimate"."""

    strong_convexity: Constant = Field("estimate", description="m")
    smoothness: Constant = Field("estimate", description="M")
    gradient_variance: Constant = Field("estimate", description="sigma")
    gradient_bound: Constant = Field("estimate", description="G")
    divergence: Constant = Field("estimate", description="delta")
    initial_gap: Constant = Field("estimate", description="mean of F_i(w_1) - F_i*")

    @property
    def known(self) -> bool:
        """True when every constant is a number."""
        return "estimate" not in self.model_dump().values()


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
            super().__init__(**_with_table_rows(values))
        except ValidationError as error:
            raise ScenarioError(_one_line(error)) from None
        _check_topology(self.network.topology)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a scenario from a TOML file; relative paths in it are relative to it."""
        path = Path(path)
        try:
            text = path.read_bytes().decode()
            values = tomllib.loads(text)
        except OSError as error:
            raise ScenarioError(
                f"cannot read {path}: {error.strerror}; `joulemesh init {path}` writes one"
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ScenarioError(
                f"{path} is not a TOML file ({error}); `joulemesh init FILE` writes a good one"
            ) from None
        return cls(**_absolute_paths(values, path.parent))

    @classmethod
    def preset(cls, name: str) -> Self:
        """A scenario by name: one of `PRESETS`."""
        if name not in PRESETS:
            raise ScenarioError(f"unknown preset {name!r}; the presets are {', '.join(PRESETS)}")
        text = resources.files("joulemesh.presets").joinpath(f"{name}.toml").read_text("utf-8")
        return cls(**tomllib.loads(text))

    def override(self, changes: Mapping[str, Any]) -> Self:
        """The same scenario with some fields changed: ``{"devices.count": 50}``."""
        values = self.model_dump(exclude_unset=True)
        if "devices.table" in changes and self.devices.table is not None:
            _forget_table(values)
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
        return _to_toml(self, comments)


SECTIONS: dict[str, type[_Section]] = {
    "devices": Devices,
    "network": Network,
    "budget": Budget,
    "plan": PlanOptions,
    "training": Training,
    "bounds": Bounds,
}

_PATHS = {
    "devices": ("table",),
    "network": ("topology", "gains"),
    "training": ("dataset", "data_dir"),
}


def _absolute_paths(values: dict[str, Any], folder: Path) -> dict[str, Any]:
    for section, fields in _PATHS.items():
        table = values.get(section)
        if not isinstance(table, dict):
            continue
        for field in fields:
            value = table.get(field)
            if not isinstance(value, str) or value in TOPOLOGIES:
                continue
            if field == "dataset" and not value.endswith(".npz"):
                continue  # a name, even if a folder beside the scenario is called after it
            if _exists(folder / value):
                table[field] = str((folder / value).resolve())
    return values


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name too long for a file is no file
        return False


def _with_table_rows(values: dict[str, Any]) -> dict[str, Any]:
    """Take the number of devices, and fields that are not given, from the device table."""
    devices, budget = (_as_dict(values.get(name)) for name in ("devices", "budget"))
    if devices is None or not isinstance(devices.get("table"), str):
        return values
    columns = read_table(devices["table"])
    rows = len(next(iter(columns.values())))
    if devices.setdefault("count", rows) != rows:
        raise ScenarioError(
            f"devices.count is {devices['count']} but {devices['table']} has {rows} rows; "
            "leave devices.count out"
        )
    named = {field: devices for field in Devices.model_fields if field not in ("count", "table")}
    if budget is not None:
        named["energy_j"] = budget
    for field, section in named.items():
        if field in columns and section.setdefault(field, field) != field:
            raise ScenarioError(
                f"{field} is given both in the scenario and as a column of {devices['table']}; "
                f'write {field} = "{field}" to take the column, or drop the column'
            )
    return {**values, "devices": devices, **({} if budget is None else {"budget": budget})}


def _as_dict(section: Any) -> dict[str, Any] | None:
    """A copy of a section's values, however it is given; None for what is no section."""
    if isinstance(section, _Section):
        return section.model_dump(exclude_unset=True)
    return dict(section or {}) if section is None or isinstance(section, Mapping) else None


def _forget_table(values: dict[str, Any]) -> None:
    """Drop what `_with_table_rows` took from the device table, so that another can replace it."""
    values["devices"].pop("count", None)
    for section in ("devices", "budget"):
        given = values.get(section, {})
        values[section] = {field: value for field, value in given.items() if field != value}


def _check_topology(name: str) -> None:
    if name in TOPOLOGIES or (_exists(Path(name)) and Path(name).is_file()):
        return
    close = difflib.get_close_matches(name, TOPOLOGIES, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"one of {', '.join(TOPOLOGIES)}"
    raise ScenarioError(
        f"network.topology: {_short(name)} is neither a topology nor a file; {hint}"
    )


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = [str(part) for part in first["loc"] if not str(part).startswith("function-")]
    field = ".".join(where)
    if first["type"] == "extra_forbidden":
        section = SECTIONS.get(where[0]) if len(where) > 1 else Scenario
        known = list(section.model_fields) if section else []
        close = difflib.get_close_matches(where[-1], known, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
        return f"{field}: unknown field; {hint}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:] if message.startswith("Input") else message
    got = "" if ", not " in message else f" (got {_short(first['input'])})"
    more = f"; {len(error.errors()) - 1} more errors" if len(error.errors()) > 1 else ""
    return f"{field}: {message}{got}{more}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _to_toml(scenario: Scenario, comments: bool) -> str:
    lines = ["# A Joulemesh scenario." if comments else "", f"seed = {scenario.seed}"]
    for name, section in SECTIONS.items():
        values = getattr(scenario, name)
        doc = f"    # {(section.__doc__ or '').strip()}" if comments else ""
        lines += ["", f"[{name}]{doc}"]
        for field, info in section.model_fields.items():
            value = getattr(values, field)
            entry = f"{field} = {_toml_value(value)}" if value is not None else f"# {field} ="
            if comments:
                lines.append(f"{entry:<36} # {info.description}")
            elif value is not None:
                lines.append(entry)
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for the delete character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml_value(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    return repr(value)
