"""Fields whose values name entries of a registry: their check, and their JSON Schema."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema

from joulemesh.errors import ScenarioError

__all__ = ["NamesSchema", "Registered", "RegisteredNames", "parameters_of"]


class Registered:
    """A text that names an entry of a registry, in one of the spellings that are now known.

    Args:
        spellings: gives the texts that may be written; ``trace:FILE.csv`` stands for the word
            before the colon with anything after it.

    >>> words = Registered(lambda: ("iid", "column:NAME"))
    >>> words.check("column:site")
    'column:site'
    >>> words.check("idd")
    Traceback (most recent call last):
    ...
    ValueError: must be one of iid, column:NAME, not 'idd'; did you mean 'iid'?
    """

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
    """A registered model, or one in a file of the user's own.

    >>> ModelNames(lambda: ("mlp", "FILE.py:NAME")).check("models/mine.py:Net")
    'models/mine.py:Net'
    """

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
    """Several such texts; one alone may be written without brackets.

    >>> names = RegisteredNames(lambda: ("brier", "top3"))
    >>> names.checked("brier"), names.checked(["top3", "brier", "top3"])
    (('brier',), ('top3', 'brier'))
    """

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
    """The JSON Schema of a field that takes a registry's current names, among other values.

    Args:
        names: gives the names.
        others: schemas of the other values.
    """

    def __init__(self, names: Callable[[], Iterable[str]], others: list[Any]) -> None:
        self._names, self._others = names, others

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"enum": list(self._names())}, *self._others]}


def parameters_of(
    entry: str, parameters: Iterable[str], section: type[BaseModel], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a section that an entry takes: as given, otherwise their defaults.

    Args:
        entry: what takes them, for the refusal.
        parameters: their names.
        section: of the scenario.
        given: values by field; others than the entry's are ignored.

    Raises:
        ScenarioError: a name that is not a field of the section.

    >>> from joulemesh.scenario import Training
    >>> parameters_of("partition 'dirichlet'", ("alpha",), Training, {"l2": 1.0})
    {'alpha': 0.5}
    """
    parameters, fields = tuple(parameters), section.model_fields
    strange = next((name for name in [*given, *parameters] if name not in fields), None)
    if strange is not None:
        raise ScenarioError(
            f"{entry}: {strange!r} is not a field of the section {section.__name__.lower()}; "
            "parameters are fields of it"
        )
    return {name: given.get(name, fields[name].default) for name in parameters}
