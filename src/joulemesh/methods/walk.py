"""Methods, iteration by iteration: what one may know, what it does, what that costs, what is lost.

A method is asked in every iteration what it does among those who take part: a function of a
`Moment`, which holds nothing of what is to come. What the answer, an `Act`, costs and who can pay
for it is decided here. Who is there by the trace takes part. Batteries hold their first charge and
what they have harvested so far, and nothing else is spent:

    - on equal batteries a method ends before the first iteration that some battery cannot pay;
    - otherwise, where batteries recharge, a device that cannot pay for an iteration sits it out
      until it can, if ``plan.on_depletion = "leave"``; if not, an equal budget ends before it, and
      equal iterations and equal time are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.gossip import metropolis_mixing, metropolis_route, metropolis_weights
from joulemesh.aggregation.patterned import NEIGHBOURS, Patterned
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Conditions, Fit, Scheme, choose
from joulemesh.base.errors import InfeasibleError, ScenarioError, require_countable
from joulemesh.ledger import Ledger, charge, total_of
from joulemesh.methods.base import Contender, FloatArray, IntArray
from joulemesh.registries import SCHEMES
from joulemesh.scenario.scenario import rounded_to
from joulemesh.tolerance import left_of, within
from joulemesh.training.from_plan import MOST_ENTRIES, embedded, schedule_by_messages, someone
from joulemesh.training.schedule import Mixing, Schedule
from joulemesh.world.links import LinkCosts
from joulemesh.world.traces import Snapshot

if TYPE_CHECKING:
    from joulemesh.methods.setting import Setting
    from joulemesh.planning.ground import Ground
    from joulemesh.planning.losses import Outcome
    from joulemesh.training.exchange import Exchange

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Moment:
    """What a method may know when an iteration begins.

    Attributes:
        setting: the terms of the comparison.
        t: the iteration, from 0.
        who: bool [N]: who takes part.
        cut: bool [E]: links of the graph that do not exist now.
        snapshot: where devices that move are; None if they do not.
        battery_j: float64 [N]: what batteries hold, with what they have harvested so far.
        memory: what the method's `Act` of the iteration before remembered; None in the first.
    """

    setting: Setting
    t: int
    who: BoolArray
    cut: BoolArray
    snapshot: Snapshot | None
    battery_j: FloatArray
    memory: Any = None

    @property
    def devices(self) -> int:
        return len(self.who)

    @cached_property
    def links(self) -> IntArray:
        """int [L]: positions, in the graph's list, of the links among those who take part."""
        edges = self.setting.world.graph.edges
        return np.flatnonzero(~self.cut & self.who[edges].all(axis=1))

    @property
    def edges(self) -> IntArray:
        """int [L, 2]: the links among those who take part."""
        return self.setting.world.graph.edges[self.links]

    @property
    def key(self) -> Hashable:
        channel = self.setting.world.channel
        return self.who.tobytes(), self.snapshot, channel.block(self.t), channel.edition(self.t)

    @property
    def costs(self) -> LinkCosts:
        """Price of a bit on every link of the graph, as it turns out."""
        return self.setting.ground.costs(self.t, self.snapshot)

    @property
    def forecast(self) -> LinkCosts:
        """Price of a bit on every link of the graph at the fade quantile."""
        ground = self.setting.ground
        if self.snapshot is None:
            return ground.latest_forecast(self.t)
        return ground.forecast_at(self.t, snapshot=self.snapshot)

    @property
    def seen(self) -> LinkCosts:
        """The costs by which links may be chosen."""
        return self.costs if self.setting.ground.channel_known else self.forecast

    def among(self, who: BoolArray) -> Moment:
        return self if who is self.who else replace(self, who=who)

    def connected(self) -> Moment:
        """The same without those from whom no path leads to the larger part of the others."""
        from joulemesh.planning.walk import cut_off

        lost = cut_off(self.setting.world.graph, self.who, self.cut)
        return self.among(self.who & ~lost) if lost.any() else self

    def rounds(self, tau: int) -> IntArray:
        """int64 [N]: so many rounds for everybody who takes part."""
        return np.where(self.who, np.int64(tau), np.int64(0))

    def mixing_route(self, bits: float, times: int = 1, links: IntArray | None = None) -> Route:
        """Everybody who takes part sends to all of its neighbours, so many times."""
        over = self.links if links is None else links
        edges = self.setting.world.graph.edges[over]
        return metropolis_route(edges, bits, times).on_links(over)

    def price(self, route: Route | None, costs: LinkCosts | None = None) -> Ledger:
        """What a route costs, as it turns out unless other costs are given."""
        if route is not None and not len(route.edge):
            route = None  # nobody is there to send, and nothing is waited for
        return self.setting.pricer.route(route, self.costs if costs is None else costs)

    def mean(self) -> FloatArray:
        """float64 [N, N]: the plain mean of those who take part; the others keep what they have."""
        matrix = np.diag((~self.who).astype(np.float64))
        matrix[np.ix_(self.who, self.who)] = 1.0 / max(1, int(self.who.sum()))
        return matrix


