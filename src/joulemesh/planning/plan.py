"""A plan: who trains how much and when, and what it costs. `joulemesh.planning.walk` makes it."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.errors import ScenarioError, called
from joulemesh.base.units import duration, energy
from joulemesh.ledger import Ledger, alike, charge, paced_j, slowest_s, total_of
from joulemesh.planning.budget import rounds_cap
from joulemesh.planning.ground import Ground, Workload
from joulemesh.planning.notes import Figure, figures
from joulemesh.scenario import Scenario
from joulemesh.theory import bounds
from joulemesh.tolerance import left_of
from joulemesh.world import World
from joulemesh.world.devices import DeviceArrays
from joulemesh.world.traces import Snapshot

if TYPE_CHECKING:
    from joulemesh.planning.advice import Answer
    from joulemesh.planning.certificate import Certificate
    from joulemesh.planning.gantt import Gantt
    from joulemesh.planning.losses import Drawn
    from joulemesh.planning.notes import Safety

__all__ = [
    "BINDING",
    "COLUMNS",
    "GAINED",
    "LEDGER",
    "Account",
    "Event",
    "Ledgered",
    "Plan",
    "Timeline",
    "absent",
    "bound",
    "device_columns",
    "digest_of",
    "digest_of_timeline",
    "ledger_of",
    "spent_on",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Event:
    """Something out of the ordinary."""

    iteration: int  # when, counted from 1
    # ``"outage"`` (exchange skipped), ``"depleted"`` or ``"cut-off"`` (devices left), ``"ended"``
    # (fewer than two devices remain); with traces also ``"absent"`` (devices are not there),
    # ``"gone"`` (devices leave for good), ``"returned"`` (devices take part again) and
    # ``"waiting"`` (an iteration passes without anybody)
    kind: str
    devices: tuple[int, ...]  # who
    detail: str  # one line


@dataclass(frozen=True, eq=False)
class Timeline:
    """The whole energy and time timeline of a run, computed before it."""

    scheme: Scheme  # the scheme of the first iteration, and the forecast's route
    route: Route  # its route
    rounds: IntArray  # int64 [n, N]
    cap: IntArray  # int64 [n, N] or [1, N]: rounds that fit the deadline
    total: IntArray  # int64 [N]: rounds that the batteries pay for, over all iterations
    exchange: Ledger  # what the exchanges cost, and what batteries gain meanwhile
    active: NDArray[np.bool_]  # bool [n, N]: who takes part
    exchanged: NDArray[np.bool_]  # bool [n]: False where the exchange was skipped
    # bool [n]: True where the flooding of link costs was paid (`plan.coordination`).
    flooded: NDArray[np.bool_]
    # the scheme of each stretch of iterations, with its first iteration (from 0)
    schemes: tuple[tuple[int, Scheme], ...]
    # under fading, the route of each iteration (None where skipped)
    routes: tuple[Route | None, ...] | None = None
    events: tuple[Event, ...] = field(default=())  # outages and departures, in order
    first: int = 0  # the iteration (from 0) of the first row; above 0 for the rest of a plan
    # float64 [n, N]: joules harvested that batteries have no room for; None without a harvest
    spilled_j: FloatArray | None = None
    # (iteration from 0, newcomer, giver): who begins an iteration with whose parameters, because it
    # has been away
    gifts: tuple[tuple[int, int, int], ...] = ()
    # (iteration from 0, newcomer, neighbour): who sends these parameters to whom, over one link
    # each
    handed: tuple[tuple[int, int, int], ...] = ()
    # where devices that move are in each iteration; empty if none does
    snapshots: tuple[Snapshot | None, ...] = ()
    # float64 [n, N]: seconds of each iteration for which a device's power at rest is paid; None: of
    # the whole iteration, by those who take part
    awake_s: FloatArray | None = None
    # float64 [n]: seconds for which each iteration trains, all of which devices use as far as their
    # clocks go down; None: as the slowest needs at full clock, and all run at full clock
    window_s: FloatArray | None = None

    def training_s(self, round_s: FloatArray) -> FloatArray:
        """float64 [n]: seconds for which each iteration trains, from those of a round [N]."""
        return slowest_s(self.rounds, round_s) if self.window_s is None else self.window_s

    def trained(self, devices: DeviceArrays, row: int) -> tuple[FloatArray, FloatArray]:
        """Seconds and joules of each device's training in a row, float64 [N] each."""
        rounds = self.rounds[row]
        if self.window_s is None:
            return rounds * devices.round_latency_s, rounds * devices.round_energy_j
        prices = devices.round_prices
        seconds = prices.stretched_s(rounds[None], self.window_s[row : row + 1])
        return seconds[0], prices.joules(rounds[None], seconds)[0]

    @property
    def contraction(self) -> FloatArray:
        """float64 [n]: share of devices' distance from their mean after an exchange, at most."""
        # 0 after an exact mean, 1 where the exchange is skipped.
        left = np.ones(len(self.rounds))
        for since, scheme in self.schemes:
            row = since - self.first
            exact = [scheme.exact_at(t) for t in range(since, self.first + len(left))]
            left[row:] = np.where(exact, 0.0, min(1.0, scheme.error))
        return np.where(self.exchanged, left, 1.0)

    def snapshot(self, row: int) -> Snapshot | None:
        """Where devices that move are in a row; None if none does."""
        return self.snapshots[row] if self.snapshots else None

    def from_row(self, row: int) -> Timeline:
        """The same from a later row on; ``cap`` may have one row for all."""
        first = self.first + row
        schemes = {max(since, first): scheme for since, scheme in self.schemes}
        return replace(
            self,
            rounds=self.rounds[row:],
            cap=self.cap if len(self.cap) == 1 else self.cap[row:],
            exchange=self.exchange[row:],
            active=self.active[row:],
            exchanged=self.exchanged[row:],
            flooded=self.flooded[row:],
            schemes=tuple(schemes.items()),
            routes=None if self.routes is None else self.routes[row:],
            events=tuple(event for event in self.events if event.iteration > first),
            first=first,
            spilled_j=None if self.spilled_j is None else self.spilled_j[row:],
            gifts=tuple(gift for gift in self.gifts if gift[0] >= first),
            handed=tuple(gift for gift in self.handed if gift[0] >= first),
            snapshots=self.snapshots[row:],
            window_s=None if self.window_s is None else self.window_s[row:],
        )


