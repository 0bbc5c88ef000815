"""What every candidate costs, exactly, by planning it; and which need not be trained.

Dominance is claimed only between candidates that learn the same: equal settings of training and
the same schedule (who trains how many rounds in which iteration, and how parameters mix), played
at another price, for instance an exact mean by a dearer scheme. Of these, one that costs no fewer
joules and no fewer seconds than another cannot be better by any objective. Candidates that differ
in what is learned are left to training, whatever they cost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from joulemesh.base.errors import InfeasibleError, JoulemeshError, ScenarioError
from joulemesh.base.units import duration, energy
from joulemesh.data import Dataset
from joulemesh.planning.ground import Ground
from joulemesh.planning.iterations import Iterations
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import StaticPlanner, plan_of
from joulemesh.scenario import Scenario
from joulemesh.study.search import GRID, Space, geometric
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.schedule import digest

_ROUNDING = 1e-9  # of an iteration, which floating point may take from a whole number of them
# Fields that change what a round costs; all others leave the world as it is.
_WORKLOAD = ("training.batch_size",)
_SHORT = {"plan.iterations": "n", "training.learning_rate": "rate", "training.batch_size": "batch"}
# Fields of which no plan knows.
_LEARNING = ("training.learning_rate", "training.optimizer", "training.weights")


@dataclass(frozen=True)
class Candidate:
    """One point of the space."""

    number: int  # its place in the order of the space; 0 is the scenario as it is
    changes: Mapping[str, Any]  # values by field

    @property
    def name(self) -> str:
        """What tells it from others, in one line."""
        return ", ".join(_said(field, value) for field, value in self.changes.items()) or "as given"


def _said(field: str, value: Any) -> str:
    short = _SHORT.get(field, field.partition(".")[2])
    if isinstance(value, Mapping):
        parts = (name if one is True else f"{name} {one}" for name, one in value.items())
        return f"{short} {' '.join(parts)}"
    return str(value) if isinstance(value, str) else f"{short} {value:g}"


@dataclass(frozen=True)
class Priced:
    """A candidate and what it costs within the whole budget."""

    candidate: Candidate  # which
    scheme: str  # name of its aggregation scheme
    iterations: int  # n
    rounds: int  # local rounds of all devices
    energy_j: float  # joules of all devices
    time_s: float  # seconds
    learns: str  # digest of all that decides what is learned


@dataclass(frozen=True)
class Dropped:
    """A candidate that is not trained."""

    candidate: Candidate  # which
    why: str  # `"refused"` (no plan), `"dominated"` or `"left out"` (there are too many)
    reason: str  # in one line


@dataclass(frozen=True)
class Offer:
    """All candidates, priced."""

    kept: tuple[Priced, ...]  # those to be trained, the cheapest first
    dropped: tuple[Dropped, ...]  # the others, each with its reason, in their order


class Pricing:
    """Plans candidates on one world."""

    # Sizes, devices, graph and channel are made once and shared; of a plan only its figures are
    # kept, so that the memory is that of a single plan, however many candidates there are.

    def __init__(
        self, scenario: Scenario, parameters: int | None = None, data: Dataset | None = None
    ) -> None:
        self.scenario, self._parameters, self._data = scenario, parameters, data
        self._grounds: dict[str, Ground] = {}
        self._priced: dict[str, Priced | str] = {}
        self._longest: dict[str, int | str] = {}

    def scenario_of(self, changes: Mapping[str, Any], share: float = 1.0) -> Scenario:
        """The scenario of a candidate; with a share of the budget, all but its batteries."""
        made = self.scenario.override(changes, source="tune") if changes else self.scenario
        if share == 1:
            return made
        part: dict[str, Any] = {}
        if isinstance(made.plan.iterations, int):
            part["plan.iterations"] = math.floor(share * made.plan.iterations + _ROUNDING)
            if part["plan.iterations"] < 1:
                raise InfeasibleError(
                    "{share} of {iterations:iteration} is less than one",
                    code="size",
                    figures={"share": share, "iterations": made.plan.iterations},
                )
        total_s = getattr(made.budget, "total_s", None)
        if total_s is not None:
            part["budget.total_s"] = share * total_s
        return made.override(part, source="tune") if part else made

    def ground(self, changes: Mapping[str, Any], share: float = 1.0) -> Ground:
        """What a candidate's plan stands on: its scenario, with a share of every battery."""
        scenario = self.scenario_of(changes, share)
        key = _key(changes, _WORKLOAD)
        if key not in self._grounds:
            self._grounds[key] = Ground.of(scenario, self._parameters, self._data)
        ground = self._grounds[key]
        world = ground.world
        if share != 1:
            battery_j = share * world.devices.energy_budget_j
            world = replace(world, devices=replace(world.devices, energy_budget_j=battery_j))
        return replace(ground, scenario=scenario, world=world)

    def plan(self, changes: Mapping[str, Any], share: float = 1.0) -> Plan:
        """The plan of a candidate with a share of the budget."""
        return plan_of(self.ground(changes, share), proof=False)

    def price(self, candidate: Candidate) -> Priced | Dropped:
        """What a candidate costs, or why it has no plan."""
        planned = {k: v for k, v in candidate.changes.items() if k not in _LEARNING}
        key = _key(planned, tuple(planned))
        if key not in self._priced:
            self._priced[key] = self._plan_figures(candidate, planned)
        found = self._priced[key]
        if isinstance(found, str):
            return Dropped(candidate, "refused", found)
        try:  # what no plan knows may be wrong as well
            scenario = self.scenario_of(candidate.changes)
        except ScenarioError as error:
            return Dropped(candidate, "refused", str(error))
        training = scenario.training
        how = (training.learning_rate, training.optimizer, training.weights, training.batch_size)
        learns = digest([found.learns.encode(), repr(how).encode()])
        return replace(found, candidate=candidate, learns=learns)

    def _plan_figures(self, candidate: Candidate, changes: Mapping[str, Any]) -> Priced | str:
        try:
            plan = self.plan(changes)
        except (InfeasibleError, ScenarioError) as error:
            return str(error)
        return Priced(
            candidate,
            plan.scheme,
            plan.iterations,
            int(plan.rounds.sum()),
            float(plan.spent_j.sum()),
            float(plan.latency_s.sum()),
            schedule_of(plan).digest(),
        )

    def points(self, space: Space) -> Iterator[dict[str, Any]]:
        """The points of a space; a grid of iterations is laid up to what the budgets pay for."""
        own = self.scenario.plan.iterations
        for point in space.points():
            if point.get("plan.iterations") != GRID:
                yield point
                continue
            longest = self._longest_of(point)
            if isinstance(longest, str):  # the point is kept for its reason
                yield {**point, "plan.iterations": "longest"}
                continue
            for n in geometric(longest, own if isinstance(own, int) else None):
                yield {**point, "plan.iterations": n}

    def _longest_of(self, point: Mapping[str, Any]) -> int | str:
        """Most iterations worth trying, or why there is none."""
        # They are those that the budgets pay for with an exact exchange in each (a point with
        # another pattern that is dearer is refused when it is priced), and no more than two for
        # every round that the average battery pays for: beyond, devices would mostly not train.
        planned = {k: v for k, v in point.items() if k not in (*_LEARNING, "plan.exchange")}
        key = _key(planned, tuple(planned))
        if key not in self._longest:
            try:
                ground = self.ground({**planned, "plan.iterations": "longest"})
                devices = ground.world.devices
                trained = float(np.mean(devices.energy_budget_j / devices.round_energy_j))
                most = Iterations(StaticPlanner(ground)).chosen()
                self._longest[key] = min(most, max(1, int(2 * trained)))
            except JoulemeshError as error:
                self._longest[key] = str(error)
        return self._longest[key]

    def offer(
        self, space: Space, most: int, on_price: Callable[[int], None] | None = None
    ) -> Offer:
        """Price the scenario and all points of a space, and drop what need not be tried."""
        priced: list[Priced] = []
        dropped: list[Dropped] = []
        for number, changes in enumerate(self._all(space)):
            found = self.price(Candidate(number, changes))
            if isinstance(found, Priced):
                priced.append(found)
            else:
                dropped.append(found)
            if on_price is not None:
                on_price(number + 1)
        kept, dominated = undominated(priced)
        kept, left = _thinned(kept, most, self.scenario.seed)
        out = [*dropped, *dominated, *left]
        return Offer(tuple(kept), tuple(sorted(out, key=lambda one: one.candidate.number)))

    def _all(self, space: Space) -> Iterator[dict[str, Any]]:
        """The scenario as it is, then the points of the space, each once."""
        seen = set()
        for changes in ({}, *self.points(space)):
            key = _key(changes, tuple(changes))
            if key not in seen:
                seen.add(key)
                yield changes


