"""Kinds of values that a scenario's fields may have, with their checks and their JSON Schema; what
a field says of itself besides; patterns of exchanges.

A field that is a file is completed in the shell, resolved against the scenario's folder, kept with
runs and sent to devices; one mark in its annotation does all of that."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import core_schema

from joulemesh import fading
from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import example, is_quantity, parse
from joulemesh.registries import LOSSES, METRICS, MODELS, PARTITIONS, POLICIES, SCHEMES
from joulemesh.scenario.profiles import DEVICES, RADIOS

_TABLES = (".csv", ".tsv", ".txt")
DATA = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".arrow")
"""Ends of names of files with samples."""


def _whole(value: str) -> str | None:
    return value


@dataclass(frozen=True)
class File:
    """The field may name a file.

    Attributes:
        ends: of names of such files, for the shell; empty for folders.
        path: the path in a value that is a text; None where it names something else.
        heads: what may stand before the path, for the shell.
        kept: a copy is kept with what is made from it.
    """

    ends: tuple[str, ...] = _TABLES
    path: Callable[[str], str | None] = _whole
    heads: tuple[str, ...] = ("",)
    kept: bool = True

    def path_in(self, value: Any) -> str | None:
        """The path in a value of the field, if it may name a file."""
        return self.path(value) if isinstance(value, str) and value else None


@dataclass(frozen=True)
class Ideal:
    """A value that leaves something of the radio out, and what it leaves out, in words.

    Attributes:
        value: as a plan names it; also where the field is unset.
        means: in words.
    """

    value: float | str
    means: str


@dataclass(frozen=True)
class _Columnless:
    """A field of the section ``devices`` that is no column of the device table."""


COLUMNLESS = _Columnless()


def table_file(value: str) -> str | None:
    """A table by its name, where other texts are columns of the device table."""
    return value if value.lower().endswith(_TABLES) else None


def python_file(value: str) -> str | None:
    """The file of ``FILE.py:NAME``; other texts are names."""
    path, colon, _ = value.rpartition(":")
    return path if colon and path.endswith(".py") else None


def after_colon(value: str) -> str | None:
    """The file of ``KIND:FILE``."""
    return value.partition(":")[2] or None


def data_file(value: str) -> str | None:
    """The file of a data set; its name stays one, even if a folder is called after it."""
    if value.startswith("folder:"):
        return value.removeprefix("folder:") or None
    return value if "." in Path(value).name else None


_Count = Annotated[int, Field(ge=1, strict=True)]


class ExchangePattern(BaseModel):
    """An exact average in some iterations, neighbours or nothing in the others.

    D-PSGD exchanges with neighbours only, Gossip-PGA averages exactly in every P-th iteration
    (``every = P``), a single merge in the last one (``final = true``), and SkipTrain alternates
    iterations with training and without (``train``, ``mix``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    between: Literal["neighbours", "none"] = Field(
        "neighbours", description="exchange of the iterations without an exact average"
    )
    times: _Count = Field(1, description="how often everybody mixes with all neighbours then")
    every: _Count | None = Field(None, description="exact average in every so many-th iteration")
    final: bool = Field(False, description="exact average in the last iteration")
    train: _Count | None = Field(None, description="iterations with training in a row")
    mix: _Count | None = Field(None, description="iterations without training that follow them")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.train is None) != (self.mix is None):
            raise ValueError("give train and mix together, or neither")
        if self.between == "none" and self.every is None and not self.final:
            raise ValueError('devices never exchange; give every or final, or between="neighbours"')
        return self

    @property
    def exact(self) -> bool:
        """Does some iteration end with an exact average?"""
        return self.every is not None or self.final

    def averages(self, iterations: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations that end with an exact average."""
        chosen = np.zeros(iterations, np.bool_)
        if self.every is not None:
            chosen[self.every - 1 :: self.every] = True
        if self.final:
            chosen[-1:] = True
        return chosen

    def trains(self, iterations: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations in which devices may train."""
        if self.train is None or self.mix is None:
            return np.ones(iterations, np.bool_)
        return np.arange(iterations) % (self.train + self.mix) < self.train

    def __str__(self) -> str:
        """In words."""
        words = "nothing" if self.between == "none" else "neighbours"
        words += f" {self.times} times" if self.times > 1 and words == "neighbours" else ""
        when = [f"in every {_ordinal(self.every)} iteration"] if self.every else []
        when += ["in the last"] if self.final else []
        words += f", an exact average {' and '.join(when)}" if when else ""
        if self.train is not None:
            words += f"; {self.train} iterations with training, {self.mix} without, in turn"
        return words


def pattern_of(value: Any) -> Any:
    """A name as it is, a table as a pattern."""
    if value in ("exact", "neighbours"):
        return value
    known = ExchangePattern.model_fields
    if not isinstance(value, Mapping):
        raise ValueError(
            f'give "exact", "neighbours" or a table of {", ".join(known)}, not {value!r:.40}'
        )
    for name in value:
        if name not in known:
            raise ValueError(f"{name!r:.40} is not one of {', '.join(known)}")
    try:
        return ExchangePattern(**value)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"][:1])
        raise ValueError(where + first["msg"].removeprefix("Value error, ")) from None


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else ends.get(number % 10, 'th')}"


