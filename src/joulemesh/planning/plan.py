"""A plan: who trains how much and when, and what it costs. The planners make it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import ScenarioError, called
from joulemesh.planning.binding import BINDING, bound
from joulemesh.planning.columns import Ledgered
from joulemesh.planning.figures import Figure, figures
from joulemesh.planning.ground import Ground
from joulemesh.planning.timeline import Event, Timeline
from joulemesh.planning.workload import Workload
from joulemesh.scenario import Scenario
from joulemesh.theory import bounds
from joulemesh.tolerance import left_of
from joulemesh.units import duration, energy
from joulemesh.world import World

if TYPE_CHECKING:
    from joulemesh.planning.advice import Answer
    from joulemesh.planning.drawing import Drawn
    from joulemesh.planning.gantt import Gantt
    from joulemesh.planning.safety import Safety

__all__ = ["Plan"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


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
        from joulemesh.planning.safety import safety_of

        return safety_of(self)

    @cached_property
    def answer(self) -> Answer:
        """What binds, what is left over, and which one change would help most; see `advice`."""
        from joulemesh.planning.advice import advice

        return advice(self)

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