@dataclass(frozen=True, eq=False)
class Act:
    """What a method does in an iteration.

    Attributes:
        rounds: int64 [N], τ; 0 for those who take no part.
        sent: what its messages cost.
        matrix: makes the mixing matrix [N, N] of the exchange when training asks for it; None where
            it has none.
        exact: whether the exchange is the exact mean of those who take part.
        who: bool [N]: who takes part, if not everybody who could.
        own_samples: [N]: what the method itself computes, in samples of training.
        memory: what it wants to know in the next iteration.
    """

    rounds: IntArray
    sent: Ledger
    matrix: Callable[[], FloatArray] | None = None
    exact: bool = False
    who: BoolArray | None = None
    own_samples: FloatArray | None = None
    memory: Any = None


Follow: TypeAlias = Callable[[Moment], Act]
"""A method under traces: what it does in an iteration, by what is known when it begins."""


def first_mixing(setting: Setting, bits: float) -> Route:
    """All devices send to all of their neighbours, once, where they stand at first."""
    graph = setting.ground.graph
    return metropolis_route(graph.edges, bits, 1).on_links(graph.links)


class Mixings:
    """Mixings of all who take part with their neighbours, at Metropolis weights among them.

    Args:
        bits: of one message.
        times: mixings in an exchange.
        lazy: mix with (I + W)/2 in place of W.
    """

    def __init__(self, bits: float, times: int = 1, *, lazy: bool = False) -> None:
        self.bits, self.times, self.lazy = bits, times, lazy
        self._priced: dict[Hashable, Ledger] = {}

    def act(self, now: Moment, rounds: IntArray, memory: Any = None) -> Act:
        return Act(rounds, self.price(now), lambda: self.matrix(now), memory=memory)

    def price(self, now: Moment) -> Ledger:
        key = now.key
        if key not in self._priced:
            route = now.mixing_route(self.bits, self.times) if self.times else None
            self._priced[key] = now.price(route)
        return self._priced[key]

    def matrix(self, now: Moment) -> FloatArray:
        """float64 [N, N]: what the mixings do; symmetric and doubly stochastic."""
        weights = metropolis_weights(now.edges, now.devices)
        if self.lazy:
            return np.asarray((weights.toarray() + np.eye(now.devices)) / 2)
        return np.asarray(metropolis_mixing(weights, self.times))


class Copied(Mixings):
    """Mixings of devices that keep copies of their neighbours, which messages change.

    Over a link that did not carry the exchange before, two devices first send each other theirs.
    """

    def __init__(self, bits: float, times: int, copy_bits: float) -> None:
        super().__init__(bits, times)
        self.copy_bits = copy_bits

    def act(self, now: Moment, rounds: IntArray, memory: Any = None) -> Act:
        """Rounds, then copies for those who have missed messages, then the mixings."""
        mixed = super().act(now, rounds)
        fresh = np.zeros(0, np.int64) if now.memory is None else np.setdiff1d(now.links, now.memory)
        copies = now.price(now.mixing_route(self.copy_bits, links=fresh))
        return replace(mixed, sent=copies + mixed.sent, memory=now.links)

    def matrix(self, now: Moment) -> FloatArray:
        """float64 [N, N]: what one mixing does."""
        return np.asarray(metropolis_weights(now.edges, now.devices).toarray())


