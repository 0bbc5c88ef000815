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
from joulemesh.methods.adaptive import PAPER, scheme_bits
from joulemesh.methods.base import Contender, Ledger
from joulemesh.methods.parameters import whole
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Prices, Setting
from joulemesh.planning.pricing import LINK_REPORT_BITS
from joulemesh.setup.from_plan import mixing_of


def scheme_prices(setting: Setting, tau: int) -> Prices:
    """Price the plan's scheme with τ rounds in every iteration.

    Under fading a known channel lets the tree follow the gains; an unknown one leaves it where
    the forecast put it, and the realised gains decide the price. No exchange is skipped.

    >>> from joulemesh import Scenario
    >>> prices = scheme_prices(Setting(Scenario.preset("default")), 3)
    >>> prices(0, 50).iterations  # all alike
    1
    """
    scheme = setting.scheme
    flooding = setting.scenario.plan.coordination and scheme.kind.floods_costs

    def route(t: int) -> Route:
        known = setting.scenario.network.channel_known
        return scheme.route(setting.costs(t) if known else setting.forecast, t)

    along = setting.route_prices(tau, route, alike=not scheme.random)

    def pairwise(start: int, stop: int) -> Ledger:
        priced = setting.pricer.scheme(scheme, setting.costs(0), start, stop)
        bits = scheme_bits(scheme, route, start, stop)
        return setting.ledger(tau, priced.energy_j, priced.latency_s, bits)

    plain = pairwise if scheme.random and not setting.fading else along
    if not flooding:
        return plain

    def flooded(start: int, stop: int) -> Ledger:
        ledger = plain(start, stop)
        ledger = ledger if ledger.iterations > 1 else ledger.tiled(stop - start)
        rows = [_flood(setting, t) for t in range(start, stop)]
        return Ledger(
            ledger.compute_j,
            ledger.exchange_j + np.stack([row[0] for row in rows]),
            ledger.latency_s + np.array([row[1] for row in rows]),
            ledger.bits + np.array([row[2] for row in rows]),
            ledger.server_j,
        )

    return flooded


def _flood(setting: Setting, t: int) -> tuple[Any, float, float]:
    """Joules [N], seconds and bits of telling everybody every link's cost, where gains are new."""
    block = setting.world.channel.block
    if t > 0 and block(t) == block(t - 1):
        return np.zeros(setting.devices), 0.0, 0.0
    priced = setting.pricer.coordination(setting.scheme, setting.costs(t))
    links = len(setting.scheme.graph.edges)
    return priced.energy_j[0], float(priced.latency_s[0]), 2 * links * LINK_REPORT_BITS * links


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    tau = given.get("tau", setting.scenario.plan.fixed_rounds)
    mixing, mixing_rounds = mixing_of(setting.scheme)
    return setting.contender(
        name, tau, scheme_prices(setting, tau), mixing=mixing, mixing_rounds=mixing_rounds
    )


register(
    "fixed",
    _build,
    description="The same number of rounds on every device in every iteration, "
    "with the adaptive plan's exchange.",
    citation=PAPER,
    parameters={"tau": whole(meaning="rounds per iteration", default="plan.fixed_rounds")},
    main="tau",
)
