"""Tree, pipelined tree and chunked ring on random connected graphs, and one tree of many devices.

Devices lie at random in a square that has 900 m² for each of them, and links fade (Rayleigh). Ideal
links have 1 MHz, lose 128.1 + 37.6 log10(km) dB and carry nothing but the vector; those of Wi-Fi
have the figures of its profile, with headers, channel access and receiving. Half of the graphs have
devices of unequal transmit power. The model has 159,010 parameters of 32 bits.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import OUT, machine, measure, progress, publish, table
from benchmarks.graphs import KINDS, Drawn, draw
from joulemesh.aggregation.air import Medium
from joulemesh.aggregation.play import exchange_energy_j, exchange_latency_s
from joulemesh.aggregation.ring import find_ring
from joulemesh.aggregation.route import Subgraph
from joulemesh.aggregation.scheme import Conditions, choose
from joulemesh.planning.ground import Ground
from joulemesh.scenario import PlanOptions, Scenario

TITLE = "Trees in chunks"
GRAPHS = 1_000
EVERY = {  # half duplex, ten times as dear, is priced on some of the graphs
    ("ideal", "orthogonal"): 1,
    ("ideal", "half"): 5,
    ("wifi", "orthogonal"): 1,
    ("wifi", "half"): 5,
}
BITS = 159_010 * 32.0
DUPLEXES = ("orthogonal", "half")
MANY = 100_000

FloatArray = NDArray[np.float64]

_MANY = """
import json, sys, time
import joulemesh
from joulemesh.planning.pricing import Pricer
count, scheme, duplex = int(sys.argv[1]), *sys.argv[2:]
scenario = joulemesh.Scenario.preset("adaptive").override({
    "devices.count": count, "devices.samples": 4, "network.topology": "geometric",
    "network.area_m": 30.0 * count**0.5, "network.mean_degree": 10.0, "network.duplex": duplex,
    "plan.aggregation": scheme, "plan.iterations": 3, "plan.rounds": "fixed",
    "plan.fixed_rounds": 2, "budget.energy_j": 1e6, "budget.deadline_s": 1e6,
    "training.partition": "resample", "training.hidden": [200]})
start = time.process_time()
plan = joulemesh.plan(scenario)
planned = time.process_time()
costs = plan.world.costs(plan.world.channel.gain(0))
route = plan.scheme_at(1).route(costs)
routed = time.process_time()
prices = Pricer(scenario, plan.world, plan.work.model_bits).route(route, costs)
priced = time.process_time()
print(json.dumps({"plan_s": planned - start, "route_s": routed - planned,
    "price_s": priced - routed, "chunks": route.chunks, "messages": route.count,
    "joules": float(prices.exchange_j.sum()), "seconds": float(prices.seconds[0])}))