def with_losses(setting: Setting, made: Contender, scheme_at: Callable[[int], Scheme]) -> Contender:
    """A method as its exchanges turn out where packets are lost or rounded; otherwise itself.

    Batteries are not overdrawn by what is drawn, unless the method overdraws them as expected
    (``equal = "time"``).

    Args:
        setting: the terms of the comparison.
        made: with expected joules and seconds.
        scheme_at: the scheme of its exchange in an iteration (from 0).

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods import build
    >>> lossy = Scenario.preset("adaptive").override({"network.packet_error": 0.2})
    >>> made = build("fixed:1", lossy)
    >>> made.drawn, bool((made.leftover_j() >= 0).all())
    (True, True)
    """
    width = scheme_at(0).width
    whole = rounded_to(setting.scenario.network.bits_per_parameter)
    wire = whole if width is None else width.wire
    if setting.world.packets is None and not wire:
        return made
    ground, n, held = setting.ground, made.schedule.iterations, {}

    def route(t: int) -> Route | None:
        if not made.schedule.exchanged[t]:
            return None
        scheme = scheme_at(t)
        key = id(scheme) if not (scheme.random or setting.fading) else (id(scheme), t)
        if key not in held:
            held[key] = scheme.route(ground.seen_costs(t), t)
        return held[key]

    turned_out, lost = made, None
    if setting.world.packets is not None:
        turned_out, found = drawn(setting, made, route)
        lost = found if found.lost_messages.any() else None
    if lost is None and not wire:
        return turned_out
    schedule = schedule_by_messages(
        made.schedule,
        [route(t) for t in range(n)],
        scheme_at,
        lost,
        chunk_iterations=setting.scenario.training.chunk_iterations,
        wire=wire,
    )
    return replace(turned_out, schedule=schedule)


def drawn(
    setting: Setting,
    made: Contender,
    route: Callable[[int], Route | None],
    *,
    ground: Ground | None = None,
    unsent: Callable[[BoolArray], BoolArray] | None = None,
) -> tuple[Contender, Outcome]:
    """A method with the joules and seconds that are drawn, and which messages are lost.

    What a lost message does to the parameters is the method's own matter.

    Args:
        setting: the terms of the comparison; its packets are lost.
        made: with expected joules and seconds.
        route: what is sent in an iteration (from 0); None where nothing is.
        ground: the devices and links that the messages take, if not those of the setting. A device
            more is a server, whose joules no battery pays.
        unsent: see `Course`.

    Returns:
        The method, and what was drawn.
    """
    from joulemesh.planning.losses import Course, draw

    packets, ledger, count = setting.world.packets, made.reserve, setting.devices
    assert packets is not None
    ground, n = ground or setting.ground, made.schedule.iterations
    served = ground.world.graph.devices > count
    spare_j = np.where(made.leftover_j() < 0, np.inf, made.leftover_j())[None]

    active = made.schedule.active
    exchange = replace(ledger, compute_j=np.zeros_like(ledger.compute_j), idle_j=0 * ledger.idle_j)
    if served:
        exchange, active = exchange.with_server(), np.broadcast_to(True, (n, count + 1))
        spare_j = np.append(spare_j, [[np.inf]], axis=1)
    course = Course(ground, route, exchange, ledger.seconds, active, spare_j, unsent=unsent)
    found = draw(course, packets)
    sent, idle_w = found.exchange, setting.world.devices.idle_w
    sent = sent.served_by(count) if served else sent
    turned_out = replace(sent, compute_j=ledger.compute_j, idle_j=ledger.idle_j)
    if found.awake_s is not None and idle_w is not None:
        turned_out = replace(turned_out, idle_j=idle_w * found.awake_s[:, :count])
    seconds = turned_out.seconds
    deadline_s = setting.scenario.budget.deadline_s
    late = 0 if deadline_s is None else int((~within(deadline_s, seconds)).sum())
    expected_s = float(
        sum(
            ground.pricer.beside(one, ground.costs(t)).seconds[0]
            for t in range(n)
            if (one := route(t)) is not None
        )
    )
    note = found.note(exchange.total_j, expected_s, late)
    notes = (*made.notes, note)
    return replace(made, reserve=turned_out, notes=notes, drawn=True), found


