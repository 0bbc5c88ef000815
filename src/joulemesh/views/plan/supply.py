"""Where joules come from and where they go, as plain values: the flow, and the harvest."""

from __future__ import annotations

__all__ = ["flow_data", "harvest_data", "metered_flow", "method_flow"]

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.account import Account
from joulemesh.planning.plan import Plan
from joulemesh.views.plan.digest import BINDING_KINDS, BINDING_WORDS, every, few_digits

FloatArray = NDArray[np.float64]

_NAMED = 24  # devices that have a battery of their own in the flow
_MOST_POINTS = 200

_USES = {
    "train": "training",
    "send": "sending",
    "receive": "receiving",
    "rest": "waiting, at rest",
    "exchange": "exchange, rest",
    "outside": "repeated work",
    "left": "left over",
    "spilled": "spilled: no room",
}


def flow_data(account: Account, names: Sequence[str] = ()) -> dict[str, Any]:
    """What ``flow.js`` draws: joules from every battery to all that they went on.

    Few devices are named; many are grouped by what binds them. Each row adds up to what its
    batteries held and harvested.

    Args:
        account: a plan, or what a method costs.
        names: of the devices; the account's own by default.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> flow = flow_data(made)
    >>> flow["sources"][3]["name"], [use["key"] for use in flow["uses"]]
    ('device 3', ['train', 'send', 'left'])
    >>> total = sum(sum(source["joules"]) for source in flow["sources"])
    >>> bool(abs(total / made.energy_budget_j.sum() - 1) < 1e-4)
    True
    """
    spilled = account.spilled_total_j if isinstance(account, Plan) else np.zeros(1)
    stored = account.supplied_j - account.energy_budget_j
    columns = {
        "train": account.compute_total_j,
        "send": account.transmit_total_j,
        "receive": account.receive_total_j,
        "rest": account.idle_total_j,
        "left": np.maximum(account.margin_j, 0.0),
        "spilled": np.broadcast_to(spilled, stored.shape),
    }
    kept = {key: joules for key, joules in columns.items() if (joules > 0).any()}
    groups = _groups(account, names or account.names)
    table = np.stack(list(kept.values()))
    return {
        "uses": [{"key": key, "text": _USES[key]} for key in kept],
        "sources": [
            {"name": name, "joules": few_digits(table[:, who].sum(axis=1), 6)}
            for name, who in groups
        ],
        "gained": few_digits(
            np.array([(stored + columns["spilled"])[who].sum() for _, who in groups]), 6
        ),
    }


def _groups(account: Account, names: Sequence[str]) -> Sequence[tuple[str, NDArray[Any]]]:
    count = len(account.energy_budget_j)
    if count <= _NAMED:
        names = names or [f"device {device}" for device in range(count)]
        return [(str(name), np.array([device])) for device, name in enumerate(names)]
    if not isinstance(account, Plan):
        return [(f"{count:,} devices", np.arange(count))]
    binding = account.binding
    return [
        (f"{int((binding == kind).sum()):,} devices: {BINDING_WORDS[kind]}", binding == kind)
        for kind in BINDING_KINDS
        if (binding == kind).any()
    ]


def method_flow(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The same for methods that are compared, from the rows of their table; None without any.

    >>> row = {"method": "a", "compute_j": 3.0, "transmit_j": 1.0, "receive_j": 0.0, "idle_j": None,
    ...        "leftover_j": -0.5, "iterations": 2}
    >>> method_flow([row])["sources"]
    [{'name': 'a', 'joules': [3.0, 1.0]}]
    """
    names = {"train": "compute", "send": "transmit", "receive": "receive"}
    names |= {"rest": "idle", "left": "leftover"}
    ran = [row for row in rows if row["iterations"] is not None]
    table = {
        key: [max(0.0, float(row[f"{name}_j"] or 0.0)) for row in ran]
        for key, name in names.items()
    }
    kept = [key for key, joules in table.items() if any(joules)]
    if not kept:
        return None
    return {
        "uses": [{"key": key, "text": _USES[key]} for key in kept],
        "sources": [
            {"name": str(row["method"]), "joules": [table[key][k] for key in kept]}
            for k, row in enumerate(ran)
        ],
    }


def metered_flow(
    uses: Mapping[str, FloatArray], names: Sequence[str], who: NDArray[np.int64]
) -> dict[str, Any]:
    """The same for devices that have told what they spent.

    Args:
        uses: joules [N] by what they went on, and what is left.
        names: of the devices.
        who: whose joules are known; many of them are one source.

    >>> spent = {"train": np.array([3.0, 1.0]), "left": np.array([2.0, 0.0])}
    >>> metered_flow(spent, ("gate", "barn"), np.array([0, 1]))["sources"][0]
    {'name': 'gate', 'joules': [3.0, 2.0]}
    """
    kept = {key: joules for key, joules in uses.items() if (joules[who] > 0).any()}
    groups = [(names[device], np.array([device])) for device in who.tolist()]
    if len(who) > _NAMED:
        groups = [(f"{len(who):,} devices", who)]
    table = np.stack(list(kept.values()))
    return {
        "uses": [{"key": key, "text": _USES[key]} for key in kept],
        "sources": [
            {"name": name, "joules": few_digits(table[:, some].sum(axis=1), 6)}
            for name, some in groups
        ],
    }


def harvest_data(plan: Plan) -> dict[str, Any] | None:
    """What all batteries gained and spent up to each iteration; None where nothing is harvested.

    >>> import joulemesh
    >>> sunny = {"devices.harvest_w": 0.5, "plan.iterations": 5}
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(sunny))
    >>> data = harvest_data(made)
    >>> data["when"], bool(np.isclose(data["spent"][-1], made.spent_j.sum(), rtol=1e-4))
    ([0, 1, 2, 3, 4, 5], True)
    """
    if not plan.harvests:
        return None
    when = every(plan.iterations + 1, _MOST_POINTS)
    gained = plan.harvested_j.sum(axis=1) - plan.spilled_j.sum(axis=1)
    so_far = {"stored": gained, "spilled": plan.spilled_j.sum(axis=1), "spent": plan.iteration_j}
    return {
        "when": when.tolist(),
        **{
            name: few_digits(np.concatenate([[0.0], np.cumsum(joules)])[when])
            for name, joules in so_far.items()
        },
    }