class Account(Protocol):
    """Rounds, joules and seconds of a run of n iterations on N devices."""

    @property
    def scenario(self) -> Scenario:
        """What was asked."""

    @property
    def work(self) -> Workload:
        """Size of the model and of a round."""

    @property
    def iterations(self) -> int:
        """Number n of iterations."""

    @property
    def rounds(self) -> NDArray[Any]:
        """Integers [n, N]: local rounds."""

    @property
    def active(self) -> NDArray[np.bool_]:
        """bool [n, N]: who takes part."""

    @property
    def exchanged(self) -> NDArray[np.bool_]:
        """bool [n]: False where the exchange is skipped."""

    @property
    def iteration_j(self) -> FloatArray:
        """float64 [n], or [n, seeds] where they depend on the training: joules of all devices."""

    @property
    def latency_s(self) -> FloatArray:
        """float64 [n], or [n, seeds] where they depend on the training: seconds each takes."""

    @property
    def energy_budget_j(self) -> FloatArray:
        """float64 [N]: the batteries."""

    @property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: what the batteries hold at the start, and what they gain on the way."""

    @property
    def deadline_s(self) -> float | None:
        """Seconds allowed to each iteration; None where only their sum is limited."""

    @property
    def total_s(self) -> float | None:
        """Seconds allowed to all iterations together; None without such a limit."""

    @property
    def compute_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on training."""

    @property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""

    @property
    def transmit_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on sending."""

    @property
    def receive_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on receiving."""

    @property
    def idle_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends at rest."""

    @property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all."""

    @property
    def margin_j(self) -> FloatArray:
        """float64 [N]: what is left in the batteries."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one line each."""

    @property
    def names(self) -> tuple[str, ...]:
        """The devices' names; empty without any."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """The figures of the scenario that decide it, each with its origin."""


def _is_an_account(plan: Plan) -> Account:
    """Checked by mypy."""
    return plan


COLUMNS = ("compute_total_j", "transmit_total_j", "receive_total_j", "idle_total_j")
"""What each device's joules go on; together they are ``spent_j``."""

