"""What devices take that share this machine, measured the way they will run: all at once.

Two short runs of the whole fleet, which differ in the number of local rounds only, give the seconds
of a training step under the load of all, and what an iteration takes besides. In between every
link is measured. Processes that share cores disturb each other, so nothing of this can be found by
measuring one of them alone.
"""

from __future__ import annotations

__all__ = ["Measures", "Pace", "measures_of", "rehearse"]

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from joulemesh.deploy.links.figures import Rule, half_width
from joulemesh.deploy.links.whole import LinkFigures, measure_fleet
from joulemesh.deploy.local.local import LocalFleet, open_fleet
from joulemesh.deploy.operator.operator import Operator
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.pace import iteration_seconds
from joulemesh.deploy.settings import Settings
from joulemesh.errors import JoulemeshError
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Scenario

_SKIPPED = 2  # first iterations, in which caches fill
_LINGER_S = 300.0
_PLENTY_J, _PLENTY_S = 1e9, 1e6
Watch = Callable[[Sequence[Standing]], None]


@dataclass(frozen=True)
class Pace:
    """How long iterations of a fleet took that all had the same rounds.

    Attributes:
        rounds: of each device in each iteration.
        seconds: of each iteration, until the last device had saved it.
        plan: what was carried out.
    """

    rounds: int
    seconds: tuple[float, ...]
    plan: Plan

    @property
    def mean_s(self) -> float:
        """Mean seconds of an iteration."""
        return float(np.mean(self.seconds))

    @property
    def half_s(self) -> float:
        """Half of its 95 % interval."""
        return half_width(self.seconds)


@dataclass(frozen=True)
class Measures:
    """What two paces say.

    Attributes:
        step_s: seconds of a local round, while all devices train.
        step_half_s: half of its 95 % interval.
        rest_s: seconds of an iteration besides rounds: exchange, saving, waking up.
        rest_half_s: half of its 95 % interval.
    """

    step_s: float
    step_half_s: float
    rest_s: float
    rest_half_s: float


def measures_of(few: Pace, many: Pace) -> Measures:
    """The line through two paces.

    Args:
        few: with fewer rounds.
        many: with more.

    Raises:
        JoulemeshError: more rounds took no longer.

    >>> few, many = (Pace(r, (s, s, s), None) for r, s in ((1, 0.03), (11, 0.23)))
    >>> found = measures_of(few, many)
    >>> round(found.step_s, 6), round(found.rest_s, 6)
    (0.02, 0.01)
    """
    more = many.rounds - few.rounds
    step_s = (many.mean_s - few.mean_s) / more
    if not step_s > 0:
        raise JoulemeshError(
            f"{many.rounds} rounds took {many.mean_s:.4g} s and {few.rounds} took "
            f"{few.mean_s:.4g} s; something else keeps this machine busy: calibrate while it is "
            "quiet"
        )
    step_half = math.hypot(many.half_s, few.half_s) / more
    rest_s = max(0.0, few.mean_s - few.rounds * step_s)
    # A line's value at 0 from its values at `few` and `many`.
    rest_half = math.hypot(few.half_s * many.rounds, many.half_s * few.rounds) / more
    return Measures(step_s, step_half, rest_s, rest_half)


def rehearse(
    scenario: Scenario,
    folder: Path,
    *,
    rounds: int,
    iterations: int,
    code: Sequence[Path] = (),
    watch: Watch = lambda standings: None,
    rule: Rule | None = None,
) -> tuple[Pace, list[LinkFigures]]:
    """Run the whole fleet for some iterations of so many rounds each.

    Args:
        scenario: whose model, data and exchange are carried out; budgets do not bind.
        folder: of the fleet that is made for it.
        rounds: of each device in each iteration.
        iterations: how many.
        code: the user's own files.
        watch: shown how all devices stand, now and then.
        rule: how links are measured at the end; they are not unless given.

    Returns:
        The pace, and the links.

    Raises:
        JoulemeshError: a device could not carry out its part.
    """
    plan = make_plan(rehearsed(scenario, rounds, iterations))
    starting_s = max(Settings().starting_s, 10.0 * scenario.devices.count)
    fleet, _ = open_fleet(folder, plan, settings=Settings(starting_s=starting_s), code=code)
    linger = ["--linger", f"{_LINGER_S:g} s"] if rule else []
    running = LocalFleet(
        folder, fleet, plan, code, wrap=lambda device, command: [*command, *linger]
    )
    links: list[LinkFigures] = []

    def look(standings: Sequence[Standing]) -> None:
        watch(standings)
        ended = all(one.phase == "ended" for one in standings)
        if rule is not None and ended and not links:
            links.extend(asyncio.run(_measured(folder, plan, rule)))

    running.run(look)
    if not running.complete:
        lost = next(one for one in running.processes if one.state != "done")
        raise JoulemeshError(f"{lost.job.name} did not end: {lost.last_words()} ({lost.job.log})")
    return Pace(rounds, iteration_seconds(running.histories())[_SKIPPED:], plan), links


def rehearsed(scenario: Scenario, rounds: int, iterations: int) -> Scenario:
    """A scenario with a fixed number of rounds and budgets that do not bind."""
    return scenario.override(
        {
            "plan.rounds": "fixed",
            "plan.fixed_rounds": rounds,
            "plan.iterations": iterations,
            "budget.energy_j": _PLENTY_J,
            "budget.deadline_s": _PLENTY_S,
            "budget.total_s": None,
            "training.eval_every": max(iterations, 1),
        }
    )


async def _measured(folder: Path, plan: Plan, rule: Rule) -> list[LinkFigures]:
    operator = Operator.load(folder)
    edges = plan.world.graph.edges
    planned = [(int(i), int(j)) for i, j in edges[sorted(set(plan.timeline.route.link_index))]]
    found = await measure_fleet(operator, operator.fleet.links, rule, planned=planned)
    await operator.collect()  # which the nodes wait for
    return found