def arrivals(found: Outcome, shape: tuple[int, ...]) -> Callable[[int], BoolArray] | None:
    """Which messages of a method's own exchange arrive, as `Schedule.arrived` wants it."""
    if not found.lost_messages.any():
        return None

    def arrived(t: int) -> BoolArray:
        there = np.ones(shape, np.bool_)
        there.reshape(-1)[found.lost[t]] = False
        return there

    return arrived


def chances(setting: Setting, bits: float) -> FloatArray:
    """Probability that a message arrives, as far as it is known before the first iteration."""
    packets, world = setting.world.packets, setting.world
    each = np.full((len(world.graph.edges), 2), bits)
    if packets is None:
        return np.ones_like(each)
    return packets.arrival(each, setting.ground.errors_forecast)


def neighbours(setting: Setting, times: int = 1) -> Scheme:
    """The scheme by which all devices mix with their neighbours, so many times."""
    conditions = setting.ground.unquantised.conditions
    options = conditions.options.model_copy(update={"gossip_rounds": times})
    return SCHEMES[NEIGHBOURS].ready(replace(conditions, options=options), Fit(), "")


_MOST = 100_000  # iterations that are walked through


@dataclass(frozen=True, eq=False)
class Walked:
    """The iterations of a method under traces.

    Attributes:
        setting: the terms of the comparison.
        moments: what was known at the beginning of every iteration, of those who took part.
        acts: what the method did.
        ledger: what that cost.
    """

    setting: Setting
    moments: tuple[Moment, ...]
    acts: tuple[Act, ...]
    ledger: Ledger

    @property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: the batteries' first charge and all that they have gained."""
        return self.setting.battery_j + total_of(self.ledger.harvested_j)

    @property
    def rounds(self) -> IntArray:
        """int64 [n, N]."""
        return np.stack([act.rounds for act in self.acts])

    @property
    def active(self) -> BoolArray:
        """bool [n, N]: who takes part."""
        return np.stack([now.who for now in self.moments])

    def contender(
        self,
        name: str,
        *,
        exchange: Exchange | None = None,
        settle: Callable[[Any], Ledger] | None = None,
        notes: Sequence[str] = (),
    ) -> Contender:
        """The method, ready to be trained.

        Args:
            name: as the user wrote it.
            exchange: the method's own exchange; it takes place whenever somebody takes part.
            settle: see `Contender`.
            notes: what a reader of the results should know.
        """
        active = self.active
        own, mixing = exchange is not None, self._mixing()
        exact = [act.exact and mixing != "mean" for act in self.acts]
        schedule = Schedule(
            self.rounds.astype(np.int32),
            someone(active),
            np.asarray(active.any(axis=1) if own else self.ledger.bits > 0, bool),
            mixing=mixing,
            exact=np.array(exact, bool),
        )
        often, n = active.sum(axis=0), len(active)
        there = f"devices take part in {often.min()} to {often.max()} of {n} iterations"
        more = self.setting.notes_on(
            self.ledger, at_most=settle is not None, battery_j=self.supplied_j
        )
        return Contender(
            name,
            schedule,
            exchange,
            self.ledger,
            self.supplied_j,
            (*notes, there, *more),
            settle,
            traced=True,
        )

    def _mixing(self) -> Mixing:
        """The mean, where no exchange has another matrix; otherwise each iteration's matrix."""
        acts, moments = self.acts, self.moments
        if all(act.exact or act.matrix is None for act in acts):
            return "mean"
        held, devices = self.setting.scenario.training.chunk_iterations, self.setting.devices
        if held * devices**2 > MOST_ENTRIES:
            raise ScenarioError(
                f"who takes part changes, and {held} mixing matrices of {devices} devices are more "
                f"than {MOST_ENTRIES:,} numbers; lower training.chunk_iterations, use fewer "
                "devices, or leave the traces out"
            )

        def matrix(t: int) -> FloatArray:
            made = acts[t].matrix
            if acts[t].exact:
                return moments[t].mean()
            return np.eye(devices) if made is None else made()

        return matrix

    def priced(self, sent: Callable[[Moment], Ledger], own_samples: FloatArray) -> Ledger:
        """The ledger with other messages and another computation of the method's own."""
        rows = [
            _row(self.setting, replace(act, sent=sent(now), own_samples=own), now.who)
            for act, now, own in zip(self.acts, self.moments, own_samples, strict=True)
        ]
        return Ledger.joined(rows)


