"""The scenario as a form: every field with its unit, range, choices and meaning, by the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from joulemesh.base.units import example, unit_of
from joulemesh.scenario import PRESETS, SECTIONS, Scenario
from joulemesh.scenario.complete import toml_value
from joulemesh.scenario.profiles import DEVICES, RADIOS, find
from joulemesh.scenario.varied import typed_value

# What most people change. The others are there too, behind "more fields".
_FIRST = {
    "seed",
    "devices.profile",
    "devices.count",
    "devices.cpu_hz",
    "devices.cycles_per_sample",
    "devices.transmit_power_w",
    "network.profile",
    "network.topology",
    "network.area_m",
    "network.bandwidth_hz",
    "network.fading",
    "budget.energy_j",
    "budget.deadline_s",
    "budget.total_s",
    "plan.aggregation",
    "plan.exchange",
    "plan.rounds",
    "plan.iterations",
    "plan.on_depletion",
    "training.dataset",
    "training.partition",
    "training.alpha",
    "training.model",
    "training.batch_size",
    "training.learning_rate",
    "training.eval_every",
}
_TITLES = {
    "budget": "Budget",
    "devices": "Devices",
    "network": "Network",
    "plan": "Plan",
    "training": "Training",
    "bounds": "Bounds",
}


def form() -> dict[str, Any]:
    """Everything that a form of the scenario needs to know, as plain JSON values.

    Names of schemes, policies, models and the like are those that are registered now.

    >>> found = form()
    >>> [section["name"] for section in found["sections"]][:2]
    ['budget', 'devices']
    >>> [(one["name"], one["unit"]) for one in found["sections"][0]["fields"]][-1]
    ('budget.total_s', 's')
    """
    schema = Scenario.model_json_schema()
    parts = {name: schema["$defs"][kind.__name__] for name, kind in SECTIONS.items()}
    sections = [
        {
            "name": name,
            "title": title,
            "meaning": parts[name].get("description", ""),
            "fields": [
                describe_field(f"{name}.{field}", part, schema)
                for field, part in parts[name]["properties"].items()
            ],
        }
        for name, title in _TITLES.items()
    ]
    seed = describe_field("seed", schema["properties"]["seed"], schema)
    sections.append({"name": "", "title": "Chance", "meaning": "", "fields": [seed]})
    return {"sections": sections, "presets": list(PRESETS), "profiles": _profiles()}


def _profiles() -> dict[str, list[dict[str, str]]]:
    kinds = {"devices.profile": DEVICES, "network.profile": RADIOS}
    return {
        field: [{"name": name, "summary": find(name).summary} for name in names]
        for field, names in kinds.items()
    }


def describe_field(
    name: str, schema: Mapping[str, Any], whole: Mapping[str, Any]
) -> dict[str, Any]:
    """One field, as a form shows it."""
    kinds = list(_kinds(schema, whole))
    choices = [value for kind in kinds for value in _choices(kind)]
    typed = [kind for kind in kinds if not _choices(kind) and kind.get("type") != "null"]
    kind = "choice" if choices and not typed else "text"
    if typed and all(one.get("type") == "boolean" for one in typed):
        kind, choices = "truth", ["true", "false"]
    default, unit = schema.get("default"), unit_of(name)
    return {
        "name": name,
        "label": _label(name, unit or ""),
        "unit": unit or "",
        "meaning": schema.get("description", ""),
        "kind": kind,
        "choices": list(dict.fromkeys(map(str, choices))),
        "range": _range(kinds),
        "default": written(default),
        "optional": any(one.get("type") == "null" for one in kinds),
        "example": "" if unit is None else example(unit),
        "several": any(one.get("type") == "array" for one in kinds),
        "first": name in _FIRST,
    }


def _label(name: str, unit: str) -> str:
    own = name.partition(".")[2] or name
    if unit:
        ends = ("_dbm_per_hz", "_j_per_bit", "_hz", "_bps", "_db", "_j", "_m", "_s", "_w")
        own = next((own.removesuffix(end) for end in ends if own.endswith(end)), own)
    return own.replace("_", " ")


def written(value: Any) -> str:
    """A value as it is typed into the form: words without quotation marks where they are clear."""
    if value is None:
        return ""
    clear = isinstance(value, str) and value.strip() == value and typed_value(value) == value
    return str(value) if clear else toml_value(value)


def _kinds(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "$ref" in schema:
        place: Any = whole
        for step in schema["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        yield from _kinds(place, whole)
    elif "anyOf" in schema or "oneOf" in schema:
        for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
            yield from _kinds(part, whole)
    else:
        yield schema


def _choices(kind: Mapping[str, Any]) -> list[Any]:
    return [kind["const"]] if "const" in kind else list(kind.get("enum", ()))


def _range(kinds: list[Mapping[str, Any]]) -> str:
    found = next((one for one in kinds if one.get("type") in ("number", "integer")), None)
    if found is None:
        return ""
    limits = {
        "exclusiveMinimum": "greater than",
        "minimum": "at least",
        "exclusiveMaximum": "less than",
        "maximum": "at most",
    }
    words = ["whole number"] if found["type"] == "integer" else []
    words += [
        f"{text} {_figure(found[key])}"
        for key, text in limits.items()
        if key in found and abs(found[key]) < 2**53
    ]
    return ", ".join(words) or "any number"


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