class Registered:
    """A text that names an entry of a registry, in one of the spellings that are now known."""

    def __init__(self, spellings: Callable[[], Iterable[str]]) -> None:
        self._spellings = spellings

    def check(self, value: Any) -> str:
        """The value, if it is one of the spellings."""
        known = {text.partition(":")[0]: text for text in self._spellings()}
        name, colon, argument = value.partition(":") if isinstance(value, str) else (None, "", "")
        if name in known:
            takes = ":" in known[name]
            if bool(colon) == takes and bool(argument.strip()) == takes:
                return str(value)
            raise ValueError(f"must be written {known[name]!r}, not {value!r:.60}")
        close = difflib.get_close_matches(str(value)[:60], known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else "; --load FILE.py adds your own"
        raise ValueError(f"must be one of {', '.join(known.values())}, not {value!r:.60}{hint}")

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        known = tuple(self._spellings())
        plain: dict[str, Any] = {"enum": [name for name in known if ":" not in name]}
        patterns = [
            {"type": "string", "pattern": f"^{re.escape(name.partition(':')[0])}:.+"}
            for name in known
            if ":" in name
        ]
        return {"anyOf": [plain, *patterns]} if patterns else {**plain, "type": "string"}


class ModelNames(Registered):
    """A registered model, or one in a file of the user's own."""

    def check(self, value: Any) -> str:
        """The value, if it is one of the spellings or names a class or object in a file."""
        if isinstance(value, str) and re.fullmatch(r".+\.py:[A-Za-z_]\w*", value):
            return value
        return super().check(value)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        names = [name for name in self._spellings() if ":" not in name]
        own = {"type": "string", "pattern": r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$"}
        return {"anyOf": [{"enum": names}, own]}


class RegisteredNames(Registered):
    """Several such texts; one alone may be written without brackets."""

    def checked(self, value: Any) -> tuple[str, ...]:
        """The values, each once, if all are spellings."""
        several = value if isinstance(value, list | tuple) else [value]
        return tuple(dict.fromkeys(self.check(one) for one in several))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_before_validator_function(self.checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        one = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [one, {"type": "array", "items": one}]}


class NamesSchema:
    """The JSON Schema of a field that takes a registry's current names, among other values."""

    def __init__(self, names: Callable[[], Iterable[str]], others: list[Any]) -> None:
        self._names, self._others = names, others

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self._names())}, *self._others]}