"""


@dataclass(frozen=True)
class Price:
    """Joules of each device, and seconds, of one exchange."""

    joules: FloatArray
    seconds: float
    chunks: int


def price(drawn: Drawn, name: str, duplex: str, **options: Any) -> Price:
    """The price of a scheme."""
    graph, costs = drawn.graph, drawn.costs
    conditions = Conditions(
        Subgraph.of(graph),
        costs,
        BITS,
        PlanOptions(aggregation=name, **options),
        Medium(duplex),
        channel_known=True,
        seed=0,
        battery_j=np.ones(graph.devices),
        iterations=1,
    )
    route = choose(conditions).ready(conditions).route(costs)
    count = graph.devices
    joules = exchange_energy_j(route, costs, count, "transmitter")
    seconds = exchange_latency_s(route, costs, count, "critical-path", Medium(duplex), BITS)
    return Price(joules, seconds, route.chunks)


def with_ring(drawn: Drawn) -> Drawn:
    """The graph with a ring that runs through it, if one is found."""
    graph = drawn.graph
    found = find_ring(graph.edges, graph.devices, hint=graph.ring, limit=20_000)
    return replace(drawn, graph=replace(graph, ring=found.order))


def compare(drawn: Drawn, duplex: str) -> dict[str, Any]:
    """What a graph shows: ratios of the pipelined tree's prices to the others'."""
    tree = price(drawn, "tree", duplex)
    least = {"tree": "least"}
    same = price(drawn, "tree-chunked", duplex, tree_slack=0.0, **least)  # along the same tree
    best = price(drawn, "tree-chunked", duplex, **least)
    found = {
        "devices": drawn.graph.devices,
        "chunks": same.chunks,
        "joules": float(np.abs(same.joules / tree.joules - 1.0).max()),
        "tree_s": same.seconds / tree.seconds,
        "faster_tree_s": best.seconds / same.seconds,
        "faster_tree_j": float(best.joules.sum() / same.joules.sum()),
    }
    if drawn.graph.ring is not None:
        ring = price(drawn, "ring-chunked", duplex)
        found |= {
            "ring_s": best.seconds / ring.seconds,
            "ring_j": float(best.joules.sum() / ring.joules.sum()),
        }
    return found


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of many graphs."""
    rings = [row for row in rows if "ring_s" in row]

    def quantiles(name: str, of: list[dict[str, Any]]) -> list[float]:
        values = [row[name] for row in of]
        return [float(np.quantile(values, q)) for q in (0.1, 0.5, 0.9, 1.0)] if values else []

    return {
        "graphs": len(rows),
        "devices": [min(row["devices"] for row in rows), max(row["devices"] for row in rows)],
        "joules": max(row["joules"] for row in rows),
        "tree_s": quantiles("tree_s", rows),
        "chunks": quantiles("chunks", rows),
        "other_tree": sum(row["faster_tree_s"] < 1 for row in rows),
        "faster_tree_s": quantiles("faster_tree_s", [r for r in rows if r["faster_tree_s"] < 1]),
        "faster_tree_j": quantiles("faster_tree_j", [r for r in rows if r["faster_tree_s"] < 1]),
        "rings": len(rings),
        "below_ring": sum(row["ring_s"] < 1 for row in rings),
        "ring_s": quantiles("ring_s", rings),
        "ring_j": quantiles("ring_j", rings),
    }


def many(scheme: str, duplex: str) -> dict[str, Any]:
    progress(f"{MANY:,} devices, {scheme}, {duplex}")
    wall, peak, output = measure(sys.executable, "-c", _MANY, str(MANY), scheme, duplex)
    return {
        "scheme": scheme,
        "duplex": duplex,
        "process_s": wall,
        "peak_mib": peak,
        **json.loads(output),
    }


def _ratios(values: list[float]) -> list[str]:
    """Median, tenth and ninetieth percentile, and the most."""
    if not values:
        return ["–"] * 3
    low, middle, high, most = values
    return [f"{middle:.2f}", f"{low:.2f} to {high:.2f}", f"{most:.3f}"]


def _tables(found: dict[str, Any]) -> list[str]:
    """Beside the tree, and beside the chunked ring."""
    tree, ring = [], []
    for kind, one in found.items():
        low, high = one["devices"]
        graphs = [kind, f"{one['graphs']}", f"{low} to {high}"]
        tree.append([*graphs, f"{one['joules']:.1g}", *_ratios(one["tree_s"])])
        if one["rings"]:
            share = f"{one['below_ring']} of {one['rings']}"
            ring.append([kind, share, *_ratios(one["ring_s"]), f"{one['ring_j'][1]:.2f}"])
    spread = ["10 to 90 %", "worst"]
    header = ["graph", "graphs", "devices", "joules off the tree's", "seconds over the tree's"]
    beside = ["graph", "faster than the chunked ring", "seconds over the ring's", *spread]
    return [table([*header, *spread], tree), table([*beside, "joules over the ring's"], ring)]


_RADIOS = {"ideal": "Ideal links", "wifi": "Wi-Fi"}


