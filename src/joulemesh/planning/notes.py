"""What a reader of a plan should know: its figures, those that look wrong, what is kept for safety.

Notes on figures that are far from what the model, the hardware or the radio imply never refuse: a
figure may be right and unusual. Each names the figure, the range that is expected, and what to do;
the rules are explained in docs/explanation/physics.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.scheme import RULES
from joulemesh.base.errors import Edit, InfeasibleError, called
from joulemesh.base.units import counted, duration, energy, si, unit_of
from joulemesh.ledger import alike, paced_j, total_of
from joulemesh.planning.ground import TRAINING_OPERATIONS, Workload
from joulemesh.planning.policy import policy_of
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Origin, Scenario
from joulemesh.scenario.fields import Ideal
from joulemesh.scenario.profiles import radio
from joulemesh.scenario.sections import COLUMNS, Devices, marked
from joulemesh.world import World, build_world
from joulemesh.world.quantities import DEVICE_FIGURES, Intervals, resolve, widest

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan, Timeline

__all__ = [
    "Figure",
    "Question",
    "Safety",
    "ask_first",
    "figures",
    "notes_on_inputs",
    "notes_on_outcome",
    "questions",
    "safety_of",
]

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
    """The figures that decide what a scenario's plan comes to."""
    # Left out is what the scenario does not use: path loss where gains are given, the batch where a
    # round is an epoch, the consensus error where no gossip is asked for. What the radio is assumed
    # to do is among them, with what an idealisation means.
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
    points = ("devices.operating_points",) if devices.operating_points is not None else ()
    names += [*points] or list(_STEP if devices.step_s is not None else _PROCESSOR)
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
    """A figure that nothing in use has, and the one that was probably meant."""

    text: str  # the question, as a statement
    edit: Edit  # the change


def questions(scenario: Scenario) -> Iterator[Question]:
    """Figures whose unit was probably mistaken."""
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
    """Notes on what is known before anything is planned."""
    yield from (doubt.text for doubt in questions(scenario))
    if _measures(scenario.devices):
        yield from _step(scenario, world)
    else:
        yield from _cycles(scenario, work)
        yield from _power(scenario)
    dropped = world.devices.round_prices.dropped
    if dropped:
        table = Path(scenario.devices.operating_points or "").name
        yield (
            f"{counted(dropped, 'operating point')} of {table} "
            f"{'is' if dropped == 1 else 'are'} left out: others, or two of them in turn, are as "
            "fast for fewer joules"
        )
    yield from _rest(world)
    yield from _deadline(scenario, world)


def notes_on_outcome(
    scenario: Scenario, world: World, timeline: Timeline, names: Sequence[str]
) -> Iterator[str]:
    """Notes on what the plan comes to, with the names of devices."""
    yield from _idle(timeline, names)
    yield from _relays(world, timeline, names)
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


def _measures(devices: Devices) -> bool:
    """Are seconds and joules of a step measured?"""
    return devices.step_s is not None or devices.operating_points is not None


