"""What an aggregation scheme is, what its registered record says, and which one is chosen."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import Medium
from joulemesh.aggregation.bits import Width
from joulemesh.aggregation.peer import Peer
from joulemesh.aggregation.route import IntArray, Route, Subgraph
from joulemesh.base.errors import Edit, InfeasibleError, Remedy, called
from joulemesh.base.registry import Citation
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions, Scenario
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.aggregation.gossip import Balance, SparseMatrix

FloatArray = NDArray[np.float64]

RoutesToTry = Callable[[LinkCosts | None, int], Iterator[Route]]
"""(costs now, iteration from 0) -> routes, the best first.

The costs are None if they are as forecast, or if the planner does not see them.
"""


@dataclass(frozen=True, eq=False)
class Conditions:
    """What a scheme is chosen and made ready for.

    Attributes:
        graph: the devices that take part and their links.
        costs: price of a bit on every link of the whole graph, as forecast.
        bits: size of the parameter vector, in one message.
        options: the scenario's section ``plan``.
        medium: how transmissions share the air, among the devices of the whole graph.
        channel_known: does the planner see the gains?
        seed: of random schedules.
        battery_j: float64 [N]: what each device of the whole graph may spend.
        iterations: number of exchanges that are to be paid for.
        names: of the devices of the whole graph, for reasons; none unless given.
        width: of quantised messages, which is what ``bits`` counts; None if they are not.
    """

    graph: Subgraph
    costs: LinkCosts
    bits: float
    options: PlanOptions
    medium: Medium
    channel_known: bool
    seed: int
    battery_j: FloatArray
    iterations: int
    names: tuple[str, ...] = ()
    width: Width | None = None

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        graph: Subgraph,
        costs: LinkCosts,
        *,
        bits: float,
        battery_j: FloatArray,
        iterations: int,
        medium: Medium,
        names: tuple[str, ...] = (),
        width: Width | None = None,
    ) -> Conditions:
        """The conditions that a scenario sets, on some part of its graph."""
        return cls(
            graph,
            costs,
            bits,
            scenario.plan,
            medium,
            scenario.network.channel_known,
            scenario.seed,
            battery_j,
            iterations,
            names,
            width,
        )

    def reason(self, fit: Fit) -> str:
        """The reason that a fit gives, with the device that it speaks of."""
        if fit.device is None:
            return fit.reason
        device = int(self.graph.members[fit.device])
        return fit.reason.format(device=called(device, self.names))

    @cached_property
    def own_medium(self) -> Medium:
        """The medium of the devices that take part, under the subgraph's numbers."""
        return self.medium.among(None if self.graph.part is None else self.graph.members)


@dataclass(frozen=True, eq=False)
class Fit:
    """Whether a graph can carry a scheme.

    Attributes:
        possible: can it?
        reason: what was found in the graph, or why it was not found.
        device: whom reason and refusal call ``{device}``, by its number in the graph, or None.
        refusal: if it cannot: the rest of a message that begins with the scheme's name: what the
            scheme needs, why the graph does not have it, and what the user may change.
        remedies: if it cannot: changes of which any one will do.
        order: int [A]: devices in the order in which the scheme visits them, if it needs one.
    """

    possible: bool = True
    reason: str = ""
    device: int | None = None
    refusal: str = ""
    remedies: tuple[Remedy, ...] = ()
    order: IntArray | None = None


@dataclass(frozen=True)
class Case:
    """When ``plan.aggregation = "theorem3"`` takes a scheme: a case of Theorem 3.

    Attributes:
        number: cases are tried in this order; the first one that applies decides.
        because: the reason to give. ``{fit}`` stands for the reason of this scheme's own `Fit`,
            ``{before}`` for that of the case before it, which did not fit.
        channel_known: the case applies only if the planner sees the gains.
    """

    number: int
    because: str
    channel_known: bool = False


def _fits(graph: Subgraph, options: PlanOptions) -> Fit:
    return Fit()


@dataclass(frozen=True)
class SchemeKind:
    """An aggregation scheme, as the registry `SCHEMES` knows it.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        ready: makes the scheme for some conditions; it is given the `Fit` and the reason why the
            scheme was chosen.
        words: how parameters are averaged, after the word "averaging": ``"along a tree"``.
        exact: does every device hold the mean after one exchange?
        floods_costs: is the route computed from the costs of all links, so that every device must
            know them? With ``plan.coordination`` their flooding is paid for.
        parameters: fields of the scenario's section ``plan`` that it takes.
        fit: can a graph carry it? Any connected graph unless given.
        case: when ``plan.aggregation = "theorem3"`` takes it; never if None.
        advised: is it tried as advice where exchanges take most of the budget, and, if exact,
            weighed by ``plan.aggregation = "auto"``?
        quantises: can its messages be quantised? Its devices say what each of them counts
            (`joulemesh.aggregation.peer.Summing`).
        least: joules of all devices and seconds that an exchange takes at the least, on any route
            that may be found; where it cannot win by these, ``auto`` does not search for one.
        citation: where it was published, or None.
    """

    name: str
    description: str
    ready: Callable[[Conditions, Fit, str], Scheme]
    words: str
    exact: bool = True
    floods_costs: bool = False
    parameters: tuple[str, ...] = ()
    fit: Callable[[Subgraph, PlanOptions], Fit] = _fits
    case: Case | None = None
    advised: bool = False
    quantises: bool = False
    least: Callable[[Conditions], tuple[float, float]] | None = None
    citation: Citation | None = None


