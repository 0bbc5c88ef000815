"""Measured figures in place of modelled ones: a training step's, and the links'.

A step's seconds and joules say what cycles, clock and capacitance only model, and a link's rate
what path loss, headers and channel access do. Where both are given, one would be ignored in
silence: that is refused. What only a preset says gives way.
"""

from __future__ import annotations

__all__ = ["REPLACED", "take_measured"]

from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.scenario.given import Said
from joulemesh.scenario.origin import Origin
from joulemesh.scenario.sections import SECTIONS
from joulemesh.tables import read_table

_STEP = ("devices.step_s", "devices.step_j")
_PROCESSOR = ("devices.cycles_per_sample", "devices.cpu_hz", "devices.capacitance")
_LINKS = "network.links"
_AIR = (
    "network.gains",
    "network.path_loss",
    "network.path_loss_exponent",
    "network.path_loss_reference_db",
    "network.shadowing_db",
    "network.fading",
    "network.rician_k_db",
    "network.nakagami_m",
    "network.bandwidth_hz",
    "network.noise_dbm_per_hz",
    "network.max_rate_bps",
)
_FRAMING = ("network.packet_bits", "network.header_bits", "network.packet_s", "plan.message_s")
_RECEIVING = ("devices.receive_j_per_bit", "devices.receive_power_w")
REPLACED = ("devices.profile", *_PROCESSOR, "network.profile", *_AIR)
"""Fields that only model what a step's figures and the links' rates say."""

_MOST_SOURCES = 3


def take_measured(said: dict[str, Said]) -> None:
    """Let measured figures take the place of modelled ones that nobody gave.

    Raises:
        ScenarioError: half of a pair is given, or a modelled figure beside a measured one.
    """
    step = [name for name in _STEP if _value(said, name) is not None]
    if len(step) == 1:
        other = _STEP[1 - _STEP.index(step[0])]
        raise ScenarioError(
            f"{step[0]} is given and {other} is not; give both (joulemesh calibrate measures them)"
        )
    if step:
        _give_way(said, "devices.step_s and devices.step_j", "devices.profile", _PROCESSOR)
    links = _value(said, _LINKS)
    if links is not None:
        _give_way(said, f"network.links = {links!r}", "network.profile", _AIR)
        for name in _FRAMING:  # a measured rate is that of the payload
            if name in said and said[name].origin.kind == "profile":
                del said[name]
        said["network.profile"] = Said(None, said[_LINKS].rank, said[_LINKS].origin)
        _take_topology(said, said[_LINKS])
    _take_receiving(said)
    _name_sources(said)


def _take_receiving(said: dict[str, Said]) -> None:
    """Let a price of a received bit take the place of a profile's power; refuse both.

    Where both ends pay the sender's joules, the power of a radio that nobody names gives way, too.
    """
    price, power = (said.get(name) for name in _RECEIVING)
    if power is None or power.value is None:
        return
    if price is not None and price.value is not None:
        if power.origin.kind != "profile":
            raise ScenarioError(
                f"{_RECEIVING[0]} and {_RECEIVING[1]} are two prices of the same; give either"
            )
        del said[_RECEIVING[1]]
        return
    by_physics = "both-ends" if _value(said, "plan.physics") == "paper" else "transmitter"
    both_ends = (_value(said, "plan.accounting") or by_physics) == "both-ends"
    if both_ends and power.origin.kind == "profile" and "network.profile" not in said:
        del said[_RECEIVING[1]]


def _value(said: dict[str, Said], name: str) -> Any:
    return said[name].value if name in said else None


def _give_way(said: dict[str, Said], measured: str, profile: str, names: tuple[str, ...]) -> None:
    """Drop what only a preset or a default says; refuse what was given, or is a profile's."""
    if _value(said, profile) is not None and said[profile].origin.kind != "preset":
        raise ScenarioError(
            f"{measured} would be beside {profile} = {said[profile].value!r:.60}, whose figures "
            "they replace; give either"
        )
    said.pop(profile, None)
    for name in names:
        one = said.get(name)
        if one is None:
            continue
        section, _, field = name.partition(".")
        default = SECTIONS[section].model_fields[field].default
        value = tuple(one.value) if isinstance(one.value, list) else one.value
        if one.origin.kind not in ("preset", "profile") and value != default:
            raise ScenarioError(
                f"{name} = {one.value!r:.60} ({one.origin}) would be ignored beside {measured}; "
                "give either what is modelled or what is measured"
            )
        del said[name]


def _take_topology(said: dict[str, Said], links: Said) -> None:
    """Without a topology of the user's own, the file of the links is the topology."""
    mine = said.get("network.topology")
    if mine is None or mine.origin.kind == "preset":
        origin = Origin("table", Path(str(links.value)).name)
        said["network.topology"] = Said(links.value, links.rank, origin)


def _name_sources(said: dict[str, Said]) -> None:
    """Say of figures from a table how they were measured, if the table says so."""
    table = _value(said, "devices.table")
    if not isinstance(table, str):
        return
    columns = read_table(table)
    for name, one in said.items():
        if one.origin.kind != "table" or not isinstance(one.value, str):
            continue
        cells = [cell for cell in columns.get(f"{one.value}_source", ()) if cell]
        if cells:
            unlike = list(dict.fromkeys(cells))
            more = ", …" if len(unlike) > _MOST_SOURCES else ""
            words = f"{Path(table).name}: {', '.join(unlike[:_MOST_SOURCES])}{more}"
            said[name] = Said(one.value, one.rank, Origin("measured", words))
