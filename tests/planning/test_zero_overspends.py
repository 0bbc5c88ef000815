"""Random scenarios through a checker that shares nothing with the planner.

The checker sees what a plan makes public (rounds, routes, who takes part, gains) and the figures of
the scenario. It writes out the paper's equations `ticp`, `eicp`, `ticm`, `eicm`, `tcp` and `ecp`
with their repairs: n iterations, the network-wide critical path, and joules to the transmitter or
to both ends. Measured figures take the place of some of them: seconds and joules of a step, joules
per bit sent and received, and the power at rest, drawn by all who take part during the whole of
every iteration. Packets have headers and take channel access, and messages are handled.

Sums are those of rational numbers, as which float64 figures are exact, and may exceed a battery or
a limit of time by the tolerance alone. Two sums are held to that:

* the ledger's entries: Σ_t (τ r + e_t + w l_t) of the prices of a round and of the exchanges in the
  plan and of the lengths that follow from them, each of which must be the checker's own price to a
  part in 10¹²;
* the checker's own prices, computed message by message.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Plan
from joulemesh.aggregation.patterned import Patterned
from joulemesh.aggregation.route import Route
from tests import by_message
from tests.by_message import Message, full_duplex_s, pipelined_s
from tests.samples import sample

CHOICES: dict[str, tuple[Any, ...]] = {
    "network.topology": ("ring", "quasi-ring", "grid", "complete", "geometric", "star", "path"),
    "network.fading": ("none", "none", "rayleigh", "rician", "nakagami"),
    "network.channel_known": (True, False),
    "network.coherence_iterations": (1, 3),
    "network.duplex": ("orthogonal", "half"),
    "network.shadowing_db": (0.0, 6.0),
    "plan.aggregation": (
        "auto",
        "theorem3",
        "tree",
        "tree-chunked",
        "ring",
        "ring-chunked",
        "gossip",
        "metropolis",
    ),
    "plan.chunks": (None, None, 3),
    "plan.rounds": ("theorem4", "theorem4-literal", "backfill", "uniform", "fixed", "inverse"),
    "plan.zeta": ("auto", 40.0),
    "plan.iterations": (1, 2, 5, 9, 14, "longest"),
    "plan.fixed_rounds": (1, 2, 3),
    "plan.gossip_rounds": ("epsilon", "balanced", 1, 3),
    "plan.gossip_mode": ("ticks", "matchings"),
    "plan.epsilon": (0.05, 0.5),
    "plan.physics": ("physical", "paper"),
    "plan.accounting": (None, "transmitter", "both-ends"),
    "plan.timing": (None, "critical-path", "paper"),
    "plan.on_depletion": ("refuse", "leave"),
    "plan.fade_quantile": (0.5, 0.9),
    "plan.coordination": (False, True),
}
PATTERNS: tuple[Any, ...] = (
    "neighbours",
    {"every": 2},
    {"every": 3, "final": True, "times": 2},
    {"between": "none", "final": True},
    {"between": "none", "every": 4},
    {"train": 2, "mix": 1, "final": True},
)
BATCH = 32
MEDIA: dict[str, tuple[Any, ...]] = {
    "network.medium": ("shared", "shared", "orthogonal"),
    "network.broadcast": (True, False),
    "network.interference_m": (None, 120.0, 250.0, 1e6),
}


def draw(rng: random.Random, *, timed: bool = False, shared: bool = False) -> dict[str, Any]:
    """The fields of a scenario, with every device's figures given one by one.

    Args:
        rng: makes the choices.
        timed: with a total time, beside a deadline or in its place, policies with zeros, and
            exchanges that differ by iteration.
        shared: in a shared medium, or with broadcasts.
    """
    fields = {name: rng.choice(values) for name, values in CHOICES.items()}
    if shared:
        fields |= {name: rng.choice(values) for name, values in MEDIA.items()}
        fields |= {"plan.physics": "physical", "plan.timing": None}
        if fields["network.medium"] == "orthogonal":
            fields |= {"network.interference_m": None, "network.duplex": "orthogonal"}
    if timed and rng.random() < 0.5:
        fields |= {"plan.rounds": "spread", "plan.iterations": rng.choice((1, 2, 9, 14, 30))}
    if timed and rng.random() < 0.4:
        fields |= {"plan.exchange": rng.choice(PATTERNS), "plan.coordination": False}
    count = 2 * rng.randint(2, 4)
    if fields["network.topology"] in ("star", "path"):
        star = fields["network.topology"] == "star"
        links = [[0 if star else i, i + 1] for i in range(count - 1)]
        fields["network.topology"] = links
    if fields["plan.iterations"] == "longest":  # Theorem 4's zeta keeps the longest plans short
        fields |= {"plan.zeta": 12.0, "plan.rounds": rng.choice(("theorem4", "inverse"))}
    n = fields["plan.iterations"]
    scale_j = 10 ** rng.uniform(-2.6, -0.2) * (n if isinstance(n, int) else 10)

    def each(low: float, high: float) -> dict[str, list[float]]:
        return {"values": [rng.uniform(low, high) for _ in range(count)]}

    limits: dict[str, Any] = {"budget.deadline_s": 10 ** rng.uniform(-2.3, 0.0)}
    if timed:
        iterations = n if isinstance(n, int) else 10
        if rng.random() < 0.7:
            limits["budget.deadline_s"] = None
        limits["budget.total_s"] = iterations * 10 ** rng.uniform(-2.7, -0.7)
        if fields["plan.rounds"] != "fixed" and rng.random() < 0.2:
            fields["plan.iterations"] = "auto"
            limits["budget.total_s"] = 10 ** rng.uniform(-1.7, 0.0)
    return fields | {
        "seed": rng.randrange(2**16),
        "devices.count": count,
        "devices.cpu_hz": each(1e9, 3e9),
        "devices.cycles_per_sample": each(1e4, 1e5),
        "devices.capacitance": each(1e-28, 1e-27),
        "devices.transmit_power_w": each(0.1, 2.0),
        "budget.energy_j": each(scale_j, scale_j * rng.choice((1.0, 1.5, 10.0))),
        **limits,
        "training.batch_size": BATCH,
    }


def with_measured(fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The fields with some measured figures in place of modelled ones, or beside them."""
    count = fields["devices.count"]

    def each(low: float, high: float) -> dict[str, list[float]]:
        return {"values": [rng.uniform(low, high) for _ in range(count)]}

    made = dict(fields)
    if rng.random() < 0.5:
        for name in ("cpu_hz", "cycles_per_sample", "capacitance"):
            del made[f"devices.{name}"]
        made |= {"devices.step_s": each(1e-4, 3e-3), "devices.step_j": each(1e-4, 9e-3)}
    if rng.random() < 0.5:
        made["devices.send_j_per_bit"] = each(1e-9, 1e-7)
    both_ends = made["plan.physics"] == "paper" and made["plan.accounting"] is None
    if not both_ends and made["plan.accounting"] != "both-ends" and rng.random() < 0.7:
        made["devices.receive_j_per_bit"] = each(1e-9, 1e-7)
    if rng.random() < 0.8:
        made["devices.idle_w"] = each(0.0, 10 ** rng.uniform(-2.0, 0.5))
    return made


