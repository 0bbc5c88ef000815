"""A digest of what a plan decides, by which devices see that they follow the same one."""

from __future__ import annotations

__all__ = ["digest_of", "digest_of_timeline"]

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.planning.timeline import Timeline
from joulemesh.scenario import Scenario

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan


def digest_of(plan: Plan) -> str:
    """SHA-256 over the scenario and all that the plan decides, in hexadecimal.

    >>> import joulemesh
    >>> one, other = (joulemesh.plan(joulemesh.Scenario(seed=seed)) for seed in (0, 1))
    >>> len(digest_of(one)), digest_of(one) == digest_of(other)
    (64, False)
    """
    return digest_of_timeline(plan.scenario, plan.work.model_bits, plan.timeline)


def digest_of_timeline(scenario: Scenario, model_bits: float, timeline: Timeline) -> str:
    """SHA-256 over a scenario and what is decided in every iteration, in hexadecimal.

    It covers the scenario (of a path, the file's name only), the size of the model, the numbers of
    the iterations, everybody's rounds, who takes part, which exchanges are skipped, the scheme with
    its devices and links, and the routes.
    It covers no joules and no seconds: logarithms and powers differ in the last bit from one
    processor to another, and devices that decide the same have to agree.

    Args:
        scenario: what was asked.
        model_bits: size of the parameter vector.
        timeline: of a plan, or of the rest of one.
    """
    asked = _portable(scenario.model_dump(mode="json"))
    asked["training"]["data_dir"] = None  # where a machine keeps its data decides nothing
    content = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    _take(content, "rounds", timeline.rounds)
    _take(content, "active", timeline.active)
    _take(content, "exchanged", timeline.exchanged)
    if timeline.gifts:
        _take(content, "gifts", timeline.gifts)
    content.update(repr((timeline.first, float(model_bits))).encode())
    for since, scheme in timeline.schemes:
        _take_scheme(content, since, scheme)
    known: dict[int, bytes] = {}  # many iterations share a route
    for route in (timeline.route, *(timeline.routes or ())):
        if id(route) not in known:
            known[id(route)] = _route_digest(route)
        content.update(known[id(route)])
    return content.hexdigest()


def _portable(value: Any) -> Any:
    """Plain values without the folders of files, which differ from machine to machine."""
    if isinstance(value, dict):
        return {name: _portable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_portable(one) for one in value]
    return re.split(r"[/\\]", value)[-1] if isinstance(value, str) else value


def _take(content: hashlib._Hash, name: str, array: object) -> None:
    """Whole numbers, in one byte order and size on every machine."""
    values = np.ascontiguousarray(array, "<i8")
    content.update(f"{name} {values.shape}".encode())
    content.update(values.tobytes())


def _take_scheme(content: hashlib._Hash, since: int, scheme: Scheme) -> None:
    """Random schedules follow from these and from the scenario's seed."""
    content.update(repr((since, scheme.name, scheme.mode, scheme.rounds)).encode())
    _take(content, "members", scheme.graph.members)
    _take(content, "links", scheme.graph.links)


def _route_digest(route: Route | None) -> bytes:
    if route is None:
        return b"skipped"
    figures = (route.scheme, route.repeats, route.root, route.chunks)
    content = hashlib.sha256(repr(figures).encode())
    for name in ("step", "sender", "receiver"):
        _take(content, name, getattr(route, name))
    return content.digest()