LEDGER = (
    "energy_budget_j",
    "compute_total_j",
    "exchange_total_j",
    *COLUMNS[1:],
    "spent_j",
    "margin_j",
)
"""The columns of a table of devices; ``exchange_total_j`` is transmitting and receiving."""

GAINED = ("harvested_total_j", "spilled_total_j")
"""Further columns of such a table, where batteries are recharged."""


def spent_on(account: Account) -> dict[str, FloatArray]:
    """What devices spend on what, in the columns that a table needs, by their headers; each [N]."""
    # Sending and receiving are one column where receiving is free, and rest is none where it is.
    columns = {"training": account.compute_total_j}
    if account.receive_total_j.any():
        columns |= {"transmit": account.transmit_total_j, "receive": account.receive_total_j}
    else:
        columns["exchange"] = account.exchange_total_j
    if account.idle_total_j.any():
        columns["idle"] = account.idle_total_j
    return columns


def device_columns(account: Account) -> dict[str, tuple[FloatArray, str]]:
    """The columns of a table of devices for readers, by their headers: figures [N], their unit."""
    joules = {"battery": account.energy_budget_j, **spent_on(account)}
    columns = {name: (figures, "J") for name, figures in joules.items()}
    if isinstance(account, Plan):
        if account.safety_margin_j is not None:
            columns["for safety"] = account.safety_margin_j, "J"
        if account.power_w is not None:
            columns["sends at"] = account.power_w, "W"
    return columns


def ledger_of(account: object) -> tuple[str, ...]:
    """The columns of a table of devices: `LEDGER`, and `GAINED` where batteries are recharged."""
    return (*LEDGER, *GAINED) if getattr(account, "harvests", False) else LEDGER