def with_messages(fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The fields with packets and messages that cost something besides their bits."""
    count, made = fields["devices.count"], dict(fields)

    def each(low: float, high: float) -> dict[str, list[float]]:
        return {"values": [rng.uniform(low, high) for _ in range(count)]}

    made |= {
        "network.packet_bits": rng.choice((64, 1000, 11_584, 10**7)),
        "network.header_bits": rng.choice((0, 112, 720)),
        "network.packet_s": rng.choice((0.0, 1e-6, 2e-5)),
        "plan.message_s": rng.choice((0.0, 1e-5, 1e-3)),
    }
    if rng.random() < 0.5:
        made["devices.message_j"] = each(0.0, 1e-4)
    free = "devices.receive_j_per_bit" not in fields
    both_ends = made["plan.physics"] == "paper" and made["plan.accounting"] is None
    if free and not both_ends and made["plan.accounting"] != "both-ends" and rng.random() < 0.7:
        made["devices.receive_power_w"] = each(0.01, 0.5)
    return made


def figure(fields: dict[str, Any], name: str) -> list[float] | None:
    """A per-device figure of the scenario, if it is given."""
    given = fields.get(f"devices.{name}")
    return None if given is None else given["values"]


# The paper's equations ---------------------------------------------------------------------------


def round_prices(fields: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Joules and seconds of a round: eqs. `eicp` and `ticp`, or as measured."""
    step_j, step_s = figure(fields, "step_j"), figure(fields, "step_s")
    if step_j is not None and step_s is not None:
        return step_j, step_s
    names = ("capacitance", "cycles_per_sample", "cpu_hz")
    rows = zip(*(fields[f"devices.{name}"]["values"] for name in names), strict=True)
    prices = [(theta * c * BATCH * f**2, c * BATCH / f) for theta, c, f in rows]
    return [joules for joules, _ in prices], [seconds for _, seconds in prices]


class Radio:
    """Seconds and joules of a message in an iteration: eqs. `ticm` and `eicm`, in packets."""

    def __init__(self, plan: Plan, fields: dict[str, Any], t: int) -> None:
        links = map(tuple, plan.world.graph.edges.tolist())
        self.gain = dict(zip(links, plan.world.channel.gain(t).tolist(), strict=True))
        self.power = fields["devices.transmit_power_w"]["values"]
        self.send, self.receive = (
            figure(fields, f"{way}_j_per_bit") for way in ("send", "receive")
        )
        self.receiver_w = figure(fields, "receive_power_w")
        self.handling_j = figure(fields, "message_j")
        self.hz = plan.scenario.network.bandwidth_hz
        self.noise_w = self.hz * 10 ** (plan.scenario.network.noise_dbm_per_hz / 10) / 1000
        self.packet_bits = plan.scenario.network.packet_bits
        self.header_bits = fields.get("network.header_bits", 0)
        self.packet_s = fields.get("network.packet_s", 0.0)
        self.message_s = fields.get("plan.message_s", 0.0)

    def bit_s(self, sender: int, receiver: int) -> float:
        gain = self.gain[min(sender, receiver), max(sender, receiver)]
        return math.log(2) / (self.hz * math.log1p(self.power[sender] * gain / self.noise_w))

    def packets(self, bits: float) -> int:
        whole = round(bits / self.packet_bits)  # chunks may be a rounding error above a packet
        near = abs(bits / self.packet_bits - whole) < 1e-9
        return whole if near and whole else math.ceil(bits / self.packet_bits)

    def sent_bits(self, bits: float) -> float:
        return float(bits + self.packets(bits) * self.header_bits)

    def on_air_s(self, sender: int, receiver: int, bits: float) -> float:
        waits_s = self.packets(bits) * self.packet_s
        return float(self.sent_bits(bits) * self.bit_s(sender, receiver) + waits_s)

    def seconds(self, sender: int, receiver: int, bits: float) -> float:
        return float(self.on_air_s(sender, receiver, bits) + self.message_s)

    def joules(self, sender: int, receiver: int, bits: float) -> float:
        """Of the sender."""
        handling_j = 0.0 if self.handling_j is None else self.handling_j[sender]
        if self.send is not None:  # channel access draws what sending draws
            power_w = self.send[sender] / self.bit_s(sender, receiver)
        else:
            power_w = self.power[sender]
        return float(power_w * self.on_air_s(sender, receiver, bits) + handling_j)

    def receive_j(self, sender: int, receiver: int, bits: float) -> float:
        """Of the receiver."""
        total = 0.0 if self.handling_j is None else self.handling_j[receiver]
        if self.receive is not None:
            power_w = self.receive[receiver] / self.bit_s(sender, receiver)
            total += power_w * self.on_air_s(sender, receiver, bits)
        if self.receiver_w is not None:
            total += self.receiver_w[receiver] * self.on_air_s(sender, receiver, bits)
        return float(total)


def exchange_j(
    messages: list[Message], radio: Radio, both_ends: bool, together: bool, times: int = 1
) -> dict[int, Fraction]:
    """Eq. `ecp`, message by message; of a broadcast, for the dearest of its receivers."""
    spent: dict[int, Fraction] = defaultdict(Fraction)
    for one in by_message.transmissions(messages, radio, together=together):
        every = [radio.joules(one.sender, receiver, one.bits) for receiver in one.receivers]
        spent[one.sender] += times * Fraction(max(every))
        for receiver in one.receivers:
            heard = max(every) if both_ends else radio.receive_j(one.sender, receiver, one.bits)
            spent[receiver] += times * Fraction(heard)
    return spent


def hears(plan: Plan) -> by_message.Hears:
    """Who is within interference range of whom."""
    at, range_m = plan.world.graph.positions_m, plan.scenario.network.interference_m
    return lambda i, j: range_m is not None and math.dist(at[i], at[j]) <= range_m


def half_duplex_tree_s(messages: list[Message], radio: Radio) -> float:
    """Children are heard as they become ready; the child with most below it is told first."""
    half = len(messages) // 2
    children: dict[int, list[int]] = defaultdict(list)
    for _, parent, child, _ in messages[half:]:
        children[parent].append(child)
    bits, root = messages[0][3], messages[half][1]

    def up(device: int) -> float:
        clock = 0.0
        for ready, child in sorted((up(child), child) for child in children[device]):
            clock = max(clock, ready) + radio.seconds(child, device, bits)
        return clock

    def down(device: int) -> float:
        busy = last = 0.0
        for below, child in sorted(((down(c), c) for c in children[device]), reverse=True):
            busy += radio.seconds(device, child, bits)
            last = max(last, busy + below)
        return last

    return up(root) + down(root)


def slots_s(messages: list[Message], radio: Radio, ring: bool) -> float:
    """Links that share a device take turns: two or three turns on a ring, else the first free."""
    load: dict[tuple[int, int], float] = defaultdict(float)
    for _, sender, receiver, bits in messages:
        load[min(sender, receiver), max(sender, receiver)] += radio.seconds(sender, receiver, bits)
    turns: dict[int, float] = defaultdict(float)
    taken: dict[int, set[int]] = defaultdict(set)
    for k, ((i, j), seconds) in enumerate(load.items()):
        if ring:
            turn = k % 2 if k < len(load) - 1 else 1 + len(load) % 2
        else:
            turn = next(c for c in range(len(load)) if c not in taken[i] | taken[j])
        taken[i].add(turn)
        taken[j].add(turn)
        turns[turn] = max(turns[turn], seconds)
    return sum(turns.values())


def half_duplex_s(route: Route, radio: Radio) -> float:
    """A device serves one link at a time."""
    messages = list(route.messages())
    if route.root >= 0 and route.chunks == 1:
        return half_duplex_tree_s(messages, radio)
    if route.steps == 1:  # all links at once, over and over
        first = [message for message in messages if message[0] == 0]
        return route.repeats * slots_s(first, radio, route.scheme in ("ring", "ring-chunked"))
    free: dict[int, float] = defaultdict(float)
    for _, sender, receiver, bits in messages:
        done = max(free[sender], free[receiver]) + radio.seconds(sender, receiver, bits)
        free[sender] = free[receiver] = done
    return max(free.values())


def gossip_rounds(plan: Plan, t: int) -> int:
    """K of the scheme by which an iteration's exchange is made."""
    scheme = plan.scheme_at(t + 1)
    part = scheme.at(t) if isinstance(scheme, Patterned) else scheme
    return 0 if part is None else part.rounds


def exchange_s(plan: Plan, t: int, route: Route, radio: Radio) -> float:
    """Eq. `tcp`, or the critical path."""
    messages = list(route.messages())
    if plan.scenario.plan.timed == "paper":
        devices = int(plan.active[t].sum())
        uses = {"ring": devices - 1, "ring-chunked": 2 * (devices - 1) / devices}
        uses |= {"tree": 2, "tree-chunked": 2}
        slowest = max(radio.seconds(s, r, bits) / bits for _, s, r, bits in messages)
        slowest *= plan.work.model_bits
        return float(uses.get(route.scheme, gossip_rounds(plan, t)) * slowest)
    network = plan.scenario.network
    if network.medium == "shared":
        return by_message.shared_s(route, radio, hears(plan), broadcast=network.broadcast)
    if network.duplex == "half":
        return half_duplex_s(route, radio)
    if network.broadcast and route.same_to_all:
        return by_message.levelled_s(route, radio)
    return pipelined_s(route, radio) if route.chunks > 1 else full_duplex_s(messages, radio)


def flood(plan: Plan, t: int) -> list[Message]:
    """Coordination: a 64-bit report passes each live link both ways."""
    live = [link for link in plan.world.graph.edges.tolist() if plan.active[t][link].all()]
    return [(0, *way, 64.0) for i, j in live for way in ((i, j), (j, i))]


# The checker -------------------------------------------------------------------------------------


def iteration_prices(
    plan: Plan, fields: dict[str, Any], t: int, fresh: bool
) -> tuple[dict[int, Fraction], float]:
    """Joules of the devices and seconds of an iteration's exchange."""
    route = plan.route(t + 1)
    if route is None or not len(route.edge):
        return {}, 0.0
    radio, messages = Radio(plan, fields, t), list(route.messages())
    both_ends, network = plan.scenario.plan.pays == "both-ends", plan.scenario.network
    if route.chunks > 1:  # a chunk after another: broadcasts carry one each
        messages = [(k - c, i, j, b) for k, c, i, j, b in route.chunk_messages() if c == 0]
    together = network.broadcast and route.same_to_all
    joules = exchange_j(messages, radio, both_ends, together, route.chunks)
    seconds = exchange_s(plan, t, route, radio)
    if fresh and plan.scenario.plan.coordination and route.root >= 0:
        reports = flood(plan, t)
        times = len(reports) // 2  # the reports of all links, one after another
        more_j = exchange_j(reports, radio, both_ends, network.broadcast, times)
        for device, more in more_j.items():
            joules[device] += more
        if network.medium == "shared":
            sent = by_message.transmissions(reports, radio, together=network.broadcast)
            seconds += times * by_message.slots_s(by_message.in_slots(sent, hears(plan)))
        elif network.duplex == "half":
            seconds += times * slots_s(reports, radio, False)
        else:
            seconds += times * full_duplex_s(reports, radio)
    return joules, seconds


def allowed(budget: float) -> Fraction:
    """What may be spent of a budget: the tolerance more, and what the checker's prices round."""
    return Fraction(budget) * (1 + Fraction(1, 10**9) + Fraction(1, 10**12))


def check(plan: Plan, fields: dict[str, Any]) -> None:
    """Nothing is overspent: by the ledger's entries, and by the checker's prices."""
    n, count = plan.rounds.shape
    round_j, round_s = round_prices(fields)
    battery = [allowed(x) for x in fields["budget.energy_j"]["values"]]
    limits = (fields["budget.deadline_s"], fields.get("budget.total_s"))
    deadline, whole = (None if limit is None else allowed(limit) for limit in limits)
    listed_whole, own_whole = Fraction(0), Fraction(0)
    ledger_j = np.broadcast_to(plan.exchange_j, (n, count)).tolist()
    figures = plan.world.devices
    assert figures.round_energy_j == pytest.approx(round_j, rel=1e-12)
    assert figures.round_latency_s == pytest.approx(round_s, rel=1e-12)
    listed_j = [Fraction(x) for x in figures.round_energy_j.tolist()]
    listed_s = [Fraction(x) for x in figures.round_latency_s.tolist()]
    idle_w = [Fraction(x) for x in figure(fields, "idle_w") or [0.0] * count]
    entries, mine = [Fraction(0)] * count, [Fraction(0)] * count
    paid: tuple[Any, ...] | None = None
    known = plan.scenario.network.channel_known
    for t in range(n):
        tree = (tuple(plan.active[t].tolist()), plan.world.channel.block(t) if known else 0)
        joules, seconds = iteration_prices(plan, fields, t, fresh=tree != paid)
        paid = tree if plan.exchanged[t] else paid
        wanted = [float(joules.get(i, 0)) for i in range(count)]
        assert ledger_j[t] == pytest.approx(wanted, rel=1e-12, abs=0)
        assert plan.exchange_s[t] == pytest.approx(seconds, rel=1e-12, abs=0)
        every = plan.rounds[t].tolist()
        slowest = max(rounds * one for rounds, one in zip(every, listed_s, strict=True))
        length = slowest + Fraction(float(plan.exchange_s[t]))
        slowest = max(rounds * Fraction(one) for rounds, one in zip(every, round_s, strict=True))
        own_length = slowest + Fraction(seconds)
        listed_whole, own_whole = listed_whole + length, own_whole + own_length
        for i, rounds in enumerate(every):
            entries[i] += Fraction(ledger_j[t][i]) + rounds * listed_j[i]
            mine[i] += joules.get(i, Fraction(0)) + rounds * Fraction(round_j[i])
            if plan.active[t, i]:
                entries[i] += idle_w[i] * length
                mine[i] += idle_w[i] * own_length
            assert rounds >= plan.ground.least or not plan.active[t, i]
            if deadline is None:
                continue
            assert rounds * listed_s[i] + Fraction(float(plan.exchange_s[t])) <= deadline
            assert rounds * Fraction(round_s[i]) + Fraction(seconds) <= deadline
    assert all(spent <= held for spent, held in zip(entries, battery, strict=True))
    assert all(spent <= held for spent, held in zip(mine, battery, strict=True))
    if whole is not None:
        assert listed_whole <= whole
        assert own_whole <= whole
        assert plan.time_s <= whole
    for i, held in enumerate(entries):
        columns = (plan.compute_total_j, plan.transmit_total_j, plan.receive_total_j)
        assert plan.spent_j[i] == sum([*(c[i] for c in columns), plan.idle_total_j[i]])
        assert plan.spent_j[i] == pytest.approx(float(held), rel=1e-12)
    # What the plan itself says of its sums, rounded.
    assert (plan.margin_j >= 0).all()
    assert (plan.margin_s >= 0).all()


def tight(plan: Plan, fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Budgets of what a plan spends, a little more, or less by more and by less than forgiven."""

    def near(value: float) -> float:
        return value * rng.choice((1.0 - 1e-7, 1.0 - 5e-10, 1.0, 1.0 + 1e-12))

    used: dict[str, Any] = {
        "budget.energy_j": {"values": [near(max(x, 1e-9)) for x in plan.spent_j.tolist()]},
        "plan.iterations": plan.iterations,
    }
    if plan.deadline_s is not None:
        used["budget.deadline_s"] = near(float(plan.latency_s.max()))
    if plan.total_s is not None:
        used["budget.total_s"] = near(plan.time_s)
    return fields | used


def planned(fields: dict[str, Any]) -> Plan | None:
    try:
        return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(fields))
    except joulemesh.JoulemeshError:
        return None


def explore(
    seed: int,
    scenarios: int,
    *,
    timed: bool = False,
    measured: bool = False,
    shared: bool = False,
    messages: bool = False,
) -> Counter[str]:
    """Check so many plans, half of them with budgets that are used up."""
    rng, seen = random.Random(seed), Counter[str]()
    while seen["plans"] < scenarios:
        fields = draw(rng, timed=timed, shared=shared)
        if measured:
            fields = with_measured(fields, rng)
        if messages:
            fields = with_messages(fields, rng)
        for free in (True, False):
            plan = planned(fields)
            if plan is None:
                seen["refused"] += 1
                break
            check(plan, fields)
            seen["plans"] += 1
            seen["outage"] += not plan.exchanged.all()
            seen["left"] += not plan.active.all()
            seen["tight"] += not free
            seen[plan.scheme] += 1
            seen[plan.scenario.plan.rounds] += 1
            seen["total"] += plan.total_s is not None and plan.deadline_s is None
            seen["both"] += plan.total_s is not None and plan.deadline_s is not None
            seen["auto"] += plan.scenario.plan.iterations == "auto"
            seen["shared"] += plan.scenario.network.medium == "shared"
            seen["broadcast"] += plan.scenario.network.broadcast
            seen["fading"] += plan.world.channel.fading
            seen["zeros"] += bool((plan.rounds[plan.active] == 0).any())
            seen["idle"] += bool(plan.idle_total_j.any())
            seen["receive"] += "devices.receive_j_per_bit" in fields
            seen["step"] += "devices.step_s" in fields
            seen["coordinated"] += plan.scenario.plan.coordination
            seen["half"] += plan.scenario.network.duplex == "half"
            seen["handled"] += "devices.message_j" in fields
            seen["receiver"] += "devices.receive_power_w" in fields
            fields = tight(plan, fields, rng)
    return seen


def test_nothing_is_overspent() -> None:
    seen = explore(0, 200)
    # The test means something only while all kinds occur.
    schemes = ("tree", "tree-chunked", "ring", "ring-chunked", "gossip", "metropolis")
    policies = CHOICES["plan.rounds"]
    assert all(seen[kind] for kind in (*schemes, *policies, "outage", "left", "tight")), seen


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(1, 51), 4))
def test_nothing_is_overspent_in_ten_thousand_plans(piece: int) -> None:
    assert explore(piece, 200)["plans"] >= 200


def test_no_second_is_overspent() -> None:
    """With a total time, a deadline or both: every policy, patterns, fading and departures."""
    seen = explore(0, 120, timed=True)
    kinds = ("pattern", "total", "both", "auto", "fading", "zeros", "outage", "left", "tight")
    policies = ("theorem4", "backfill", "uniform", "fixed", "inverse", "spread")
    assert all(seen[kind] for kind in (*kinds, *policies)), seen


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(1, 26), 3))
def test_no_second_is_overspent_in_five_thousand_plans(piece: int) -> None:
    assert explore(piece, 200, timed=True)["plans"] >= 200


@pytest.mark.parametrize("timed", [False, True])
def test_nothing_measured_is_overspent(timed: bool) -> None:
    """With measured steps, joules per bit sent and received, and the energy of waiting."""
    seen = explore(7, 20, timed=timed, measured=True)
    assert all(seen[kind] for kind in ("idle", "receive", "step", "tight", "fading")), seen


def test_nothing_is_overspent_in_a_shared_medium() -> None:
    """Conflicts by common ends, by interference of some and of all; with and without broadcasts."""
    seen = explore(0, 30, shared=True)
    kinds = ("shared", "broadcast", "fading", "tree", "tree-chunked", "metropolis", "tight")
    assert all(seen[kind] for kind in kinds), seen


@pytest.mark.parametrize(("measured", "shared"), [(False, False), (False, True), (True, False)])
def test_packets_and_messages_are_paid_for(measured: bool, shared: bool) -> None:
    """Headers, channel access and handling of every message of every scheme, at both ends."""
    seen = explore(3, 60, measured=measured, shared=shared, messages=True)
    schemes = ("tree", "tree-chunked", "ring", "ring-chunked", "gossip", "metropolis")
    kinds = ("handled", "receiver", "coordinated", "fading", "half", "tight")
    assert all(seen[kind] for kind in (*kinds, *schemes)), seen


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("piece", sample(range(1, 26), 1))
def test_packets_and_messages_are_paid_for_in_ten_thousand_plans(
    piece: int, shared: bool, timed: bool
) -> None:
    seen = explore(piece, 100, timed=timed, measured=True, shared=shared, messages=True)
    assert seen["plans"] >= 100


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("piece", sample(range(1, 26), 1))
def test_nothing_measured_is_overspent_in_five_thousand_plans(piece: int, timed: bool) -> None:
    assert explore(100 + piece, 100, timed=timed, measured=True)["plans"] >= 100


@pytest.mark.slow
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("piece", sample(range(1, 6), 1))
def test_nothing_is_overspent_in_two_thousand_plans_of_a_shared_medium(
    piece: int, measured: bool, timed: bool
) -> None:
    seen = explore(piece, 100, timed=timed, measured=measured, shared=True)
    assert seen["plans"] >= 100