def walk(
    setting: Setting,
    name: str,
    follow: Follow,
    *,
    last: Follow | None = None,
    most: int | None = None,
) -> Walked:
    """Walk through the iterations of a method, for as long as it may run.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        follow: what it does in an iteration.
        last: what it does in its last one, if that is something else: joules and seconds for it
            are kept, at the price that it has now.
        most: iterations after which it ends; on equal iterations, their number.

    Raises:
        InfeasibleError: not even the first iteration can be paid.

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods.walk import Mixings
    >>> from joulemesh.methods import Setting
    >>> gone = Setting(Scenario.preset("adaptive").override({"devices.leave": [[3, 41]]}))
    >>> mixings = Mixings(gone.work.model_bits)
    >>> walked = walk(gone, "mine", lambda now: mixings.act(now, now.rounds(2)))
    >>> walked.rounds[39:41, 3].tolist()
    [2, 0]
    """
    return _Walk(setting, name, follow, last, most).walked()


def _row(setting: Setting, act: Act, who: BoolArray) -> Ledger:
    """The ledger of one iteration; who takes no part pays nothing."""
    own = None if act.own_samples is None else act.own_samples[None]
    devices = setting.world.devices
    return charge(devices, act.rounds[None], act.sent, own_samples=own, who=who)