def _overview(found: dict[str, Any]) -> str:
    """How many times as fast the pipelined tree is, in the median graph."""
    rows = []
    for radio, duplex in EVERY:
        one = found[radio][duplex]["all"]
        times = [f"{1 / one['tree_s'][k]:.1f}" for k in (1, 2, 0)]
        share = f"{one['below_ring']} of {one['rings']}"
        rows.append([_RADIOS[radio], duplex, times[0], f"{times[1]} to {times[2]}", share])
    header = ["links", "duplex", "times as fast as the tree", "10 to 90 %"]
    return table([*header, "faster than the chunked ring"], rows)


def page(record: dict[str, Any]) -> str:
    """The page's body."""
    parts = [
        f"`tree-chunked` beside `tree` and `ring-chunked` on {record['graphs']:,} random connected "
        "graphs of 3 to 200 devices, priced by the planner's ledger: 159,010 parameters of 32 "
        "bits, links of random length that fade, and unequal transmit powers in every other graph. "
        "Ideal links have 1 MHz, Shannon's rate and no headers; those of Wi-Fi have the figures of "
        "its profile: a packet of 1,448 bytes has 90 bytes of headers and takes 181.5 µs of "
        "channel access, and receiving has a price. Ratios are medians, with the tenth and "
        "ninetieth percentile and the worst. Joules and seconds are compared with the tree's along "
        "the same tree (`plan.tree_slack = 0`; the largest relative difference of any device), and "
        "with the ring's along the tree that is chosen by default. Half duplex is priced on every "
        "fifth graph. Some graphs have no ring, or none was found in 20,000 steps.",
        _overview(record["found"]),
    ]
    for radio, duplex in EVERY:
        every = record["found"][radio][duplex]
        total = every["all"]
        links = "orthogonal links" if duplex == "orthogonal" else "half duplex"
        parts.append(f"## {_RADIOS[radio]}, {links}")
        parts += _tables(every)
        low, middle, high, _ = total["chunks"]
        line = f"Chunks: {middle:,.0f} in the median graph, {low:,.0f} to {high:,.0f} in most. "
        line += f"In {total['other_tree']} graphs another tree than the cheapest was taken"
        if total["other_tree"]:
            line += (
                f": {100 * (total['faster_tree_j'][1] - 1):.1f} % more joules for "
                f"{100 * (1 - total['faster_tree_s'][1]):.0f} % fewer seconds in the median"
            )
        parts.append(line + ".")
    rows = [
        [
            one["scheme"],
            one["duplex"],
            f"{one['chunks']:,}",
            f"{one['messages']:,}",
            f"{one['seconds']:.3g}",
            f"{one['plan_s']:.1f}",
            f"{one['route_s']:.2f}",
            f"{one['price_s']:.2f}",
            f"{one['peak_mib']:,.0f}",
        ]
        for one in record["many"]
    ]
    header = ["scheme", "links", "chunks", "messages", "exchange s", "plan s", "route s"]
    parts += [
        f"## {MANY:,} devices",
        "A geometric graph of mean degree 10 and an MLP 64-200-10. The plan includes the drawing "
        "of the world and the choice of tree and chunks; then the time to make the route again, "
        "and to price it, in processor seconds. No list of messages is made. Peak memory is of the "
        "whole process.",
        table([*header, "price s", "peak MiB"], rows),
    ]
    parts += _spared(record["spared"]) if "spared" in record else []
    return "\n\n".join(parts)


# Whose battery pays -------------------------------------------------------------------------------

RULES = ("fair", "rotate", "auto")
SPARED, DEVICES = 8, (20, 50, 200)


