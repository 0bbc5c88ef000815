"""Kinds of values that a scenario's fields may have, with their checks and their JSON Schema."""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    WithJsonSchema,
)
from pydantic_core import core_schema

from joulemesh import fading
from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import example, is_quantity, parse
from joulemesh.registries import LOSSES, METRICS, MODELS, PARTITIONS, POLICIES, SCHEMES
from joulemesh.scenario.profiles import DEVICES, RADIOS


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