class _Walk:
    def __init__(
        self, setting: Setting, name: str, follow: Follow, last: Follow | None, most: int | None
    ) -> None:
        self.setting, self.name, self.follow, self.last = setting, name, follow, last
        self.traces, self.motion = setting.world.traces, setting.world.motion
        leaves = setting.scenario.plan.on_depletion == "leave"
        self.sits_out = self.traces.harvests and leaves and setting.equal != "batteries"
        self.ends = setting.limits_energy and not self.sits_out
        self.most = setting.iterations if setting.equal == "iterations" else most
        self.battery = setting.battery_j.copy()
        self.elapsed_s = 0.0
        limit_s = setting.limit_s if setting.limits_time else 0.0  # otherwise never looked at
        self.left_s = np.array([limit_s])
        self.moments: list[Moment] = []
        self.acts: list[Act] = []
        self.rows: list[Ledger] = []
        self.memory: Any = None

    def walked(self) -> Walked:
        while not self._step():
            if len(self.rows) >= _MOST:
                raise ScenarioError(
                    f"{self.name} goes on for more than {_MOST:,} iterations under these traces; "
                    "use --equal budget, or lower budget.energy_j"
                )
        ledger = Ledger.joined(self.rows)
        return Walked(self.setting, tuple(self.moments), tuple(self.acts), ledger)

    def _step(self) -> bool:
        """Take one iteration; whether the walk is over."""
        t = len(self.rows)
        if t == self.most:
            return True
        known = self._moment(t)
        now, act, row = self._settled(known, self.follow)
        if self.last is not None:
            end = self._settled(known, self.last)
            if t + 1 == self.most or (self.most is None and not self._pays(row, end[2])):
                now, act, row = end
                self.most = t + 1
        if not self._pays(row):
            if not self.rows:
                raise self.setting.refusal(self.name, row)
            return True
        self._require_held(now, row)
        self._take(now, act, row)
        return False

    def _moment(self, t: int) -> Moment:
        graph = self.setting.world.graph
        who = np.ones(self.setting.devices, np.bool_)
        gone, present = self.traces.gone(t), self.traces.present(t, self.elapsed_s)
        who = who if gone is None else who & ~gone
        who = who if present is None else who & present
        snapshot, cut = None, np.zeros(len(graph.edges), np.bool_)
        if self.motion is not None:
            snapshot = self.traces.snapshot(t, self.elapsed_s)
            cut = ~self.motion.exists(snapshot)
        return Moment(self.setting, t, who, cut, snapshot, self.battery.copy(), self.memory)

    def _settled(self, now: Moment, follow: Follow) -> tuple[Moment, Act, Ledger]:
        """What is done by those who can pay for it, where the others sit out."""
        while now.who.any():
            act = follow(now)
            if act.who is not None:
                now = now.among(act.who)
            row = _row(self.setting, act, now.who)
            broke = now.who & ~within(self.battery, row.energy_j[0])
            if not self.sits_out or not broke.any():
                require_countable(act.rounds, f"give {self.name.partition(':')[0]} fewer rounds")
                return now, act, row
            now = now.among(now.who & ~broke)
        nobody = replace(now.price(None), seconds=np.array([self._wait_s()]))
        idle = Act(now.rounds(0), nobody, memory=now.memory)
        return now, idle, _row(self.setting, idle, now.who)

    def _wait_s(self) -> float:
        deadline_s, total_s = self.setting.deadline_s, self.setting.total_s
        if deadline_s is not None or total_s is None:
            return deadline_s or 0.0
        return total_s / self.setting.iterations

    def _pays(self, *rows: Ledger) -> bool:
        """Do the batteries, where they end the method, and the clock pay for some iterations?"""
        if self.setting.limits_time:
            seconds = (row.seconds for row in rows)
            if not within(self.left_s, *seconds).all():
                return False
        joules = (row.energy_j[0] for row in rows)
        return not self.ends or bool(within(self.battery, *joules).all())

    def _require_held(self, now: Moment, row: Ledger) -> None:
        if self.ends or self.sits_out or not self.traces.harvests:
            return
        broke = ~within(self.battery, row.energy_j[0])
        if broke.any():
            device = int(np.argmax(broke))
            raise InfeasibleError(
                "{device} cannot pay for iteration {iteration} of {method}: it needs {needs_j} and "
                "holds {has_j}, what it has harvested included; set plan.on_depletion = "
                '"leave", so that it sits out until it can, or compare with --equal budget',
                code="energy",
                device=device,
                figures={
                    "iteration": now.t + 1,
                    "method": self.name,
                    "needs_j": row.energy_j[0, device],
                    "has_j": self.battery[device],
                },
            )

    def _take(self, now: Moment, act: Act, row: Ledger) -> None:
        self.moments.append(now)
        self.acts.append(act)
        self.memory = act.memory
        length_s = float(row.seconds[0])
        self.battery = left_of(self.battery, row.energy_j[0])
        self.left_s = left_of(self.left_s, row.seconds)
        from joulemesh.planning.walk import recharged

        gained = recharged(self.traces, self.battery, now.t, self.elapsed_s, length_s)
        self.elapsed_s += length_s
        if gained is not None:
            self.battery = gained.held_j
            row = replace(row, harvested_j=gained.stored_j[None])
        self.rows.append(row)


class Schemed:
    """Exchanges by the scheme that suits those who take part and are connected with each other.

    A scheme is chosen again whenever that changes, by the prices that are forecast then. Link costs
    are flooded before the exchange whenever the plan would flood them: the tree has changed, or who
    is in it.
    """

    def __init__(self, chosen: Callable[[Moment], Scheme]) -> None:
        self._chosen = chosen
        self._known: dict[Hashable, Scheme] = {}
        self._priced: dict[Hashable, Ledger] = {}

    def act(self, now: Moment, rounds: Callable[[Moment], IntArray]) -> Act:
        """Rounds of those who are connected with each other, then their exchange."""
        now = now.connected()
        train = rounds(now)
        if now.who.sum() < 2:
            return Act(train, now.price(None), who=now.who, memory=now.memory)
        scheme, t = self.scheme(now), now.t
        tree = (now.who.tobytes(), now.snapshot, *now.setting.ground.tree_number(t))
        sent, memory = self._sent(now, scheme), now.memory
        if now.setting.ground.floods(scheme) and tree != memory:
            sent, memory = sent + now.setting.pricer.coordination(scheme, now.costs), tree
        if scheme.exact:
            return Act(train, sent, exact=True, who=now.who, memory=memory)
        devices = now.devices
        return Act(train, sent, lambda: embedded(scheme, t, devices), who=now.who, memory=memory)

    def scheme(self, now: Moment) -> Scheme:
        channel = now.setting.world.channel
        key = now.who.tobytes(), now.snapshot, channel.edition(now.t)
        if key not in self._known:
            scheme = self._chosen(now)
            self._known[key] = scheme.average if isinstance(scheme, Patterned) else scheme
        return self._known[key]

    def _sent(self, now: Moment, scheme: Scheme) -> Ledger:
        key: Any = (now.t, now.key) if scheme.random else now.key
        if key not in self._priced:
            self._priced[key] = now.price(scheme.route(now.seen, now.t))
        return self._priced[key]