def spare(count: int, unequal: bool, duplex: str) -> dict[str, dict[str, list[float]]]:
    """Worst share, joules and seconds by rule, over those of the least tree: one for each graph."""
    found: dict[str, dict[str, list[float]]] = {}
    for seed in range(SPARED):
        asked = Scenario().override(
            {
                "seed": seed,
                "devices.count": count,
                "network.topology": "geometric",
                "network.mean_degree": 8.0,
                "network.profile": "ideal",
                "network.duplex": duplex,
                "network.area_m": 100.0 * count**0.5,
                "budget.energy_j": [6.0, 30.0] if unequal else 18.0,
                "plan.aggregation": "tree-chunked",
                "plan.iterations": 8,
            }
        )
        figures = {}
        for rule in ("least", *RULES):
            ground = Ground.of(asked.override({"plan.tree": rule}))
            prices = ground.prices(ground.ready(8), ground.forecast, 0, 8)
            spent_j = prices.exchange_j.mean(axis=0)
            share = float((spent_j / ground.world.devices.energy_budget_j).max())
            figures[rule] = (share, float(spent_j.sum()), float(prices.seconds.mean()))
        for rule in RULES:
            for name, own, least in zip(
                ("share", "joules", "seconds"), figures[rule], figures["least"], strict=True
            ):
                found.setdefault(rule, {}).setdefault(name, []).append(own / least)
    return found


def spared() -> list[dict[str, Any]]:
    """Medians and worst of many graphs."""
    rows = []
    for duplex in DUPLEXES:
        for count in DEVICES if duplex == "orthogonal" else DEVICES[:1]:
            for unequal in (False, True):
                progress(f"{count} devices, {duplex}, {'unequal' if unequal else 'equal'}")
                for rule, of in spare(count, unequal, duplex).items():
                    figures = {name: [float(np.median(v)), max(v)] for name, v in of.items()}
                    about = {"devices": count, "unequal": unequal, "duplex": duplex, "rule": rule}
                    rows.append({**about, **figures})
    return rows


def _spared(rows: list[dict[str, Any]]) -> list[str]:
    def cell(values: list[float]) -> str:
        return f"{values[0]:.2f} ({values[1]:.2f})"

    header = ["devices", "batteries", "links", "rule", "worst share", "joules", "seconds"]
    lines = [
        [
            f"{one['devices']}",
            "1 to 5" if one["unequal"] else "equal",
            one["duplex"],
            one["rule"],
            *(cell(one[name]) for name in ("share", "joules", "seconds")),
        ]
        for one in rows
    ]
    return [
        "## Whose battery pays",
        f"`plan.tree` on {SPARED} random geometric graphs of each kind (mean degree 8, ideal links "
        "of 20 MHz, equal transmit powers), over the tree of least joules: the largest share of "
        "any battery that an exchange takes, joules of all devices, and seconds; medians, and the "
        "largest in brackets. `auto` takes the fair tree where it saves 5 % of the share, and "
        "costs at most 5 % of the joules and 1 % of the seconds. "
        "Made by `python -m benchmarks.trees --spared`.",
        table(header, lines),
    ]


def graphs() -> dict[str, dict[str, dict[str, Any]]]:
    """What the random graphs show, by radio, by duplex and by kind."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for (radio, duplex), every in EVERY.items():
        progress(f"{radio}, {duplex}")
        rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
        for number in range(0, GRAPHS, every):
            drawn = with_ring(draw(number, radio))
            rows[drawn.kind].append(compare(drawn, duplex))
        by_kind = {kind: summary(each) for kind, each in rows.items() if each}
        every_row = [row for each in rows.values() for row in each]
        found.setdefault(radio, {})[duplex] = by_kind | {"all": summary(every_row)}
    return found


def main() -> None:
    """Price the graphs and the large tree, and publish the tables; or only `--spared`."""
    if "--spared" in sys.argv:
        record = json.loads((OUT / "trees.json").read_text("utf-8")) | {"spared": spared()}
        publish("trees", TITLE, page(record), record)
        return
    found = graphs()
    large = [many(scheme, duplex) for duplex in DUPLEXES for scheme in ("tree", "tree-chunked")]
    record = {"machine": machine(), "graphs": GRAPHS, "found": found, "many": large}
    record["spared"] = spared()
    publish("trees", TITLE, page(record), record)


if __name__ == "__main__":
    main()