def _step(scenario: Scenario, world: World) -> Iterator[str]:
    """A measured step: its watts above rest."""
    points = scenario.devices.operating_points is not None
    names = "devices.operating_points" if points else "devices.step_j and devices.step_s"
    power = world.devices.round_energy_j / world.devices.round_latency_s
    low, high = PROCESSOR_W
    if (power < low).any() or (power > high).any():
        yield (
            f"{names} make a device of {_span(power)} W above rest while "
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
    measured = _measures(scenario.devices)
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


_STARVED = 0.2  # of the mean rounds


def _relays(world: World, timeline: Timeline, names: Sequence[str]) -> Iterator[str]:
    """Devices that train little because of what they send for others."""
    devices, rounds = world.devices, timeline.rounds.sum(axis=0)
    stays, fair = timeline.active.all(axis=0), _STARVED * rounds.mean()
    spent_j = total_of(timeline.exchange.exchange_j)
    # What they would train if an exchange cost them as much as it costs the others on average.
    besides_j = np.maximum(spent_j - float(spent_j.mean()), 0.0)
    few = (
        stays
        & (rounds > 0)
        & (rounds < fair)
        & (rounds + besides_j / devices.round_energy_j > fair)
    )
    if few.any():
        worst = int(np.argmin(np.where(few, rounds, np.inf)))
        others = int(few.sum()) - 1
        also = f", and so {_others(others)}" if others else ""
        yield (
            f"{called(worst, names)} trains {int(rounds[worst]):,} rounds, less than a fifth of "
            f"the mean of {rounds.mean():,.0f}, because it relays: exchanges take "
            f"{100 * spent_j[worst] / devices.energy_budget_j[worst]:.0f} % of its battery{also}; "
            "lower plan.iterations, or give it a larger battery"
        )


def _others(count: int) -> str:
    return "does one other device" if count == 1 else f"do {count:,} other devices"


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
    """A number with three digits, written out where that is short."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 100 <= rounded < 1e9 else f"{rounded:.3g}"


@dataclass(frozen=True)
class Safety:
    """What ``plan.safety`` costs a plan."""

    probability: float  # that all budgets hold, given the intervals
    figures: int  # number of figures that have an interval
    deviations: float  # standard deviations above the mean at which each is taken
    expected_j: float  # joules of all devices together, if every figure is its mean
    expected_s: float  # seconds of all iterations together, if every figure is its mean
    planned_j: float  # joules that are planned with
    planned_s: float  # seconds that are planned with
    exact: tuple[str, ...] = ()  # measured fields without an interval, which are taken as exact

    @property
    def text(self) -> str:
        """In one sentence."""
        taken = f"; taken as exact: {', '.join(self.exact)}" if self.exact else ""
        return (
            f"all budgets hold with probability {self.probability:g}: the {self.figures:,} figures "
            f"that have an interval are taken {self.deviations:.3g} standard deviations above "
            f"their means; {energy(self.expected_j)} of {energy(self.planned_j)} and "
            f"{duration(self.expected_s)} of {duration(self.planned_s)} are expected{taken}"
        )


def safety_of(plan: Plan) -> tuple[Safety, FloatArray] | None:
    """What a plan keeps for safety, and how much of it each device does, [N] joules."""
    # None where ``plan.safety`` is not given.
    scenario = plan.scenario
    if scenario.plan.safety is None:
        return None
    spent, seconds = _at_means(plan)
    known = Intervals(scenario)
    given = [field for field in DEVICE_FIGURES if getattr(scenario.devices, field) is not None]
    made = Safety(
        scenario.plan.safety,
        known.figures,
        known.shift,
        float(spent.sum()),
        seconds,
        float(plan.spent_j.sum()),
        plan.time_s,
        tuple(f"devices.{field}" for field in given if not _has_interval(known, field)),
    )
    return made, np.maximum(plan.spent_j - spent, 0.0)


def _at_means(plan: Plan) -> tuple[FloatArray, float]:
    """Joules [N] and seconds of a plan's rounds and routes, if every figure is its mean."""
    scenario = plan.scenario
    mean = scenario.model_copy(update={"plan": scenario.plan.model_copy(update={"safety": None})})
    world = build_world(mean, plan.work.round_samples)
    ground = replace(plan.ground, scenario=mean, world=world)
    devices, same = world.devices, alike(plan.exchange_j)
    spent, seconds = plan.rounds.sum(axis=0) * devices.round_energy_j, 0.0
    window_s = plan.timeline.window_s
    if window_s is not None:
        spent = paced_j(devices, plan.rounds, window_s).sum(axis=0)
    prices = None
    for t, rounds in enumerate(plan.rounds):
        route = plan.route(t + 1)
        length = float((rounds * devices.round_latency_s).max())
        if window_s is not None:
            length = float(window_s[t])
        if route is not None and len(route.edge):
            if prices is None or not same:
                costs = ground.costs(t, plan.timeline.snapshot(t))
                prices = ground.pricer.route(route, costs)
            spent = spent + prices.exchange_j[0]
            length += float(prices.seconds[0])
        if devices.idle_w is not None:
            spent = spent + np.where(plan.active[t], devices.idle_w * length, 0.0)
        seconds += length
    return spent, seconds


def _has_interval(known: Intervals, field: str) -> bool:
    column = getattr(known.scenario.devices, field)
    return isinstance(column, str) and any(known.table.get(f"{column}_low", ()))