Rounds = Callable[[int, int], IntArray]
"""(start, stop) -> the rounds of iterations start..stop−1 (from 0), int [stop − start, N]."""


def exact_scheme(setting: Setting) -> tuple[Scheme, str]:
    """The scheme of a method's exact averages, and which one it is, in words."""
    ground = setting.ground.unquantised
    own = ground.choice
    if own.kind.exact:
        words = f"averages exactly {own.kind.words}, the scheme of plan.aggregation"
        return own.ready(ground.conditions), words
    scheme = _cheapest(setting, ground.conditions)
    return scheme, f"averages exactly {scheme.kind.words}, the exact scheme of least joules"


def _exact_among(now: Moment) -> Scheme:
    """The same among those who take part, where that changes."""
    ground = now.setting.ground.unquantised
    conditions = ground.conditions_among(now.who, now.forecast, now.battery_j, 1, cut=now.cut)
    if ground.choice.kind.exact:
        with suppress(InfeasibleError):  # a ring breaks when somebody is away
            return choose(conditions, ground.choice.kind.name).ready(conditions)
    return _cheapest(now.setting, conditions)


def _cheapest(setting: Setting, conditions: Conditions) -> Scheme:
    """The exact scheme of least joules; of several as cheap the fastest."""
    ground = setting.ground
    found: list[tuple[float, float, Scheme]] = []
    for kind in SCHEMES:
        if not kind.exact:
            continue
        try:
            scheme = choose(conditions, kind.name).ready(conditions)
        except InfeasibleError:  # a ring, on a graph without one
            continue
        priced = ground.pricer.route(scheme.route(conditions.costs, 0), conditions.costs)
        found.append((float(priced.energy_j.sum()), float(priced.seconds[0]), scheme))
    if not found:
        raise InfeasibleError(
            "no exact scheme fits this graph: add links, or register one", code="topology"
        )
    least_j = min(joules for joules, _, _ in found)
    cheap = [(seconds, one) for joules, seconds, one in found if within(least_j, joules)]
    return min(cheap, key=lambda pair: pair[0])[1]


