"""Methods on the planner: adaptive rounds, the same in reverse, fixed ones, and spread ones.

Yan, Li: "Adaptive Decentralized Federated Learning in Energy and Latency Constrained Wireless
Networks", arXiv:2403.20075, with any rounds policy of the planner (``adaptive:backfill``); its
"inverse" variant (Fig. 8), τ[t] of the plan in iteration n + 1 − t, within each iteration's cap;
its fixed scheme (Fig. 8), without regard to batteries or deadlines.

``spread`` is Joulemesh's own plan: every device trains at the rate that its battery and the time
pay for, which may be less than one round per iteration: then it averages and relays without
training in some. So a weak battery no longer bounds how often all devices average, which matters
more than how many rounds they run in between (docs: comparison).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.registry import PAPER
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.base import Contender, entry, register, whole
from joulemesh.methods.setting import Prices, Setting
from joulemesh.methods.walk import Moment, Schemed, walk, with_losses
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Plan
from joulemesh.registries import POLICIES, SCHEMES
from joulemesh.training.from_plan import mixing_of, schedule_of
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
    ledger = setting.cut(name, whole, held_j) if setting.limits_time else whole
    notes = [*plan.notes]
    notes += [f"{event.kind} in iteration {event.iteration}" for event in plan.events]
    if setting.scenario.training.weights == "samples" and not plan.timeline.scheme.exact:
        notes.append("gossip tends to the plain mean: training.weights does not weigh exchanges")
    notes += [plan.drawn.note(plan)] if plan.drawn is not None else []
    notes += setting.stop_notes(ledger, held_j)
    return Contender(
        name,
        _first(schedule_of(plan), ledger.iterations),
        None,
        ledger,
        held_j,
        (*notes, *setting.notes_on(ledger, battery_j=held_j)),
        plan=plan if ledger.iterations == n else None,
        traced=True,
        drawn=plan.drawn is not None,
        clocked=True,
    )


def paper_plan(setting: Setting, rounds: str) -> Plan:
    """The scenario planned as in the paper, with a policy that trains in every iteration.

    Policies share n, so that only the spread of the rounds differs. The n of a plan whose devices
    may skip training is no guide: then the scenario's own wish decides, and Theorem 3 the scheme.
    """
    own = setting.scenario.plan
    if rounds == own.rounds:
        return setting.reference
    if POLICIES[own.rounds].least(own):
        return setting.plan(rounds=rounds, iterations=setting.iterations)
    scheme = "theorem3" if own.aggregation == "auto" else own.aggregation
    return setting.plan(rounds=rounds, aggregation=scheme, exchange="exact")


def _adaptive(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    own = setting.scenario.plan
    usual = own.rounds if POLICIES[own.rounds].least(own) else "theorem4"
    return contender_of(name, setting, paper_plan(setting, given.get("rounds", usual)))


register(
    "adaptive",
    _adaptive,
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


def _spread(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    iterations: int | str = "auto"
    if setting.scenario.origin("plan.iterations").kind == "given":
        iterations = setting.scenario.plan.iterations
    if setting.equal == "iterations":
        iterations = setting.iterations
    plan = setting.plan(
        total_s=setting.limit_s if setting.limits_time else None,
        rounds="spread",
        iterations=given.get("iterations", iterations),
        aggregation=given.get("scheme", "auto"),
    )
    return contender_of(name, setting, plan)


register(
    "spread",
    _spread,
    description="Every device trains at the rate that its battery and the time pay for, in some "
    "iterations not at all, and all average exactly after each of many short iterations.",
    parameters={
        "iterations": whole(meaning="number of iterations", default="as given, else auto"),
        "scheme": entry(SCHEMES, meaning="aggregation scheme", default="the best for the budgets"),
    },
    main="iterations",
)


def scheme_prices(setting: Setting, tau: int) -> Prices:
    """Price the plan's scheme with τ rounds in every iteration.

    Under fading a known channel lets the tree follow the gains; an unknown one leaves it where
    the forecast put it, and the realised gains decide the price. Link costs are flooded whenever
    the plan floods them. No exchange is skipped.
    """
    scheme, ground = setting.scheme, setting.ground

    def route(t: int) -> Route:
        return scheme.route(ground.seen_costs(t), t)

    along = setting.exchanges(route, alike=not scheme.random)

    def exchanges(start: int, stop: int) -> Ledger:
        if scheme.random and not setting.fading:
            return ground.pricer.scheme(scheme, ground.costs(0), start, stop)
        sent = along(start, stop)
        if not ground.floods(scheme):
            return sent
        sent = sent if sent.iterations > 1 else sent.tiled(stop - start)
        for row in np.flatnonzero(ground.flooded(scheme, start, stop)).tolist():
            flood = ground.pricer.coordination(scheme, ground.costs(start + row))
            sent = sent + flood.where(np.arange(stop - start) == row)
        return sent

    return lambda start, stop: charge(setting.world.devices, tau, exchanges(start, stop))


def _fixed(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    tau = given.get("tau", setting.scenario.plan.fixed_rounds)
    if setting.world.traces.given:
        schemed = Schemed(_scheme_among)
        walked = walk(setting, name, lambda now: schemed.act(now, lambda part: part.rounds(tau)))
        return walked.contender(name)
    mixing, mixing_rounds = mixing_of(setting.scheme)
    made = setting.contender(
        name, tau, scheme_prices(setting, tau), mixing=mixing, mixing_rounds=mixing_rounds
    )
    return with_losses(setting, made, lambda t: setting.scheme)


def _scheme_among(now: Moment) -> Scheme:
    setting = now.setting
    balanced = setting.scenario.plan.gossip_rounds == "balanced"
    n = setting.iterations if balanced else 1
    ground = setting.ground.unquantised  # a walk mixes by matrices
    return ground.ready_among(now.who, now.forecast, now.battery_j, n, cut=now.cut)


register(
    "fixed",
    _fixed,
    description="The same number of rounds on every device in every iteration, "
    "with the adaptive plan's exchange.",
    citation=PAPER,
    parameters={"tau": whole(meaning="rounds per iteration", default="plan.fixed_rounds")},
    main="tau",
)


def _inverse(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    del given
    plan = paper_plan(setting, "inverse")
    return contender_of(name, setting, plan)


register(
    "inverse",
    _inverse,
    description="The adaptive plan's rounds in reverse order, within each iteration's cap.",
    citation=PAPER,
)
