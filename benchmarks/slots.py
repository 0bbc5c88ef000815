"""How far the slots of a shared medium are from the best slots, by trying all on small networks.

The best slots of an exchange are the shortest way through the sets of transmissions that are over:
a slot adds some that wait for nothing and do not conflict, and takes as long as the longest.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import machine, progress, publish, table
from joulemesh.aggregation.air import ORTHOGONAL, OnAir, Reach, on_air
from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.aggregation.play import in_slots, least_slots_s
from joulemesh.aggregation.tree import spanning_tree, tree_route
from joulemesh.scenario import Network
from joulemesh.world.channel import path_gain
from joulemesh.world.links import link_costs

TITLE = "Slots of a shared medium, and the best slots"
CASES = 300  # of each kind
MOST = 14  # transmissions of a case: beyond, trying all takes minutes
LARGE = (50, 200, 1_000)
EXCHANGES = ("neighbours", "tree")
RANGES = {"common ends": 0.0, "common ends and interference": 1.0}  # in units of the longest link

FloatArray = NDArray[np.float64]


class Drawn:
    """Devices at random in a square, linked where they are near; a tree joins all."""

    def __init__(self, devices: int, degree: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.devices = devices
        self.at = rng.uniform(0, 100 * devices**0.5, (devices, 2))
        pairs = np.array(list(combinations(range(devices), 2)))
        away = np.linalg.norm(self.at[pairs[:, 0]] - self.at[pairs[:, 1]], axis=1)
        tree = spanning_tree(pairs, away, devices)
        near = np.argsort(away)[: int(degree * devices / 2)]
        kept = np.unique(np.concatenate([tree, near]))
        self.edges, self.away = pairs[kept], away[kept]
        power = rng.uniform(0.1, 1.0, devices)
        gain = path_gain(self.away, Network())
        self.costs = link_costs(self.edges, gain, power, 20e6, 4e-21)

    def air(self, exchange: str, broadcast: bool) -> OnAir:
        """What an exchange puts on the air."""
        if exchange == "neighbours":
            return on_air(metropolis_route(self.edges, 1e6, 1), self.costs, broadcast=broadcast)
        tree = spanning_tree(self.edges, self.costs.weight(), self.devices)
        route = tree_route(self.edges, tree, self.costs, self.devices, 1e6, ORTHOGONAL)
        return on_air(route, self.costs, broadcast=broadcast)

    def reach(self, links: float) -> Reach | None:
        """Who interferes with whom, up to so many times the longest link."""
        return Reach.of(self.at, links * float(self.away.max())) if links else None


def best_s(air: OnAir, devices: int, reach: Reach | None) -> float:
    """The least seconds of any slots."""
    count, receivers = len(air.sender), air.receivers()
    ends = [{int(air.sender[k]), *receivers[k]} for k in range(count)]
    near = [[]] * devices if reach is None else reach.lists()
    drowned = [{j for i in receivers[k] for j in near[i]} for k in range(count)]
    conflicts = [0] * count
    for a, b in combinations(range(count), 2):
        if (
            ends[a] & ends[b]
            or int(air.sender[a]) in drowned[b]
            or int(air.sender[b]) in drowned[a]
        ):
            conflicts[a] |= 1 << b
            conflicts[b] |= 1 << a
    before = [
        sum(
            1 << other
            for other in range(count)
            if air.step[other] < air.step[k] and int(air.sender[k]) in receivers[other]
        )
        for k in range(count)
    ]
    order = np.argsort(-air.seconds, kind="stable").tolist()

    @cache
    def rest(done: int) -> float:
        """Seconds of what is not done yet."""
        if done == (1 << count) - 1:
            return 0.0
        ready = [k for k in order if not done >> k & 1 and not before[k] & ~done]
        found = np.inf
        for first, k in enumerate(ready):  # the longest of the next slot, and any shorter ones
            for more in _independent(ready[first + 1 :], conflicts, conflicts[k]):
                found = min(found, float(air.seconds[k]) + rest(done | 1 << k | more))
        return found

    return rest(0)


def _independent(some: list[int], conflicts: list[int], taken: int) -> list[int]:
    """All sets of transmissions without a conflict among them to which none can be added.

    To send one more in a slot that is long enough anyway never makes the rest longer.
    """
    sets, every = [(0, taken)], sum(1 << k for k in some)
    for k in some:
        sets += [(mine | 1 << k, no | conflicts[k]) for mine, no in sets if not no >> k & 1]
    return [mine for mine, no in sets if not every & ~mine & ~no]


def small(exchange: str, broadcast: bool, links: float) -> dict[str, Any]:
    """Ratios to the best over many small networks."""
    ratios: list[float] = []
    seed = 0
    while len(ratios) < CASES:
        drawn = Drawn(4 + seed % 5, 1.5 + seed % 3, seed)
        air, reach = drawn.air(exchange, broadcast), drawn.reach(links)
        seed += 1
        if len(air.sender) > MOST:
            continue
        found = in_slots(air, drawn.devices, reach).seconds
        ratios.append(found / best_s(air, drawn.devices, reach))
    return {
        "cases": len(ratios),
        "best": float(np.mean(np.array(ratios) < 1 + 1e-9)),
        "mean": float(np.mean(ratios)),
        "p90": float(np.quantile(ratios, 0.9)),
        "worst": float(np.max(ratios)),
    }


def large(devices: int, broadcast: bool, links: float) -> dict[str, Any]:
    """A neighbour exchange of a larger network beside the bound from below."""
    drawn = Drawn(devices, 10.0, 1)
    air = drawn.air("neighbours", broadcast)
    found, least = in_slots(air, devices, drawn.reach(links)), least_slots_s(air, devices)
    return {
        "devices": devices,
        "transmissions": len(air.sender),
        "slots": len(found.lengths_s),
        "over": found.seconds / least,
    }


def _words(broadcast: bool) -> str:
    return "broadcasts" if broadcast else "messages"


def page(record: dict[str, Any]) -> str:
    rows = [
        [
            one["exchange"],
            _words(one["broadcast"]),
            one["conflicts"],
            f"{one['cases']:,}",
            f"{100 * one['best']:.0f} %",
            f"{one['mean']:.3f}",
            f"{one['p90']:.3f}",
            f"{one['worst']:.3f}",
        ]
        for one in record["small"]
    ]
    header = ["exchange", "sent as", "conflicts by", "cases", "best found", "mean", "p90", "worst"]
    more = [
        [
            f"{one['devices']:,}",
            _words(one["broadcast"]),
            one["conflicts"],
            f"{one['transmissions']:,}",
            f"{one['slots']:,}",
            f"{one['over']:.3f}",
        ]
        for one in record["large"]
    ]
    return (
        "Seconds of the planner's slots over those of the best slots, which are found by trying "
        f"all: networks of 4 to 8 devices with at most {MOST} transmissions, links of unequal "
        "rates and transmit powers. Interference reaches as far as the longest link.\n\n"
        + table(header, rows)
        + "\n\nNeighbour exchanges of larger networks (geometric, 10 neighbours on average), over "
        "the seconds that the busiest device needs at the least. With interference the best slots, "
        "too, are far above that bound.\n\n"
        + table(
            ["devices", "sent as", "conflicts by", "transmissions", "slots", "over the bound"], more
        )
    )


def main() -> None:
    kinds = [(broadcast, name) for broadcast in (False, True) for name in RANGES]
    found, larger = [], []
    for exchange in EXCHANGES:
        for broadcast, name in kinds:
            progress(f"{exchange}, {_words(broadcast)}, {name}")
            said = {"exchange": exchange, "broadcast": broadcast, "conflicts": name}
            found.append(said | small(exchange, broadcast, RANGES[name]))
    for devices in LARGE:
        for broadcast, name in kinds:
            said = {"broadcast": broadcast, "conflicts": name}
            larger.append(said | large(devices, broadcast, RANGES[name]))
    record = {"machine": machine(), "small": found, "large": larger}
    publish("slots", TITLE, page(record), record)


if __name__ == "__main__":
    main()
