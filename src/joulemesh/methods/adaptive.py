"""Adaptive rounds on a tree, a ring or by gossip: the paper's own method, as planned.

Yan, Li: "Adaptive Decentralized Federated Learning in Energy and Latency Constrained Wireless
Networks", arXiv:2403.20075. Any rounds policy of the planner: ``adaptive:backfill``.
"""

from __future__ import annotations

__all__ = ["PAPER", "contender_of", "paper_plan"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from joulemesh.bibliography import PAPER
from joulemesh.methods.base import Contender
from joulemesh.methods.horizon import cut, notes_on, stop_notes
from joulemesh.methods.parameters import entry
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Setting
from joulemesh.planning.drawing import carried_out
from joulemesh.planning.plan import Plan
from joulemesh.registries import POLICIES
from joulemesh.setup.from_plan import schedule_of
from joulemesh.training.schedule import Schedule


def _first(schedule: Schedule, n: int) -> Schedule:
    """The first iterations of a schedule whose mixing is static or a function of the iteration."""
    return replace(
        schedule,
        rounds=schedule.rounds[:n],
        active=schedule.active[:n],
        exchanged=schedule.exchanged[:n],
        exact=schedule.exact[:n],
        gifts=tuple(gift for gift in schedule.gifts if gift[0] < n),
    )


def contender_of(name: str, setting: Setting, plan: Plan) -> Contender:
    """A plan as a contender; where time is limited it may be cut short."""
    plan = carried_out(plan)
    n, whole = plan.iterations, plan.ledger
    # No battery ends it: the plan itself pays for all of its iterations.
    held_j = plan.supplied_j
    ledger = cut(setting, name, whole, held_j) if setting.limits_time else whole
    notes = [*plan.notes]
    notes += [f"{event.kind} in iteration {event.iteration}" for event in plan.events]
    if setting.scenario.training.weights == "samples" and not plan.timeline.scheme.exact:
        notes.append("gossip tends to the plain mean: training.weights does not weigh exchanges")
    notes += [plan.drawn.note(plan)] if plan.drawn is not None else []
    notes += stop_notes(setting, ledger, held_j)
    return Contender(
        name,
        _first(schedule_of(plan), ledger.iterations),
        None,
        ledger,
        held_j,
        (*notes, *notes_on(setting, ledger, battery_j=held_j)),
        plan=plan if ledger.iterations == n else None,
        traced=True,
        drawn=plan.drawn is not None,
    )


def paper_plan(setting: Setting, rounds: str) -> Plan:
    """The scenario planned as in the paper, with a policy that trains in every iteration.

    Policies share n, so that only the spread of the rounds differs. The n of a plan whose devices
    may skip training is no guide: then the scenario's own wish decides, and Theorem 3 the scheme.

    Args:
        setting: the terms.
        rounds: the policy.

    >>> from joulemesh import Scenario
    >>> plan = paper_plan(Setting(Scenario.preset("default")), "theorem4")
    >>> plan.scheme, bool(plan.rounds.min() >= 1)
    ('tree', True)
    """
    own = setting.scenario.plan
    if rounds == own.rounds:
        return setting.reference
    if POLICIES[own.rounds].least(own):
        return setting.plan(rounds=rounds, iterations=setting.iterations)
    scheme = "theorem3" if own.aggregation == "auto" else own.aggregation
    return setting.plan(rounds=rounds, aggregation=scheme, exchange="exact")


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    own = setting.scenario.plan
    usual = own.rounds if POLICIES[own.rounds].least(own) else "theorem4"
    return contender_of(name, setting, paper_plan(setting, given.get("rounds", usual)))


register(
    "adaptive",
    _build,
    description="Local rounds planned for each device within its battery and the deadline, "
    "with an exact mean on a tree or a ring, or gossip.",
    citation=PAPER,
    parameters={
        "rounds": entry(
            POLICIES,
            meaning="policy that spreads a device's rounds over the iterations",
            default="plan.rounds, or theorem4 in place of spread",
        )
    },
    main="rounds",
)