class Ledgered:
    """What a plan costs, by its ground and its timeline; `Plan` inherits it."""

    ground: Ground
    timeline: Timeline

    @cached_property
    def ledger(self) -> Ledger:
        """What every iteration costs."""
        devices, timeline = self.ground.world.devices, self.timeline
        made = charge(
            devices,
            timeline.rounds,
            timeline.exchange,
            who=timeline.active,
            window_s=timeline.window_s,
        )
        if devices.idle_w is None or timeline.awake_s is None:
            return made
        return replace(made, idle_j=devices.idle_w * timeline.awake_s)

    @property
    def compute_j(self) -> FloatArray:
        """float64 [n, N]: joules of local training."""
        devices, timeline = self.ground.world.devices, self.timeline
        if timeline.window_s is not None:
            return paced_j(devices, timeline.rounds, timeline.window_s)
        return np.asarray(timeline.rounds * devices.round_energy_j)

    @property
    def training_s(self) -> FloatArray:
        """float64 [n, N]: seconds for which each device trains."""
        devices, timeline = self.ground.world.devices, self.timeline
        if timeline.window_s is not None:
            return devices.round_prices.stretched_s(timeline.rounds, timeline.window_s)
        return np.asarray(timeline.rounds * devices.round_latency_s)

    @property
    def clock_share(self) -> FloatArray:
        """float64 [N]: mean speed of each device while it trains, as a share of full clock."""
        full_s = self.timeline.rounds.sum(axis=0) * self.ground.world.devices.round_latency_s
        taken_s = self.training_s.sum(axis=0)
        share = np.divide(full_s, taken_s, out=np.ones_like(full_s), where=taken_s > 0)
        return np.asarray(share)

    @property
    def exchange_j(self) -> FloatArray:
        """float64 [n, N]: joules of the exchanges, sending and receiving."""
        return self.timeline.exchange.exchange_j

    @property
    def transmit_j(self) -> FloatArray:
        """float64 [n, N]: what of these is for sending."""
        return self.timeline.exchange.transmit_j

    @property
    def receive_j(self) -> FloatArray:
        """float64 [n, N]: what of these is for receiving."""
        return self.timeline.exchange.receive_j

    @property
    def exchange_s(self) -> FloatArray:
        """float64 [n]: seconds of the exchanges."""
        return self.timeline.exchange.seconds

    @cached_property
    def latency_s(self) -> FloatArray:
        """float64 [n]: seconds of each iteration, training and exchange."""
        round_s = self.ground.world.devices.round_latency_s
        return np.asarray(self.timeline.training_s(round_s) + self.exchange_s)

    def idle_j(self, row: int) -> FloatArray:
        """float64 [N]: joules at rest of an iteration (from 0), of those who take part in it."""
        idle_w = self.ground.world.devices.idle_w
        if idle_w is None:
            return np.zeros(self.timeline.rounds.shape[1])
        if self.timeline.awake_s is not None:
            return np.asarray(idle_w * self.timeline.awake_s[row])
        return np.where(self.timeline.active[row], idle_w * self.latency_s[row], 0.0)

    @cached_property
    def iteration_j(self) -> FloatArray:
        """float64 [n]: joules of each iteration of all devices, at rest included."""
        round_j = self.ground.world.devices.round_energy_j
        if self.timeline.window_s is not None:
            training = self.compute_j.sum(axis=1)
        else:
            training = np.array([rounds @ round_j for rounds in self.timeline.rounds])
        exchange = self.exchange_j[:1] if alike(self.exchange_j) else self.exchange_j
        working = np.asarray(training + exchange.sum(axis=1))
        if self.ground.world.devices.idle_w is None:
            return working
        return np.asarray(working + [self.idle_j(row).sum() for row in range(len(working))])

    @cached_property
    def time_s(self) -> float:
        """Seconds of all iterations together."""
        return float(self.latency_s.sum())

    # Of the whole plan --------------------------------------------------------------------------

    @cached_property
    def exchange_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on exchanges, sending and receiving."""
        return total_of(self.exchange_j)

    @property
    def compute_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on training."""
        return np.asarray(self._columns[0])

    @property
    def transmit_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on sending."""
        return np.asarray(self._columns[1])

    @property
    def receive_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends on receiving; 0 where it is free."""
        return np.asarray(self._columns[2])

    @property
    def idle_total_j(self) -> FloatArray:
        """float64 [N]: joules at rest, in the iterations in which a device takes part."""
        return np.asarray(self._columns[3])

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all: the sum of the four columns."""
        return np.asarray(self._columns.sum(axis=0))

    @cached_property
    def _columns(self) -> FloatArray:
        """float64 [4, N]: what `COLUMNS` name."""
        devices, timeline = self.ground.world.devices, self.timeline
        compute = timeline.rounds.sum(axis=0) * devices.round_energy_j
        if timeline.window_s is not None:
            compute = self.compute_j.sum(axis=0)
        sent, heard = (total_of(part) for part in (self.transmit_j, self.receive_j))
        idle = np.zeros_like(compute) if devices.idle_w is None else devices.idle_w * self._rest_s
        return np.stack([compute, sent, heard, idle])

    # What batteries gain -------------------------------------------------------------------------

    @property
    def harvests(self) -> bool:
        """Do batteries gain anything on the way?"""
        return self.timeline.spilled_j is not None

    @property
    def harvested_j(self) -> FloatArray:
        """float64 [n, N]: joules that each iteration brings, spilled ones included."""
        return np.asarray(self.timeline.exchange.harvested_j + self.spilled_j)

    @property
    def spilled_j(self) -> FloatArray:
        """float64 [n, N]: what of these a full battery has no room for."""
        spilled = self.timeline.spilled_j
        return np.broadcast_to(0.0, self.timeline.rounds.shape) if spilled is None else spilled

    @property
    def harvested_total_j(self) -> FloatArray:
        """float64 [N]: joules that each device harvests, spilled ones included."""
        return total_of(self.harvested_j)

    @property
    def spilled_total_j(self) -> FloatArray:
        """float64 [N]: joules harvested that each battery has no room for."""
        return total_of(self.spilled_j)

    @cached_property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: what each battery holds at the start, and all that it gains."""
        held = self.ground.world.devices.energy_budget_j
        return np.asarray(held + total_of(self.timeline.exchange.harvested_j))

    @property
    def _rest_s(self) -> FloatArray:
        """float64 [N]: seconds of the iterations in which each device takes part."""
        if self.timeline.awake_s is not None:
            return np.asarray(self.timeline.awake_s.sum(axis=0))
        seconds = np.zeros(self.timeline.rounds.shape[1])
        if self.timeline.active.all():
            return np.asarray(seconds + self.latency_s.sum())
        for active, taken_s in zip(self.timeline.active, self.latency_s.tolist(), strict=True):
            seconds[active] += taken_s
        return seconds


