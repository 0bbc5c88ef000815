"""The same number of rounds in every iteration, on the plan's own exchange: ``fixed:3``.

The paper's fixed scheme (Yan, Li, arXiv:2403.20075, Fig. 8), without regard to batteries or
deadlines; `run_length` decides when it must stop.
"""

from __future__ import annotations

__all__ = ["scheme_prices"]

from collections.abc import Mapping
from typing import Any

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.adaptive import PAPER
from joulemesh.methods.base import Contender
from joulemesh.methods.losses import with_losses
from joulemesh.methods.moment import Moment
from joulemesh.methods.parameters import whole
from joulemesh.methods.registry import register
from joulemesh.methods.schemed import Schemed
from joulemesh.methods.setting import Prices, Setting
from joulemesh.methods.walk import walk
from joulemesh.setup.from_plan import mixing_of


def scheme_prices(setting: Setting, tau: int) -> Prices:
    """Price the plan's scheme with τ rounds in every iteration.

    Under fading a known channel lets the tree follow the gains; an unknown one leaves it where
    the forecast put it, and the realised gains decide the price. Link costs are flooded whenever
    the plan floods them. No exchange is skipped.

    >>> from joulemesh import Scenario
    >>> prices = scheme_prices(Setting(Scenario.preset("adaptive")), 3)
    >>> prices(0, 50).iterations  # all alike
    1
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


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
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
    """The plan's scheme, among those who take part."""
    setting = now.setting
    balanced = setting.scenario.plan.gossip_rounds == "balanced"
    n = setting.iterations if balanced else 1
    return setting.ground.ready_among(now.who, now.forecast, now.battery_j, n, cut=now.cut)


register(
    "fixed",
    _build,
    description="The same number of rounds on every device in every iteration, "
    "with the adaptive plan's exchange.",
    citation=PAPER,
    parameters={"tau": whole(meaning="rounds per iteration", default="plan.fixed_rounds")},
    main="tau",
)
