"""Notes on figures that are far from what the model, the hardware or the radio imply.

They never refuse: a figure may be right and unusual. Each note names the figure, the range that is
expected, and what to do; the rules are explained in docs/explanation/physics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import Edit, InfeasibleError, called
from joulemesh.ledger import total_of
from joulemesh.planning.timeline import Timeline
from joulemesh.planning.workload import TRAINING_OPERATIONS, Workload
from joulemesh.profiles import radio
from joulemesh.scenario import Scenario
from joulemesh.units import duration, energy, si, unit_of
from joulemesh.world import World
from joulemesh.world.quantities import resolve

__all__ = ["Question", "ask_first", "notes_on_inputs", "notes_on_outcome", "questions"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CYCLES_PER_OPERATION = (0.01, 100.0)
"""From wide vector units on several cores to a microcontroller without floating point."""
PROCESSOR_W = (1e-4, 1e3)
"""From a microcontroller to a workstation, at work."""
REST_W = (1e-7, 1e3)
"""From a microcontroller asleep to a workstation."""
MOST_BITS_PER_HERTZ = 25.0
"""A signal-to-noise ratio of 75 dB; the densest modulations in use carry half as much."""
MOST_BATTERY = 1e4
"""Times what a plan spends."""
_ROUNDING = 1.001

_MAGNITUDES: tuple[tuple[str, float, float, float, float], ...] = (
    # field, the least and the most that is in use, and the factor that was probably forgotten of a
    # figure below and above that
    ("network.bandwidth_hz", 90.0, 1e12, 1e6, 1e-6),  # from ultra-narrow bands
    ("network.area_m", 0.05, 1e5, 1e3, 1e-3),
    ("network.max_rate_bps", 9.0, 1e13, 1e6, 1e-6),
    ("devices.cpu_hz", 9.0, 1e11, 1e9, 1e-6),
    ("devices.cpu_hz", 9e3, 1e11, 1e6, 1e-6),
    ("devices.transmit_power_w", 1e-8, 300.0, 1e3, 1e-3),
    ("devices.step_s", 1e-9, 3600.0, 1e3, 1e-3),
)


@dataclass(frozen=True)
class Question:
    """A figure that nothing in use has, and the one that was probably meant.

    Attributes:
        text: the question, as a statement.
        edit: the change.
    """

    text: str
    edit: Edit


def questions(scenario: Scenario) -> Iterator[Question]:
    """Figures whose unit was probably mistaken.

    >>> next(questions(Scenario(network={"bandwidth_hz": 20.0}))).text
    'network.bandwidth_hz = 20 is 20 Hz; "20 MHz" or 2e+07 was probably meant'
    """
    seen = set[str]()
    for name, least, most, small, large in _MAGNITUDES:
        section, _, field = name.partition(".")
        given = getattr(getattr(scenario, section), field)
        if given is None or name in seen:
            continue
        single = isinstance(given, int | float)
        values = np.array([given]) if single else resolve(scenario, field, given)
        few, many = bool((values < least).all()), bool((values > most).all())
        if not (few or many):
            continue
        seen.add(name)
        factor, unit = (small if few else large), str(unit_of(name))
        now, meant = float(values[0]), float(values[0]) * factor
        edit = Edit(name, meant) if single else Edit(name, factor, "scale")
        first = "" if single else " of the first device"
        yield Question(
            f'{name} = {now:g}{first} is {si(now, unit)}; "{si(meant, unit)}" or {meant:g} was '
            "probably meant",
            edit,
        )
    noise = scenario.network.noise_dbm_per_hz
    if noise > 0:
        yield Question(
            f"network.noise_dbm_per_hz = {noise:g} is {si(10 ** (noise / 10) / 1e3, 'W')} per "
            f"hertz; {-noise:g} was probably meant",
            Edit("network.noise_dbm_per_hz", -noise),
        )


def ask_first(refusal: InfeasibleError, scenario: Scenario) -> None:
    """Put doubts about units before what a refusal says, and their answer before its remedies."""
    doubts = list(questions(scenario))
    if doubts:
        asked = "; ".join(doubt.text for doubt in doubts)
        meant = tuple(doubt.edit for doubt in doubts)
        refusal.offer([meant, *refusal.remedies], before=f"{asked}; as it stands, ")


def notes_on_inputs(scenario: Scenario, work: Workload, world: World) -> Iterator[str]:
    """Notes on what is known before anything is planned.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario(devices={"cycles_per_sample": 100.0})
    >>> joulemesh.plan(scenario).notes[1][:82]
    'devices.cycles_per_sample is 100, but training the model on one sample takes about'
    """
    yield from (doubt.text for doubt in questions(scenario))
    if scenario.devices.step_s is None:
        yield from _cycles(scenario, work)
        yield from _power(scenario)
    else:
        yield from _step(world)
    yield from _rest(world)
    yield from _deadline(scenario, world)


def notes_on_outcome(
    scenario: Scenario, world: World, timeline: Timeline, names: Sequence[str]
) -> Iterator[str]:
    """Notes on what the plan comes to, with the names of devices."""
    yield from _idle(timeline, names)
    yield from _rate(scenario, world, timeline, names)
    yield from _battery(world, timeline, names)


def _cycles(scenario: Scenario, work: Workload) -> Iterator[str]:
    cycles = resolve(scenario, "cycles_per_sample", scenario.devices.cycles_per_sample)
    least = TRAINING_OPERATIONS * work.parameters
    operations = least if work.operations is None else work.operations
    low, high = (bound * operations for bound in CYCLES_PER_OPERATION)
    few, many = bool((cycles < low).any()), bool((cycles > high).any())
    if not few and (not many or work.operations is None):
        return  # how often a model of the user's own reuses its parameters is not known
    about = "at least" if work.operations is None else "about"
    expected = f"{_count(low)} {'or more' if work.operations is None else f'to {_count(high)}'}"
    yield (
        f"devices.cycles_per_sample is {_span(cycles)}, but training the model on one sample takes "
        f"{about} {_count(operations)} operations, of which a processor does 1/100 to 100 in a "
        f"cycle: expect {expected}; set it to seconds of a training step × cpu_hz / its samples"
    )


def _power(scenario: Scenario) -> Iterator[str]:
    devices = scenario.devices
    clock = resolve(scenario, "cpu_hz", devices.cpu_hz)
    power = resolve(scenario, "capacitance", devices.capacitance) * clock**3
    low, high = PROCESSOR_W
    if (power < low).any() or (power > high).any():
        yield (
            f"devices.capacitance and devices.cpu_hz ({_span(clock)} Hz) make a processor of "
            f"{_span(power)} W (capacitance × cpu_hz³); expect {si(low, 'W')} to {si(high, 'W')}: "
            "check their units, set capacitance to watts / cpu_hz³, or name a devices.profile"
        )


def _step(world: World) -> Iterator[str]:
    """A measured step: its watts above rest."""
    power = world.devices.round_energy_j / world.devices.round_latency_s
    low, high = PROCESSOR_W
    if (power < low).any() or (power > high).any():
        yield (
            f"devices.step_j and devices.step_s make a device of {_span(power)} W above rest while "
            f"it trains; expect {si(low, 'W')} to {si(high, 'W')}: check their units, or measure "
            "again (joulemesh calibrate)"
        )


def _rest(world: World) -> Iterator[str]:
    """Power at rest beside that at work."""
    rest = world.devices.idle_w
    if rest is None:
        return
    low, high = REST_W
    present = rest[rest > 0]
    if (present < low).any() or (present > high).any():
        yield (
            f"devices.idle_w is {_span(present)} W; expect {si(low, 'W')} to {si(high, 'W')}: "
            "check its unit, which is watts"
        )


def _deadline(scenario: Scenario, world: World) -> Iterator[str]:
    least_s = float(world.devices.round_latency_s.min())
    measured = scenario.devices.step_s is not None
    modelled = "devices.cpu_hz and devices.cycles_per_sample"
    figures = "and devices.step_s" if measured else modelled
    for name in ("deadline_s", "total_s"):
        allowed_s = getattr(scenario.budget, name)
        if allowed_s is not None and allowed_s < least_s:
            yield (
                f"budget.{name} is {duration(allowed_s)}, and one round takes every device "
                f"{duration(least_s)} or more; check its unit, {figures}"
            )


def _idle(timeline: Timeline, names: Sequence[str]) -> Iterator[str]:
    """Devices that stay to the end and never train, where a policy may leave rounds out."""
    idle = np.asarray(timeline.active.all(axis=0) & ~timeline.rounds.any(axis=0))
    if idle.any():
        yield (
            f"{int(idle.sum())} of {len(idle)} devices (the first is "
            f"{called(int(np.argmax(idle)), names)}) never train, they only average and relay: "
            "their samples stay unseen; lower plan.iterations, or raise what binds them"
        )


def _rate(
    scenario: Scenario, world: World, timeline: Timeline, names: Sequence[str]
) -> Iterator[str]:
    """Compare the links that are used, at their mean gain, with the radio."""
    links = timeline.route.link_index
    if not len(links) or world.measured is not None:  # no bandwidth is known of measured rates
        return
    gain = world.channel.mean_gain[links]
    yield from _reach(scenario, world, links, gain, names)
    costs = world.costs(gain, links)
    rates = 1 / np.minimum(costs.forward_s, costs.backward_s)
    fastest, usual = float(rates.max()), float(np.median(rates))
    name = scenario.network.profile
    profile = None if name is None else radio(name)
    rated = float(profile.network.get("max_rate_bps", np.inf)) if profile else np.inf
    if fastest > rated * _ROUNDING:
        yield (
            f"the fastest link carries {si(fastest, 'bit/s')}, beyond the {si(rated, 'bit/s')} of "
            f"network.profile = {name!r}; leave network.max_rate_bps to the profile"
        )
    per_hertz = usual / world.bandwidth_hz
    if per_hertz > MOST_BITS_PER_HERTZ:
        yield (
            f"half of the links carry {si(usual, 'bit/s')} or more, {per_hertz:.0f} bit/s per "
            f"hertz of network.bandwidth_hz; expect {MOST_BITS_PER_HERTZ:g} at most: check "
            "positions, gains and transmit_power_w, set network.max_rate_bps, or name a "
            "network.profile"
        )


def _reach(
    scenario: Scenario, world: World, links: IntArray, gain: FloatArray, names: Sequence[str]
) -> Iterator[str]:
    """Links on which less arrives than the radio receives: their rates are extrapolated."""
    network, name = scenario.network, scenario.network.profile
    if name is None:
        return
    profile, ends = radio(name), world.graph.edges[links]
    both = gain if gain.ndim == 2 else gain[:, None]
    arrives = profile.received_dbm(world.devices.transmit_power_w[ends], both).min(axis=1)
    short_db = profile.reach_dbm - arrives
    beyond = np.unique(links[short_db > 0])
    if not len(beyond):
        return
    worst = int(np.argmax(short_db))
    i, j = ends[worst].tolist()
    placed = scenario.devices.x_m is None and network.gains is None and world.motion is None
    fix = "bring devices nearer to each other"
    if placed:
        loss = 37.6 if network.path_loss == "3gpp-macro" else 10 * network.path_loss_exponent
        area_m = network.area_m * 10 ** (-float(short_db[worst]) / loss)
        digit = 10 ** np.floor(np.log10(area_m) - 1)  # two digits, rounded down
        fix = f"set network.area_m = {np.floor(0.99 * area_m / digit) * digit:g} or less"
    yield (
        f"{len(beyond)} of {len(np.unique(links))} links that the plan uses are beyond the radio's "
        f"reach: from {called(i, names)} to {called(j, names)} arrive {arrives[worst]:.0f} dBm, "
        f"and network.profile = {name!r} receives {profile.reach_dbm:g} dBm or more; {fix}, link "
        "nearer devices, or name another radio"
    )


def _battery(world: World, timeline: Timeline, names: Sequence[str]) -> Iterator[str]:
    battery_j = world.devices.energy_budget_j
    spent_j = total_of(timeline.exchange.exchange_j)
    spent_j = spent_j + timeline.rounds.sum(axis=0) * world.devices.round_energy_j
    present = spent_j > 0  # who left at once spends nothing
    ratio = np.divide(battery_j, spent_j, out=np.zeros_like(spent_j), where=present)
    idle = int((ratio > MOST_BATTERY).sum())
    if idle:
        most = int(np.argmax(ratio))
        held, used = energy(float(battery_j[most])), energy(float(spent_j[most]))
        yield (
            f"budget.energy_j is more than {MOST_BATTERY:,.0f} times what the plan spends on "
            f"{idle} of {len(ratio)} devices: {called(most, names)} has {held} and spends {used}; "
            "check its unit, which is joules"
        )


def _span(values: FloatArray) -> str:
    low, high = float(values.min()), float(values.max())
    return _count(low) if low == high else f"{_count(low)} to {_count(high)}"


def _count(value: float) -> str:
    """A number with three digits, written out where that is short.

    >>> _count(952_800.0), _count(0.0312), _count(1.8e9)
    ('953,000', '0.0312', '1.8e+09')
    """
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 100 <= rounded < 1e9 else f"{rounded:.3g}"