class Scheme(Protocol):
    """One way to average, on the devices that take part."""

    @property
    def kind(self) -> SchemeKind:
        """The record in the registry."""

    @property
    def reason(self) -> str:
        """Why it was chosen."""

    @property
    def graph(self) -> Subgraph:
        """The devices that take part and their links."""

    @property
    def bits(self) -> float:
        """Size of the parameter vector."""

    @property
    def width(self) -> Width | None:
        """Of quantised messages; None if numbers are sent as they are."""

    @property
    def name(self) -> str:
        """The name of its kind."""

    @property
    def exact(self) -> bool:
        """Does every device hold the mean after one exchange?"""

    def exact_at(self, iteration: int) -> bool:
        """Does every device hold the mean after the exchange of an iteration (from 0)?"""

    def silent(self, start: int, stop: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations in which nothing is sent."""

    @property
    def random(self) -> bool:
        """Do exchanges differ from one another, as those of random schedules do?"""

    @property
    def mode(self) -> str:
        """How it averages, in one word, for the plan's record."""

    @property
    def rounds(self) -> int:
        """Number K of gossip rounds or ticks in one exchange; 0 if it has none."""

    @property
    def unit(self) -> str:
        """What ``rounds`` counts: ``"rounds"`` or ``"ticks"``."""

    @property
    def contraction(self) -> float | None:
        """Factor by which one gossip round shrinks the consensus error, if it is known."""

    @property
    def error(self) -> float:
        """Consensus error that an exchange leaves, relative to what it finds."""

    def with_rounds(self, rounds: int) -> Scheme:
        """The same scheme with another K; the scheme itself if it has no gossip rounds."""

    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """What is sent in an iteration (counted from 0), under the whole graph's numbers."""

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The routes to try in an iteration, if link costs change, given their forecast."""

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A], or [1, A, A] if all are alike: what the exchanges do.

        The parameters after an exchange are this matrix times those before.
        """

    @property
    def round_weights(self) -> SparseMatrix | None:
        """[A, A]: the matrix of a gossip round, if every exchange is its K-th power."""

    def pairs(self, start: int, stop: int) -> IntArray | None:
        """int64 [stop−start, K]: links of the exchanges in pairs, in order; −1 for none.

        Positions in the whole graph's edge list. None if devices do not exchange in pairs; each
        route is then priced by itself.
        """

    def balance(self, costs: LinkCosts, battery_j: FloatArray, iterations: int) -> Balance | None:
        """Remark 4: consensus error against joules, for every number of gossip rounds, if any."""

    def peer(self, device: int, route: Route) -> Peer:
        """What one device does in an exchange along a route."""

    def parts(self, route: Route) -> int:
        """Into how many parts the devices cut the parameters, each of which travels by itself."""


RULES = ("auto", "theorem3")
"""Values of ``plan.aggregation`` that are no scheme but choose one."""


@dataclass(frozen=True)
class Choice:
    """A kind of scheme that the graph can carry, and the reason for it."""

    kind: SchemeKind
    reason: str
    fit: Fit

    def ready(self, conditions: Conditions) -> Scheme:
        """The scheme itself, on the graph for which it was chosen."""
        return self.kind.ready(conditions, self.fit, self.reason)


def choose(conditions: Conditions, wanted: str | None = None) -> Choice:
    """Pick a kind of scheme, or check that the graph can carry the wanted one.

    Args:
        conditions: for which it is chosen.
        wanted: ``"theorem3"`` or a scheme's name; ``plan.aggregation`` unless given. What
            ``"auto"`` chooses depends on prices (`joulemesh.planning.pricing`).

    Raises:
        InfeasibleError: the graph cannot carry the wanted scheme: it contains no ring, say, or none
            was found within the limit.
    """
    graph, options = conditions.graph, conditions.options
    wanted = options.aggregation if wanted is None else wanted
    if wanted == "theorem3":
        return _theorem3(conditions)
    kind = SCHEMES[wanted]
    _require_quantised(kind, conditions.width)
    fit = kind.fit(graph, options)
    if not fit.possible:
        raise InfeasibleError(
            f'plan.aggregation = "{wanted}" {fit.refusal or fit.reason}',
            code="topology",
            device=None if fit.device is None else int(graph.members[fit.device]),
            remedies=fit.remedies,
        )
    why = conditions.reason(fit)
    return Choice(kind, f"asked for; {why}" if why else "asked for", fit)


def _require_quantised(kind: SchemeKind, width: Width | None) -> None:
    """Refuse a width that the scheme cannot carry."""
    if width is None or kind.quantises:
        return
    able = [one.name for one in SCHEMES if one.quantises]
    raise InfeasibleError(
        f"plan.bits = {width.bits} is for exact averages ({', '.join(able)}), and the devices of "
        f'"{kind.name}" ' + ("do not say what their messages count" if kind.exact else "hold none"),
        code="topology",
        field="plan.bits",
        remedies=[(Edit("plan.aggregation", able[0]),), (Edit("plan.bits", 32),)],
    )


def _theorem3(conditions: Conditions) -> Choice:
    cases = sorted(
        ((kind.case, kind) for kind in SCHEMES if kind.case is not None),
        key=lambda pair: pair[0].number,
    )
    before = ""
    for case, kind in cases:
        if case.channel_known and not conditions.channel_known:
            continue
        _require_quantised(kind, conditions.width)
        fit = kind.fit(conditions.graph, conditions.options)
        if fit.possible:
            because = case.because.format(fit=conditions.reason(fit), before=before)
            return Choice(kind, because, fit)
        before = conditions.reason(fit)
    raise InfeasibleError(
        'plan.aggregation = "theorem3" finds no scheme that this graph can carry: '
        f"{before}; add links",
        code="topology",
        field="plan.aggregation",
    )


S = TypeVar("S", bound="SchemeBase")


@dataclass(frozen=True)
class SchemeBase(ABC):
    """A scheme without gossip rounds. A subclass has ``route``, ``mixing``, ``error`` and ``peer``.

    Attributes:
        kind: the record in the registry.
        reason: why it was chosen.
        graph: the devices that take part and their links.
        bits: size of the parameter vector, in one message.
        width: of quantised messages, which is what ``bits`` counts; None if they are not.
    """

    kind: SchemeKind
    reason: str
    graph: Subgraph
    bits: float
    width: Width | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """The name of its kind."""
        return self.kind.name

    @property
    def exact(self) -> bool:
        """Does every device hold the mean after one exchange?"""
        return self.kind.exact

    def exact_at(self, iteration: int) -> bool:
        """Does every device hold the mean after the exchange of an iteration (from 0)?"""
        return self.exact

    def silent(self, start: int, stop: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations in which nothing is sent; none by default."""
        return np.zeros(stop - start, np.bool_)

    @property
    def random(self) -> bool:
        """Do exchanges differ from one another, as those of random schedules do? No by default."""
        return False

    @property
    def mode(self) -> str:
        """How it averages, in one word."""
        return "exact" if self.exact else self.name

    @property
    def rounds(self) -> int:
        """0: it has no gossip rounds."""
        return 0

    @property
    def unit(self) -> str:
        """What ``rounds`` counts."""
        return "rounds"

    @property
    def contraction(self) -> float | None:
        """None: it has no gossip rounds."""
        return None

    @property
    @abstractmethod
    def error(self) -> float:
        """Consensus error that an exchange leaves, relative to what it finds."""

    def with_rounds(self: S, rounds: int) -> S:
        """The scheme itself: it has no gossip rounds."""
        return self

    def bits_in(self, parts: int) -> float:
        """Size of the parameter vector in so many messages."""
        return self.bits if self.width is None else self.width.vector_bits(parts)

    def whole(self, costs: LinkCosts) -> LinkCosts:
        """Price of a bit on the subgraph's links, in messages that carry the whole vector."""
        return self.graph.own(costs).for_messages(self.bits)

    @abstractmethod
    def route(self, costs: LinkCosts, iteration: int = 0) -> Route:
        """What is sent in an iteration (counted from 0), under the whole graph's numbers."""

    def routes(self, forecast: LinkCosts) -> RoutesToTry:
        """The one route by the costs that the planner knows: those of now, or their forecast."""

        def to_try(seen: LinkCosts | None, iteration: int) -> Iterator[Route]:
            yield self.route(forecast if seen is None else seen, iteration)

        return to_try

    @abstractmethod
    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [stop−start, A, A], or [1, A, A] if all are alike: what the exchanges do."""

    @property
    def round_weights(self) -> SparseMatrix | None:
        """None: exchanges are not powers of one sparse matrix."""
        return None

    def pairs(self, start: int, stop: int) -> IntArray | None:
        """None: devices do not exchange in pairs."""
        return None

    def balance(self, costs: LinkCosts, battery_j: FloatArray, iterations: int) -> Balance | None:
        """None: there are no gossip rounds to weigh against joules."""
        return None

    @abstractmethod
    def peer(self, device: int, route: Route) -> Peer:
        """What one device does in an exchange along a route."""

    def parts(self, route: Route) -> int:
        """Into how many parts the devices cut the parameters: the chunks of the route."""
        return route.chunks


@dataclass(frozen=True)
class ExactScheme(SchemeBase):
    """A scheme after which every device holds the mean. A subclass has ``route`` and ``peer``."""

    @property
    def error(self) -> float:
        """0: nothing is left to agree on."""
        return 0.0

    def mixing(self, start: int, stop: int) -> FloatArray:
        """float64 [1, A, A]: the mean, for every device."""
        devices = self.graph.devices
        return np.full((1, devices, devices), 1.0 / devices)
