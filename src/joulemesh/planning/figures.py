"""The figures that decide a plan, each with its value and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from joulemesh.aggregation.choose import RULES
from joulemesh.planning.policy import policy_of
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Origin, Scenario
from joulemesh.scenario.marks import Ideal
from joulemesh.scenario.sections import COLUMNS, marked
from joulemesh.world.intervals import DEVICE_FIGURES, Intervals, widest
from joulemesh.world.quantities import resolve

__all__ = ["Figure", "figures"]

_PROCESSOR = ("devices.cycles_per_sample", "devices.cpu_hz", "devices.capacitance")
_STEP = ("devices.step_s", "devices.step_j")
_IF_GIVEN = ("send_j_per_bit", "receive_j_per_bit", "message_j")
# Samples may also be a word; `resolve` reads numbers and columns.
_PER_DEVICE = {"budget.energy_j", *(f"devices.{one}" for one in COLUMNS if one != "samples")}
_IDEALS = marked(Ideal)


@dataclass(frozen=True)
class Figure:
    """One figure that decides a plan.

    Attributes:
        name: the field's full name, such as ``"budget.deadline_s"``.
        value: a number, a word, or (lowest, highest) where devices differ.
        origin: where it comes from; of a measured one, how it was measured.
        within: half the widest 95 % interval of a measured figure, as a share of it; None where no
            interval is known.
        means: what an idealisation of the radio leaves out, in words; empty for other figures.
    """

    name: str
    value: float | str | tuple[float, float]
    origin: Origin
    within: float | None = None
    means: str = ""


def figures(scenario: Scenario) -> tuple[Figure, ...]:
    """The figures that decide what a scenario's plan comes to.

    Left out is what the scenario does not use: path loss where gains are given, the batch where a
    round is an epoch, the consensus error where no gossip is asked for. What the radio is assumed
    to do is among them, with what an idealisation means.

    >>> one = Scenario(devices={"profile": "esp32"}, budget={"energy_j": 5.0, "deadline_s": 2.0})
    >>> [figure.name for figure in figures(one) if figure.origin.kind == "assumed"][:3]
    ['devices.count', 'devices.cycles_per_sample', 'network.medium']
    """
    known = Intervals(scenario)
    found = []
    for name in _deciding(scenario):
        value = _value(scenario, name)
        ideal = _IDEALS.get(name)
        means = ideal.means if ideal is not None and value == ideal.value else ""
        origin = scenario.origin(name)
        found.append(Figure(name, value, origin, _within(known, name), means))
    return tuple(found)


def _within(known: Intervals, name: str) -> float | None:
    """Half the widest interval of a figure, as a share of it."""
    section, _, field = name.partition(".")
    if name == "network.links":
        return known.widest_of_links()
    if section != "devices" or field not in DEVICE_FIGURES:
        return None
    given = getattr(known.scenario.devices, field)
    if given is None:
        return None
    values = resolve(known.scenario, field, given, minimum=-1.0)
    spread = known.of_device(field, values)
    return None if spread is None else widest(spread, values)


def _deciding(scenario: Scenario) -> list[str]:
    network = scenario.network
    limits = ("budget.deadline_s", "budget.total_s")
    names = [name for name in limits if getattr(scenario.budget, name[7:]) is not None]
    names += ["budget.energy_j", "devices.count"]
    devices = scenario.devices
    names += list(_STEP if devices.step_s is not None else _PROCESSOR)
    names += [f"devices.{field}" for field in _IF_GIVEN if getattr(devices, field) is not None]
    names += ["devices.transmit_power_w", *_of_radio(scenario), "network.topology"]
    if network.links is not None:
        return [*names, "network.links", *_of_plan(scenario)]
    names += ["network.profile", "network.bandwidth_hz", "network.max_rate_bps"]
    if network.gains is None:
        names.append("network.path_loss")
        if network.path_loss == "power-law":
            names += ["network.path_loss_exponent", "network.path_loss_reference_db"]
        if scenario.devices.x_m is None or scenario.devices.y_m is None:
            names.append("network.area_m")
    return [*names, *_of_plan(scenario)]


def _of_radio(scenario: Scenario) -> list[str]:
    """What decides the price of messages besides the rate of a link."""
    network, devices, names = scenario.network, scenario.devices, ["devices.idle_w"]
    measured = network.links is not None  # it may have columns of what is received and lost
    own = devices.receive_j_per_bit is not None or scenario.plan.pays == "both-ends"
    if devices.receive_power_w is not None or not (own or measured):
        names.append("devices.receive_power_w")
    names.append("network.medium")
    if network.medium != "shared":  # where a device takes part in one transmission at a time
        names.append("network.duplex")
    if not (measured and network.packet_error == 0):
        names.append("network.packet_error")
    packets = network.packet_error != 0 or network.header_bits or network.packet_s
    names += ["network.packet_bits"] if packets else []
    names += ["network.tries"] if network.packet_error != 0 else []
    return [*names, "network.header_bits", "network.packet_s", "plan.message_s"]


def _of_plan(scenario: Scenario) -> list[str]:
    options, names = scenario.plan, ["plan.iterations", "plan.rounds", "plan.aggregation"]
    names += [] if options.safety is None else ["plan.safety"]
    names += [f"plan.{name}" for name in policy_of(options).parameters if name != "zeta"]
    asked = options.aggregation
    takes = () if asked in RULES else SCHEMES[asked].parameters
    if "epsilon" in takes and options.gossip_rounds == "epsilon":
        names.append("plan.epsilon")
    epoch = scenario.training.local_round == "epoch"
    names.append("devices.samples" if epoch else "training.batch_size")
    return names


def _value(scenario: Scenario, name: str) -> float | str | tuple[float, float]:
    section, _, field = name.partition(".")
    value: Any = getattr(getattr(scenario, section), field)
    if value is None:
        return _IDEALS[name].value
    spread = isinstance(value, dict | tuple) or (isinstance(value, str) and name in _PER_DEVICE)
    if name in _PER_DEVICE and spread and not (isinstance(value, tuple) and len(value) == 2):
        each = resolve(scenario, field, value, minimum=-1.0)  # a list, or a column of the table
        value = (float(each.min()), float(each.max()))
    if isinstance(value, dict):
        value = tuple(value["values"])
    if isinstance(value, tuple):
        if not isinstance(value[0], float):
            return f"{len(value)} links"
        low, high = float(min(value)), float(max(value))
        return low if low == high else (low, high)
    number: float | str = value
    return number
