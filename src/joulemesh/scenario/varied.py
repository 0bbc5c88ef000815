"""Fields of a scenario that take several values, and every combination of them."""

from __future__ import annotations

import itertools
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from pydantic import BaseModel

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import is_quantity, parse, unit_of
from joulemesh.scenario.scenario import Scenario, require_field


def typed_value(text: str, where: str = "--set") -> Any:
    """A TOML value, or a bare word: ``100 Wh``, ``[6 J, 30 J]``, ``[esp32, laptop]``."""
    text = text.strip()
    if "\n" in text or "\r" in text:  # it would be several statements of TOML
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        listed = text.startswith("[") and text.endswith("]") and "[" not in text[1:]
        return [typed_value(item, where) for item in text[1:-1].split(",")] if listed else text
    except ValueError:  # more digits than Python converts
        raise ScenarioError(f"{where}: {text[:20]}… has {len(text)} digits; write 1e9") from None


MOST_COMBINATIONS = 10_000
_MOST_VALUES = 1_000
_LONGEST_LABEL, _MOST_LETTERS = 40, 100  # of a description, of what a user writes
_ROUNDING = Decimal("1e-9")  # of a step, by which the end of a range may be missed
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_WHOLE = re.compile(r"[+-]?\d{1,15}")


@dataclass(frozen=True)
class Varied:
    """A field that takes several values.

    Attributes:
        name: of the field, with its section.
        values: that it takes, as a scenario holds them.
        label: what figures and tables call it; in the words of its description unless given.
    """

    name: str
    values: tuple[Any, ...]
    label: str = ""

    @property
    def words(self) -> str:
        """What figures and tables call it."""
        return self.label or _described(self.name)

    @property
    def plain(self) -> tuple[int | float | str | bool, ...]:
        """The values as cells of a table: numbers and texts; lists and tables as JSON."""
        kinds = bool, int, float, str
        return tuple(v if isinstance(v, kinds) else _json(v) for v in self.values)

    @property
    def numeric(self) -> bool:
        """Are all values numbers?"""
        return all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values)


@dataclass(frozen=True)
class Combination:
    """One value of each varied field.

    Attributes:
        number: its place in the order of the product, from 0; the last field varies fastest.
        at: of each varied field, the place of its value.
        scenario: with these values; None if they do not go together.
        reason: why they do not.
    """

    number: int
    at: tuple[int, ...]
    scenario: Scenario | None
    reason: str = ""


def _described(name: str) -> str:
    """The first clause of a field's description; its name where that is long."""
    section, _, field = name.rpartition(".")
    model: Any = Scenario.model_fields[section].annotation if section else Scenario
    known = model.model_fields[field].description or ""
    text = re.split(r"[;,(]", known)[0].strip()
    kinds, colon, meaning = text.partition(": ")
    if colon:  # which of several kinds it is for, or which values it takes
        text = kinds if "|" in meaning else meaning
    return text if 0 < len(text) <= _LONGEST_LABEL else name


def labelled(varied: Sequence[Varied], labels: Mapping[str, str]) -> tuple[Varied, ...]:
    """Fields with labels for figures and tables."""
    names = [one.name for one in varied]
    for name, label in labels.items():
        if name not in names:
            raise ScenarioError(
                f"label {name[:60]!r} names no varied field: use {' or '.join(names)}"
            )
        if not label.strip() or len(label) > _MOST_LETTERS:
            raise ScenarioError(
                f"the label of {name} has {len(label)} characters: give 1 to {_MOST_LETTERS}"
            )
    return tuple(replace(one, label=labels.get(one.name, one.label)) for one in varied)


def varied_of(vary: Mapping[str, Any]) -> tuple[Varied, ...]:
    """The fields that are varied, with their values as they were given."""
    if not vary:
        raise ScenarioError("nothing is varied: give at least one field with values")
    found = []
    for name, given in vary.items():
        require_field(name)
        values = tuple(_listed(name, given))
        if not values:
            raise ScenarioError(f"{name} has no values: give at least one")
        found.append(Varied(name, values))
    size = math.prod(len(one.values) for one in found)
    if size > MOST_COMBINATIONS:
        times = " × ".join(str(len(one.values)) for one in found)
        raise ScenarioError(
            f"{times} are {size:,} combinations, more than {MOST_COMBINATIONS:,}: give fewer values"
        )
    return tuple(found)


