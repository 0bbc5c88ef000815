"""What decides the bits of a run, and in what two runs differ, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from joulemesh.files.manifest import sha256_of
from joulemesh.own_code import files_run
from joulemesh.runs.inputs import asked
from joulemesh.scenario import Scenario
from joulemesh.training.software import software

__all__ = ["difference", "repetition_seeds", "start_of"]

# Recorded, but a run may go on with others of these.
_MAY_DIFFER = ("platform", "accelerators", "processes", "trained_by")


def repetition_seeds(scenario: Scenario, seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds of repetitions: those given, or as many as wanted from the scenario's on."""
    if isinstance(seeds, int):
        return tuple(range(scenario.seed, scenario.seed + seeds))
    return tuple(seeds)


def start_of(scenario: Scenario, seeds: Sequence[int], library: str) -> dict[str, Any]:
    """What is asked for and with what, as plain values.

    Args:
        scenario: what is carried out.
        seeds: repetition seeds.
        library: of the model that is trained.
    """
    start = {"asked": asked(scenario), "seeds": list(seeds), "versions": software(library)}
    if files := files_run():
        start["code"] = {path.name: sha256_of(path) for path in files}
    return start


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first thing in which two records of a start differ, in words; None if in nothing.

    Args:
        then: as it was recorded.
        now: as it is asked for; only what it names is compared.

    >>> difference({"seeds": [0, 1]}, {"seeds": [0]})
    'seeds were [0, 1] and are [0]'
    >>> difference({"asked": {"plan": {"iterations": 5}}}, {"asked": {"plan": {"iterations": 6}}})
    'plan.iterations was 5 and is 6'
    """
    if "asked" in now:
        for name, old, new in _fields(then.get("asked"), now["asked"]):
            return f"{name} was {_short(old)} and is {_short(new)}"
    words = {"method": "was", "equal": "was", "seeds": "were", "deterministic": "was"}
    for name, word in words.items():
        if name in now and then.get(name) != now[name]:
            also = "are" if word == "were" else "is"
            return f"{name} {word} {_short(then.get(name))} and {also} {_short(now[name])}"
    if "asked" in now and "versions" in now:  # a whole start, not a part of one
        for name, old, new in _fields(then.get("code", {}), now.get("code", {})):
            if new is None:
                return f"{name} was loaded and is not (add --load {name})"
            return f"{name} was {'another file' if old else 'not loaded'}"
    if "versions" in now:
        for name, old, new in _fields(then.get("versions"), now["versions"]):
            if name not in _MAY_DIFFER:
                return f"the version of {name.removeprefix('packages.')} was {old} and is {new}"
    if "identity" in now:
        for name, _, _ in _fields(then.get("identity"), now["identity"]):
            return f"the {name} is not the same"
    return None


def _fields(then: Any, now: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Fields whose values differ, with both."""
    if not isinstance(then, dict) or not isinstance(now, dict):
        if then != now:
            yield above, then, now
        return
    for name in [*now, *(name for name in then if name not in now)]:
        below = f"{above}.{name}" if above else str(name)
        yield from _fields(then.get(name), now.get(name), below)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