def undominated(priced: Sequence[Priced]) -> tuple[list[Priced], list[Dropped]]:
    """Part candidates that may be best from those that cannot be."""
    kept: list[Priced] = []
    dropped = []
    for one in sorted(priced, key=lambda p: (p.energy_j, p.time_s, p.candidate.number)):
        better = [
            p
            for p in kept
            if p.learns == one.learns and p.energy_j <= one.energy_j and p.time_s <= one.time_s
        ]
        if better:
            dropped.append(Dropped(one.candidate, "dominated", _dominated(better[0], one)))
        else:
            kept.append(one)
    return kept, dropped


def _dominated(better: Priced, one: Priced) -> str:
    who = f"{better.candidate.number} ({better.candidate.name})"
    if (better.energy_j, better.time_s) == (one.energy_j, one.time_s):
        return f"learns the same at the same price as {who}"
    return f"learns the same as {who}, which takes {_cost(better)} in place of {_cost(one)}"


def _cost(one: Priced) -> str:
    return f"{energy(one.energy_j, digits=4)} and {duration(one.time_s, digits=4)}"


def _thinned(kept: Sequence[Priced], most: int, seed: int) -> tuple[list[Priced], list[Dropped]]:
    """At most so many candidates, drawn from the seed; the scenario as it is stays among them."""
    # Even steps through a grid would meet the same value of an axis again and again.
    if len(kept) <= most:
        return list(kept), []
    own = {0} & {one.candidate.number for one in kept}
    rest = [one.candidate.number for one in kept if one.candidate.number]
    drawn = np.random.default_rng(seed).choice(rest, most - len(own), replace=False)
    chosen = own | set(drawn.tolist())
    reason = f"{len(kept):,} candidates are more than the {most:,} to be tried"
    out = [one for one in kept if one.candidate.number not in chosen]
    left = [Dropped(one.candidate, "left out", reason) for one in out]
    return [one for one in kept if one.candidate.number in chosen], left


def _key(changes: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    some = {name: changes[name] for name in sorted(fields) if name in changes}
    return json.dumps(some, sort_keys=True, default=str)