@dataclass(frozen=True)
class Pattern:
    """Who trains how much in which iteration, and which exchange ends it.

    Attributes:
        setting: the terms of the comparison.
        rounds: of every iteration and device.
        every: in iterations P, 2P, … (from 1) all devices average exactly; None for never.
        final: whether the last iteration ends with an exact average, which is reserved from the
            start. In all others neighbours mix once, with Metropolis weights.
    """

    setting: Setting
    rounds: Rounds
    every: int | None = None
    final: bool = False

    @cached_property
    def _exact(self) -> tuple[Scheme, str]:
        return exact_scheme(self.setting)

    @property
    def notes(self) -> tuple[str, ...]:
        """How its exact averages are made, if it has any."""
        if self.every is None and not self.final:
            return ()
        end = ", in the last iteration, for which joules and seconds are reserved"
        return (f"{self._exact[1]}{end if self.final else ''}",)

    def exact_at(self, start: int, stop: int) -> BoolArray:
        """Whether iterations start..stop−1 (from 0) end with an exact average, if none is last."""
        if self.every is None:
            return np.zeros(stop - start, bool)
        return np.asarray(np.arange(start + 1, stop + 1) % self.every == 0)

    # What it costs ------------------------------------------------------------------------------

    def prices(self, start: int, stop: int) -> Ledger:
        """The ledger of iterations start..stop−1, if none of them is the last."""
        return self._ledger(self.rounds(start, stop), start, self.exact_at(start, stop))

    def last(self, t: int) -> Ledger:
        """The ledger of iteration t, if it is the last."""
        return self._ledger(self.rounds(t, t + 1), t, np.ones(1, bool))

    def _ledger(self, rounds: IntArray, start: int, exact: BoolArray) -> Ledger:
        setting, pricer = self.setting, self.setting.ground.pricer
        if setting.fading:
            each = [self._exchange(start + row, exact=flag) for row, flag in enumerate(exact)]
            sent = Ledger.joined(each)
        elif exact.all():
            sent = self._average.tiled(len(exact))
        else:
            sent = self._mixing.where(~exact)
            sent = sent + self._average.where(exact) if exact.any() else sent
        for row in np.flatnonzero(exact).tolist():
            if self._floods(start + row):
                flood = pricer.coordination(self._exact[0], setting.costs(start + row))
                sent = sent + flood.where(np.arange(len(exact)) == row)
        return charge(setting.world.devices, rounds, sent)

    @cached_property
    def _average(self) -> Ledger:
        """An exact average, where links do not change."""
        return self._exchange(0, exact=True)

    @cached_property
    def _mixing(self) -> Ledger:
        """A mixing with all neighbours, where links do not change."""
        return self._exchange(0, exact=False)

    def _exchange(self, t: int, *, exact: bool) -> Ledger:
        setting = self.setting
        if exact:
            route = self._exact[0].route(setting.ground.seen_costs(t), t)
        else:
            route = first_mixing(setting, setting.work.model_bits)
        return setting.pricer.route(route, setting.costs(t))

    def _floods(self, t: int) -> bool:
        """Are link costs flooded before the exact average of iteration t?

        They are before the first one, and again if the tree has changed since the one before.
        """
        ground = self.setting.ground
        if not ground.floods(self._exact[0]):
            return False
        before = 0 if self.every is None else t // self.every * self.every
        # ``before`` counts iterations up to the exact average before this one.
        return before == 0 or ground.tree_number(t) != ground.tree_number(before - 1)

    # The contender ------------------------------------------------------------------------------

    def contender(
        self, name: str, *, ledger: Ledger | None = None, notes: Sequence[str] = ()
    ) -> Contender:
        """Make a method ready that follows the pattern, for as long as it may."""
        setting = self.setting
        if setting.world.traces.given:
            return self._followed(name)
        if ledger is None:
            last = self.last if self.final else None
            ledger = setting.run_length(name, self.prices, last)
        n = ledger.iterations
        exact = self.exact_at(0, n)
        exact[-1] |= self.final
        schedule = Schedule(
            self.rounds(0, n).astype(np.int32),
            exchanged=ledger.bits > 0,
            mixing=metropolis_weights(setting.world.graph.edges, setting.devices),
            exact=exact,
        )
        every = (*self.notes, *notes, *setting.notes_on(ledger))
        made = Contender(name, schedule, None, ledger, setting.battery_j, every)
        return with_losses(setting, made, lambda t: self._exact[0] if exact[t] else self._near)

    def _followed(self, name: str) -> Contender:
        """The method under traces, where who takes part in an iteration is known only then."""
        mixings, schemed = Mixings(self.setting.work.model_bits), Schemed(_exact_among)

        def rounds(now: Moment) -> IntArray:
            return np.where(now.who, self.rounds(now.t, now.t + 1)[0], 0)

        def follow(now: Moment) -> Act:
            if self.exact_at(now.t, now.t + 1)[0]:
                return schemed.act(now, rounds)
            return mixings.act(now, rounds(now), memory=now.memory)

        last = (lambda now: schemed.act(now, rounds)) if self.final else None
        walked = walk(self.setting, name, follow, last=last)
        missed = self.final and not walked.acts[-1].exact
        note = ("ends without its exact average, which has become too dear",) if missed else ()
        return walked.contender(name, notes=(*self.notes, *note))

    @cached_property
    def _near(self) -> Scheme:
        return neighbours(self.setting)


def steady(setting: Setting, tau: int) -> Rounds:
    """The same rounds on every device in every iteration."""

    def rounds(start: int, stop: int) -> IntArray:
        return np.full((stop - start, setting.devices), tau, np.int64)

    return rounds