BoolArray = NDArray[np.bool_]

BINDING = ("energy", "policy", "deadline", "left", "time", "idle")
"""What may keep a device from one more round; `bound` gives positions in it."""
_DEADLINE, _LEFT, _TIME, _IDLE = np.int8(2), np.int8(3), np.int8(4), np.int8(5)


def bound(plan: Plan) -> NDArray[np.int8]:
    """What keeps each device from one more round: positions in `BINDING`, int8 [N]."""
    one_more = plan.timeline.total > plan.rounds.sum(axis=0)
    full: BoolArray = np.asarray((plan.rounds >= plan.timeline.cap).all(axis=0))
    kind = one_more.astype(np.int8) + (one_more & full)
    if plan.world.devices.idle_w is not None and plan.ground.policy.spends != "least":
        kind = np.where(one_more, _waiting(plan, full), kind)
    elif plan.total_s is not None:
        kind[one_more & _out_of_time(plan, full)] = _TIME
    here = plan.active[-1] | (absent(plan) & ~_gone(plan))
    return np.where(here, kind, _LEFT)


def absent(plan: Plan) -> BoolArray:
    """bool [N]: who takes no part in the last iteration because the scenario says so."""
    # They are away by ``devices.availability``, gone by ``devices.leave``, or cut off from the
    # others by that alone. No budget keeps them from more.
    why = _reasons(plan)
    allowed = {"absent", "gone"} if "depleted" in why else {"absent", "gone", "cut-off", "waiting"}
    return np.asarray(np.isin(why, list(allowed)) & ~plan.active[-1])


def _gone(plan: Plan) -> BoolArray:
    return np.asarray(_reasons(plan) == "gone")


def _reasons(plan: Plan) -> NDArray[np.str_]:
    """[N]: the kind of the event that each device last left with; empty if it never did."""
    why = np.full(plan.active.shape[1], "", dtype="U16")
    for event in plan.events:
        if event.kind in ("depleted", "absent", "gone", "cut-off", "waiting", "returned"):
            why[list(event.devices)] = event.kind
    return why


def _waiting(plan: Plan, full: BoolArray) -> NDArray[np.int8]:
    """What keeps devices from a round that they can pay for, where waiting costs energy."""
    # Iterations are as long as gives most rounds in all: longer ones would cost more at rest,
    # unless it is the deadline or the total time that ends them.
    round_s = plan.world.devices.round_latency_s
    on_time, late = np.zeros_like(full), np.zeros_like(full)
    if plan.deadline_s is not None:
        in_time = rounds_cap(plan.deadline_s, float(plan.exchange_s.max()), round_s)
        on_time = np.asarray((plan.rounds >= in_time).all(axis=0))
    if plan.total_s is not None:
        late = round_s > plan.margin_total_s
    kind: NDArray[np.int8] = np.where(on_time, _DEADLINE, np.where(late, _TIME, _IDLE))
    return kind