def combinations(
    scenario: Scenario, varied: Sequence[Varied]
) -> tuple[tuple[Varied, ...], tuple[Combination, ...]]:
    """Every combination as a scenario of its own.

    Values that are good by themselves may not go together; such a combination says why. A value
    that is good in no combination is a mistake.
    """
    made = []
    for number, at in enumerate(itertools.product(*(range(len(one.values)) for one in varied))):
        changes = {one.name: one.values[k] for one, k in zip(varied, at, strict=True)}
        try:
            made.append(Combination(number, at, scenario.override(changes, source="--vary")))
        except ScenarioError as error:
            made.append(Combination(number, at, None, str(error)))
    resolved = tuple(_resolved(scenario, one, j, made) for j, one in enumerate(varied))
    return resolved, tuple(made)


def _resolved(scenario: Scenario, one: Varied, j: int, made: Sequence[Combination]) -> Varied:
    """The field with the values that scenarios hold."""
    values: list[Any] = []
    for k, given in enumerate(one.values):
        with_it = [each for each in made if each.at[j] == k]
        good = next((each.scenario for each in with_it if each.scenario is not None), None)
        if good is None:
            scenario.override({one.name: given})  # says best what is wrong with it
            raise ScenarioError(f"{one.name} = {given!r:.60}: {with_it[0].reason}")
        value = value_of(good, one.name)
        if value in values:
            raise ScenarioError(f"{one.name} has the value {value!r:.60} twice: give it once")
        values.append(value)
    return Varied(one.name, tuple(values))


def value_of(scenario: Scenario, name: str) -> Any:
    """The value of a field, by its full name."""
    section, dot, field = name.partition(".")
    return getattr(getattr(scenario, section), field) if dot else getattr(scenario, name)


def _json(value: Any) -> str:
    return json.dumps(value.model_dump() if isinstance(value, BaseModel) else value)


def _listed(name: str, given: Any) -> Iterator[Any]:
    if not isinstance(given, str):
        many = isinstance(given, Sequence) or hasattr(given, "tolist")
        yield from given.tolist() if hasattr(given, "tolist") else given if many else [given]
        return
    for piece in _pieces(name, given):
        steps = _range(name, piece)
        yield from [typed_value(piece)] if steps is None else steps


def _pieces(name: str, text: str) -> list[str]:
    """The values of a list: between commas that stand neither in brackets nor in quotes."""
    pieces, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and depth == 0:
            pieces.append("")
            continue
        pieces[-1] += sign
    stripped = [piece.strip() for piece in pieces]
    if not all(stripped):
        raise ScenarioError(f"{name}={text[:60]}: a value is empty; write {name}=VALUE,VALUE")
    return stripped


def _range(name: str, text: str) -> list[int] | list[float] | None:
    """The values of ``low:high:step`` or ``low:high:xFACTOR``; None if it is no range."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3:
        return None
    times = parts[2].startswith("x")
    parts[2] = parts[2].removeprefix("x")
    if not all(_NUMBER.fullmatch(part) or is_quantity(part) for part in parts):
        return None
    whole = all(_WHOLE.fullmatch(part) for part in parts)
    units = [unit_of(name), unit_of(name), None if times else unit_of(name)]
    low, high, step = (_decimal(part, unit) for part, unit in zip(parts, units, strict=True))
    if low > high or (step <= 1 or low <= 0 if times else step <= 0):
        raise ScenarioError(
            f"{name}={text}: a range goes up, as in 10:50:10 (by steps) or 1:100:x10 (by factors)"
        )
    count = math.log(high / low) / math.log(step) if times else float((high - low) / step)
    if count >= _MOST_VALUES:
        raise ScenarioError(
            f"{name}={text} has more than {_MOST_VALUES:,} values: take a wider step"
        )
    values, end = [], high * (1 + _ROUNDING) if times else high + step * _ROUNDING
    while low <= end:
        values.append(low)
        low = low * step if times else low + step
    return [int(value) for value in values] if whole else [float(value) for value in values]


def _decimal(text: str, unit: str | None) -> Decimal:
    """A number as it is written, so that steps of 0.1 stay what they are."""
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    if unit is None:
        raise ScenarioError(f"{text!r} has a unit, which this field does not take: give a number")
    return Decimal(repr(parse(text, unit)))