def parameters_of(
    entry: str, parameters: Iterable[str], section: type[BaseModel], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a section that an entry takes: as given, otherwise their defaults."""
    parameters, fields = tuple(parameters), section.model_fields
    strange = next((name for name in [*given, *parameters] if name not in fields), None)
    if strange is not None:
        raise ScenarioError(
            f"{entry}: {strange!r} is not a field of the section {section.__name__.lower()}; "
            "parameters are fields of it"
        )
    return {name: given.get(name, fields[name].default) for name in parameters}


Quantity = float | str | tuple[float, ...] | dict[str, tuple[float, ...]]
"""A per-device quantity: one number, (low, high), a list, {"values": …}, or a column's name."""

_LARGEST = sys.float_info.max  # whole numbers in TOML may be larger
_MOST = 2**53  # beyond this, float64 skips integers

_MOST_K_DB = 60.0  # standard deviation of the power: 0.14 %

_NUMBER = {"type": "number"}
_SAYS = ("title", "description", "default")  # of a field, whatever its values are


def _quantity_schema(**limits: float) -> WithJsonSchema:
    """A number within limits, several of them, or the name of a column."""
    number, several = {**_NUMBER, **limits}, {"type": "array"}
    return WithJsonSchema(
        {
            "anyOf": [
                number,
                {**several, "items": number, "minItems": 2},
                {"type": "string", "description": "a column of devices.table"},
                {"type": "object", "properties": {"range": several, "values": several}},
            ]
        }
    )


def in_si(value: Any, unit: str) -> Any:
    """A field's value with every "number unit" in it as a number of the field's own unit."""
    if isinstance(value, str):
        return parse(value, unit) if is_quantity(value) else value
    if isinstance(value, list | tuple):
        return [in_si(item, unit) for item in value]
    if isinstance(value, Mapping):
        return {key: in_si(item, unit) for key, item in value.items()}
    return value


def schema_with_units(schema: dict[str, Any], unit: str) -> dict[str, Any]:
    """A field's JSON Schema in which each number may also be a text with a unit."""
    text = {"type": "string", "description": "a number with its unit", "examples": [example(unit)]}
    if schema.get("type") == "number":
        number = {key: value for key, value in schema.items() if key not in _SAYS}
        return {"anyOf": [number, text], **{key: schema[key] for key in _SAYS if key in schema}}
    if "items" in schema:
        return {**schema, "items": schema_with_units(schema["items"], unit)}
    if "anyOf" not in schema:
        return schema
    kinds: list[Any] = []
    for kind in schema["anyOf"]:
        wider = schema_with_units(kind, unit)
        kinds += wider.get("anyOf", [wider])
    return {**schema, "anyOf": kinds}


def checked_number(value: Any, minimum: float, *, strict: bool) -> float:
    """A finite number that is at least, or if strict greater than, the minimum."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, not {value!r}")
    if not abs(value) <= _LARGEST:
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
            return checked_number(value, minimum, strict=strict)
        numbers = tuple(checked_number(item, minimum, strict=strict) for item in items)
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


def _power_range(value: Any) -> tuple[Any, ...]:
    """A pair [lowest, highest] of watts or names of columns, or such a pair for each device."""
    pairs = [value] if not _nested(value) else value
    found = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ValueError(
                f"must be [lowest, highest], or one such pair for each device, not {value!r:.60}"
            )
        ends = tuple(
            one if isinstance(one, str) and pairs is not value else _positive(one) for one in pair
        )
        numbers = [one for one in ends if isinstance(one, float)]
        if len(numbers) == 2 and numbers[0] > numbers[1]:
            raise ValueError(f"{numbers} runs backwards; write [lowest, highest]")
        found.append(ends)
    return tuple(found) if pairs is value else found[0]


def _power_levels(value: Any) -> tuple[Any, ...]:
    """Watts of each level, or a list of them for each device."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"must be a list of watts, or one for each device, not {value!r:.60}")
    if _nested(value):
        return tuple(_power_levels(one) for one in value)
    return tuple(_positive(one) for one in value)


def _nested(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(one, list | tuple) for one in value)


def _profile(value: Any) -> str | tuple[str, ...]:
    """A profile's name, a column's, or one name for each device; unknown ones are found later."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise ValueError(f"must be a name, or a list of names, not {value!r}")


def _rician_k(value: Any) -> float | str:
    """Decibels, or the word for none: JSON has no infinity."""
    if value in ("-inf", -math.inf):
        return "-inf"
    if isinstance(value, str):
        raise ValueError(f'must be a number or "-inf", not {value!r}')
    decibels = checked_number(value, -_LARGEST, strict=False)
    if decibels > _MOST_K_DB:
        raise ValueError(
            f"must be at most {_MOST_K_DB:g}, not {value!r}; such links hardly fade: use "
            'network.fading = "none"'
        )
    return decibels


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
    if value > _MOST:
        raise ValueError(f"must be at most {_MOST}, not {value!r}")
    return value


def _constant(value: Any) -> float:
    return checked_number(value, 0.0, strict=False)


def _positive(value: Any) -> float:
    return checked_number(value, 0.0, strict=True)


def _error(value: Any) -> float:
    probability = checked_number(value, 0.0, strict=False)
    if probability >= 1:
        raise ValueError(f"must be a probability below 1, not {value!r}")
    return probability


_COUNT_SCHEMA = {"type": "integer", "minimum": 1}
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=1, le=_MOST, strict=True)]
Unit = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False, strict=True)]
Share = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)]
ClockRange = Annotated[
    tuple[Finite, Finite],
    WithJsonSchema(
        {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
    ),
]
Iterations = Annotated[
    Any,
    _or_word(_count, "auto", "longest", "bound"),
    _schema(_COUNT_SCHEMA, "auto", "longest", "bound"),
]
GossipRounds = Annotated[
    Any, _or_word(_count, "epsilon", "balanced"), _schema(_COUNT_SCHEMA, "epsilon", "balanced")
]
Zeta = Annotated[
    Any, _or_word(_positive, "auto"), _schema({"type": "number", "exclusiveMinimum": 0}, "auto")
]
PacketError = Annotated[
    Any,
    _or_word(_error, "snr"),
    _schema({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, "snr"),
]
Tries = Annotated[int, Field(ge=1, le=1000, strict=True)]
Constant = Annotated[Any, _or_word(_constant, "estimate"), _schema(_NUMBER, "estimate")]
PositiveQuantity = Annotated[
    Any, BeforeValidator(_quantity_check(0.0, strict=True)), _quantity_schema(exclusiveMinimum=0)
]
NonNegativeQuantity = Annotated[
    Any, BeforeValidator(_quantity_check(0.0, strict=False)), _quantity_schema(minimum=0)
]
HarvestedWatts = Annotated[  # a text is a column's name, or the path of a CSV file
    Any, BeforeValidator(_quantity_check(0.0, strict=False)), _quantity_schema(minimum=0)
]
_WATTS = {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1}
_ENDS = {"type": "array", "items": {"type": ["number", "string"]}, "minItems": 2, "maxItems": 2}
PowerRange = Annotated[
    Any,
    BeforeValidator(_power_range),
    WithJsonSchema({"anyOf": [_ENDS, {"type": "array", "items": _ENDS}]}),
]
PowerLevels = Annotated[
    Any,
    BeforeValidator(_power_levels),
    WithJsonSchema({"anyOf": [_WATTS, {"type": "array", "items": _WATTS}]}),
]
TracePath = Annotated[str, Field(min_length=1)]
Coordinate = Annotated[
    Any,
    BeforeValidator(_quantity_check(-float("inf"), strict=False)),
    _quantity_schema(),
]
Samples = Annotated[  # the word "partition" passes as a column's name would
    Any, BeforeValidator(_quantity_check(1.0, strict=False)), _quantity_schema(minimum=1)
]
DeviceProfile = Annotated[
    Any,
    BeforeValidator(_profile),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": [*DEVICES, "profile"]},
                {"type": "array", "items": {"enum": list(DEVICES)}},
            ]
        }
    ),
]
PartitionName = Annotated[str, Registered(lambda: (*PARTITIONS.names(), "natural", "column:NAME"))]
ModelName = Annotated[str, ModelNames(lambda: (*MODELS.names(), "FILE.py:NAME"))]
LossName = Annotated[str, ModelNames(lambda: (*LOSSES.names(), "FILE.py:NAME", "own:NAME"))]
ScoreName = Annotated[str, Registered(lambda: ("auto", *METRICS.names()))]
MetricNames = Annotated[tuple[str, ...], RegisteredNames(METRICS.names)]
RadioProfile = Annotated[str, WithJsonSchema({"enum": list(RADIOS)})]
RoundsPolicy = Annotated[str, Registered(POLICIES.names)]
AggregationName = Annotated[str, Registered(lambda: ("auto", "theorem3", *SCHEMES.names()))]
FadingName = Annotated[str, Registered(fading.spellings)]
RicianK = Annotated[
    Any,
    BeforeValidator(_rician_k),
    WithJsonSchema({"anyOf": [{"type": "number", "maximum": _MOST_K_DB}, {"enum": ["-inf"]}]}),
]