def _out_of_time(plan: Plan, full: BoolArray) -> BoolArray:
    """bool [N]: would one more round, wherever it is, break the total time or its share?"""
    # Iterations that are full to their share of the total time, and not to the deadline, are full
    # because of the total.
    round_s = plan.world.devices.round_latency_s
    on_time = np.zeros_like(full)
    if plan.deadline_s is not None:
        in_time = rounds_cap(plan.deadline_s, float(plan.exchange_s.max()), round_s)
        on_time = full & (plan.timeline.cap >= in_time).all(axis=0)
    if plan.ground.policy.fit is not None:  # it leaves no room for a round
        return ~on_time
    least_s = np.full(len(round_s), np.inf)
    for rounds, length_s, exchange_s in zip(
        plan.rounds, plan.latency_s, plan.exchange_s, strict=True
    ):
        least_s = np.minimum(least_s, (rounds + 1) * round_s + exchange_s - length_s)
    return (full & ~on_time) | (least_s > plan.margin_total_s)


def digest_of(plan: Plan) -> str:
    """SHA-256 over the scenario and all that the plan decides, in hexadecimal."""
    return digest_of_timeline(plan.scenario, plan.work.model_bits, plan.timeline)


def digest_of_timeline(scenario: Scenario, model_bits: float, timeline: Timeline) -> str:
    """SHA-256 over a scenario and what is decided in every iteration, in hexadecimal."""
    # It covers the scenario (of a path, the file's name only), the size of the model, the numbers
    # of the iterations, everybody's rounds, who takes part, which exchanges are skipped, the scheme
    # with its devices and links, and the routes. It covers no joules and no seconds: logarithms and
    # powers differ in the last bit from one processor to another, and devices that decide the same
    # have to agree.
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


@dataclass(frozen=True)
class Plan(Ledgered):
    """Who trains how much and when, and what it costs.

    Attributes:
        ground: what was asked, its sizes and its world.
        timeline: every iteration, as it will happen.
        notes: what a reader of the plan should know, one line each.
        drawn: of a plan that is carried out where packets are lost (`carried_out`), what was
            drawn; joules and seconds are then the drawn ones.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> made.rounds.shape == (made.iterations, 20)
    True
    >>> bool((made.margin_j >= 0).all() and (made.margin_s >= 0).all())
    True
    """

    ground: Ground
    timeline: Timeline
    notes: tuple[str, ...] = ()
    drawn: Drawn | None = None

    @property
    def planned(self) -> Plan:
        """The plan with what was expected, where it was carried out with what was drawn."""
        drawn = self.drawn
        return self if drawn is None else replace(self, timeline=drawn.planned, drawn=None)

    @property
    def scenario(self) -> Scenario:
        """What was asked."""
        return self.ground.scenario

    @property
    def world(self) -> World:
        """Devices, graph and channel."""
        return self.ground.world

    @property
    def work(self) -> Workload:
        """Sizes of the model and of a round."""
        return self.ground.work

    @property
    def scheme(self) -> str:
        """Name of the aggregation scheme."""
        return self.timeline.scheme.name

    @property
    def reason(self) -> str:
        """Why this scheme."""
        return self.timeline.scheme.reason

    @property
    def edges(self) -> IntArray:
        """int64 [E', 2]: the links that the scheme uses (under fading, those of the forecast)."""
        return self.timeline.route.edges

    @property
    def iterations(self) -> int:
        """Number n of iterations."""
        return len(self.timeline.rounds)

    @property
    def rounds(self) -> IntArray:
        """int64 [n, N]: local rounds; 0 for a device that has left."""
        return self.timeline.rounds

    @property
    def energy_budget_j(self) -> FloatArray:
        """float64 [N]: the batteries."""
        return self.world.devices.energy_budget_j

    @property
    def deadline_s(self) -> float | None:
        """Seconds allowed to each iteration; None where only their sum is limited."""
        return self.scenario.budget.deadline_s

    @property
    def total_s(self) -> float | None:
        """Seconds allowed to all iterations together; None without such a limit."""
        return self.scenario.budget.total_s

    @property
    def margin_j(self) -> FloatArray:
        """float64 [N]: what is left in the batteries, with what they have gained."""
        return left_of(self.supplied_j, self.spent_j)

    @property
    def margin_s(self) -> FloatArray:
        """float64 [n]: time to spare in each iteration; infinite without a deadline."""
        return left_of(np.array(self.deadline_s or math.inf), self.latency_s)

    @property
    def margin_total_s(self) -> float:
        """What is left of the total time; infinite without a total."""
        return float(left_of(np.array(self.total_s or math.inf), self.time_s))

    @property
    def active(self) -> BoolArray:
        """bool [n, N]: who takes part."""
        return self.timeline.active

    @property
    def exchanged(self) -> BoolArray:
        """bool [n]: False where the exchange is skipped."""
        return self.timeline.exchanged

    @property
    def events(self) -> tuple[Event, ...]:
        """Outages and departures."""
        return self.timeline.events

    @property
    def binding(self) -> NDArray[np.str_]:
        """str [N]: what keeps a device from one more round.

        ``"energy"``: its battery; ``"deadline"``: every iteration is full; ``"time"``: the total
        time; ``"idle"``: what all devices would draw at rest, waiting for it; ``"policy"``: none of
        these; ``"left"``: it left before the end.
        """
        return np.array(BINDING)[self._bound]

    @cached_property
    def _bound(self) -> NDArray[np.int8]:
        """int8 [N]: which of these it is; the words take 32 bytes each."""
        return bound(self)

    @cached_property
    def figures(self) -> tuple[Figure, ...]:
        """The figures that decide the plan, each with its value and where it comes from.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario(budget={"deadline_s": 0.05}))
        >>> print(*(f"{one.name}: {one.origin}" for one in made.figures[:2]), sep=", ")
        budget.deadline_s: given, budget.energy_j: assumed
        """
        return figures(self.scenario)

    @property
    def safety(self) -> Safety | None:
        """What ``plan.safety`` guarantees and keeps back; None where it is not given."""
        return None if self._safety is None else self._safety[0]

    @property
    def safety_margin_j(self) -> FloatArray | None:
        """float64 [N]: joules of ``spent_j`` that are not spent if every figure is its mean."""
        return None if self._safety is None else self._safety[1]

    @cached_property
    def _safety(self) -> tuple[Safety, FloatArray] | None:
        from joulemesh.planning.notes import safety_of

        return safety_of(self)

    @cached_property
    def power_w(self) -> FloatArray | None:
        """float64 [N]: mean transmit power of each device while it sends; None if none is chosen.

        Without circuits; see ``plan.power``.
        """
        from joulemesh.planning.powers import mean_power_w

        return mean_power_w(self)

    @cached_property
    def link_power_w(self) -> FloatArray | None:
        """float64 [E, 2]: transmit powers of the first exchange on every link, both directions.

        Links that it does not use have the highest power of their sender; None if none is chosen.
        """
        from joulemesh.planning.powers import sent_costs

        if self.power_w is None or not self.timeline.exchanged.any():
            return None
        chosen = sent_costs(self, int(np.argmax(self.timeline.exchanged))).power_w
        highest_w = self.world.devices.transmit_power_w[self.world.graph.edges]
        return highest_w if chosen is None else chosen

    @cached_property
    def answer(self) -> Answer:
        """What binds, what is left over, and which one change would help most; see `advice`."""
        from joulemesh.planning.advice import advice

        return advice(self)

    @cached_property
    def certificate(self) -> Certificate:
        """How far the plan is from the best that its budgets allow; see `certificate`."""
        from joulemesh.planning.certificate import certificate

        return certificate(self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The devices' names, from the column ``name`` of their table; empty without one."""
        return self.ground.names

    def name(self, device: int) -> str:
        """How a device is called in a sentence.

        >>> import joulemesh
        >>> joulemesh.plan(joulemesh.Scenario.preset("adaptive")).name(3)
        'device 3'
        """
        return called(device, self.names)

    def route(self, iteration: int) -> Route | None:
        """What is sent in an iteration (1..n); None where the exchange is skipped."""
        t = self._place(iteration)
        if self.timeline.routes is not None:
            return self.timeline.routes[t]
        if not self.timeline.scheme.random:
            return self.timeline.route
        return self.scheme_at(iteration).route(self.ground.costs(t), t)

    def _place(self, iteration: int) -> int:
        """The row of an iteration in the arrays."""
        if not 1 <= iteration <= self.iterations:
            raise ScenarioError(f"iteration {iteration} is not one of 1..{self.iterations}")
        return iteration - 1

    def scheme_at(self, iteration: int) -> Scheme:
        """The scheme of an iteration (1..n)."""
        t = self.timeline.first + self._place(iteration)
        return [scheme for since, scheme in self.timeline.schemes if since <= t][-1]

    @cached_property
    def bounds(self) -> dict[str, Any] | None:
        """Theorems 1 and 2 and Corollary 1, printed and corrected; None without constants."""
        constants = self.ground.constants
        if constants is None:
            return None
        rate, left = self.scenario.training.learning_rate, self.timeline.contraction
        made = bounds.evaluate(self.rounds, constants, rate, self.work.parameters, contraction=left)
        return made.to_dict()

    def gantt(self, iteration: int, *, merged: bool = False) -> Gantt:
        """The time line of one iteration: who trains, sends and receives when, for how many joules.

        Args:
            iteration: 1..n.
            merged: one bar for all plays or chunks of a transmission, instead of one each.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
        >>> made.gantt(1).to_dict()["bars"][0]["kind"]
        'train'
        """
        from joulemesh.planning.gantt import Draft

        return Draft(self, iteration, merged=merged).gantt()

    def to_json(self) -> str:
        """Everything, as JSON; arrays of more than a million entries are left to ``save``."""
        from joulemesh.planning.export import plan_json

        return plan_json(self)

    def save(self, path: str | Path) -> None:
        """Write the plan to a file; its suffix says how.

        Args:
            path: ends in ``.npz`` (all arrays), ``.json`` (what `to_json` gives) or ``.csv`` (one
                row for each iteration and device: rounds, joules, and whether it is active).
        """
        from joulemesh.planning.export import save_plan

        save_plan(self, path)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan that `to_json` wrote, made again from the scenario in it.

        Raises:
            ScenarioError: the text is no plan, or its scenario no longer gives the same one.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
        >>> bool((Plan.from_json(made.to_json()).rounds == made.rounds).all())
        True
        """
        from joulemesh.planning.export import plan_from_json

        return plan_from_json(text)

    def frame(self) -> Any:
        """One row per device, as a pandas DataFrame: place, battery, what it went on, rounds.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
        >>> int(made.frame()["rounds"].sum()) == int(made.rounds.sum())
        True
        """
        from joulemesh.planning.export import plan_frame

        return plan_frame(self)

    def graph(self) -> Any:
        """Devices and links, as a ``networkx.Graph``.

        Nodes have ``pos`` (metres), ``energy_budget_j``, ``spent_j``, ``rounds`` and ``binding``.
        Edges have ``gain``, ``rate_bps`` (the slower way), ``energy_j_per_bit`` (mean of both),
        ``weight`` (sum of both: the tree's) and ``used`` by the scheme; under fading they are
        priced as forecast. `Scenario.with_graph` takes it back.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
        >>> sum(used for _, _, used in made.graph().edges(data="used")) == len(made.edges)
        True
        """
        from joulemesh.planning.export import plan_graph

        return plan_graph(self)

    def __repr__(self) -> str:
        """In one line; `frame` and `to_json` have the figures."""
        n, count = self.rounds.shape
        spent, held = energy(float(self.spent_j.sum())), energy(float(self.supplied_j.sum()))
        return (
            f"Plan({self.scheme}, {n:,} iterations, {count:,} devices, "
            f"{int(self.rounds.sum()):,} rounds, {spent} of {held}, {duration(self.time_s)})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import joulemesh  # the front door knows the views; this room does not

        page: str = joulemesh.notebook_html(self)
        return page
