"""Fig. 7: joules of all aggregations, T = 400, N = 10..50, grid and quasi-ring. Nothing is trained.

Two price lists: ours (the transmitter pays, gossip runs until ε by the spectral gap) and the
paper's own equations (both ends pay, K = ⌈ln 1/ε⌉ uses of every link). Eq. `s1` prints
K = O(ln 1/ε): that the constant is 1 is a choice of ours.
"""

from __future__ import annotations

__all__ = ["CONFIG", "QUICK", "Config", "pictures", "run", "setup"]

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np

from joulemesh.aggregation.gossip import activity
from joulemesh.aggregation.scheme import Scheme
from joulemesh.planning.ground import Ground
from joulemesh.scenario import Scenario
from joulemesh.world import LinkCosts
from yan_li_2024.claims import Finding, exact, open_constant
from yan_li_2024.outcome import Outcome, Panel, Picture, Row, spread
from yan_li_2024.sentences import claim

EXACT = ("tree", "ring", "ring-chunked")
PHYSICS = {"physical": "K by the spectral gap", "paper": "the paper's equations"}


@dataclass(frozen=True)
class Config:
    """What is priced.

    Attributes:
        iterations: T = 400 (the caption), read as n (notes: n-and-t).
        devices: N = 10, 20, ..., 50 (the text). All even: the grid has 2 columns.
        topologies: those of the caption. The quasi-ring is undefined in the paper; ring plus two
            chords gives the spectral gap of Balanced DFL's (notes: quasi-ring).
        epsilons: 0.05 and 0.06 (the text).
        worlds: placements of the devices, one for each scenario seed; the paper shows one.
        bandwidth, path loss, area: open in the paper; those of the preset ``paper`` (notes:
            open-settings).
        gossip_clock_most: ticks up to which gossip's clock is followed message by message.
    """

    iterations: int = 400
    devices: tuple[int, ...] = (10, 20, 30, 40, 50)
    topologies: tuple[str, ...] = ("grid", "quasi-ring")
    epsilons: tuple[float, ...] = (0.05, 0.06)
    worlds: tuple[int, ...] = (0, 1, 2, 3, 4)
    gossip_clock_most: int = 5_000


CONFIG = Config()
QUICK = Config(devices=(10, 20), worlds=(0, 1))


def _scenario(topology: str, devices: int, world: int) -> Scenario:
    """Section V-A's devices with the MLP on Fashion-MNIST."""
    changes = {
        "seed": world,
        "devices.count": devices,
        "network.topology": topology,
        "training.dataset": "fashion-mnist",
        "training.local_round": "step",  # a round is not priced here, only its model is sent
    }
    return Scenario.preset("paper").override(changes)


def _schemes(config: Config) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label of every curve, and what it changes in the scenario."""
    for name in EXACT:
        yield name, {"plan.aggregation": name}
    for epsilon in config.epsilons:
        changes = {"plan.aggregation": "gossip", "plan.epsilon": epsilon}
        yield f"gossip, ε = {epsilon:g}", changes
    first = {"plan.aggregation": "metropolis", "plan.epsilon": config.epsilons[0]}
    yield f"metropolis, ε = {config.epsilons[0]:g}", first


def expected_j(scheme: Scheme, costs: LinkCosts) -> float:
    """Mean joules of one exchange of random gossip: K ticks, each link as often as it is drawn.

    The joules of 400 exchanges stay within a fraction of a per cent of it, and no tick is drawn.
    """
    uses = activity(scheme.graph.edges, scheme.graph.devices, "ticks")
    both_ways = costs.forward_j + costs.backward_j
    return float(scheme.rounds * scheme.bits * (uses * both_ways).sum())


def _priced(config: Config, topology: str, devices: int, world_seed: int) -> Iterator[Row]:
    """Every scheme under both price lists in one world."""
    base = Ground.of(_scenario(topology, devices, world_seed))
    costs = base.costs(0)
    for physics, (label, changes) in product(PHYSICS, _schemes(config)):
        scenario = base.scenario.override({"plan.physics": physics, **changes})
        ground = replace(base, scenario=scenario)
        scheme, pricer = ground.ready(1), ground.pricer
        if scheme.random:
            each_j, followed = expected_j(scheme, costs), scheme.rounds <= config.gossip_clock_most
        else:
            each_j, followed = float(pricer.scheme(scheme, costs, 0, 1).exchange_j.sum()), True
        seconds = pricer.scheme(scheme, costs, 0, 1).seconds[0] if followed else float("nan")
        yield {
            "physics": physics,
            "topology": topology,
            "devices": devices,
            "world": world_seed,
            "scheme": label,
            "rounds": scheme.rounds if not scheme.exact else "",
            "exchange_j": each_j,
            "total_j": each_j * config.iterations,
            "exchange_s": float(seconds),
        }


Key = tuple[str, str, int, int, str]


def _key(row: Row) -> Key:
    count, world = int(row["devices"]), int(row["world"])  # text, where it comes from a file
    return row["physics"], row["topology"], count, world, row["scheme"]


def _findings(config: Config, rows: list[Row]) -> tuple[Finding, ...]:
    joules = {_key(row): float(row["total_j"]) for row in rows}
    cases = list(product(config.topologies, config.devices, config.worlds))
    gossip = [f"gossip, ε = {epsilon:g}" for epsilon in config.epsilons]

    def times(physics: str, dearer: list[str], cheaper: list[str]) -> dict[str, float]:
        return {
            f"{one} over {other}, {topology}, N = {count}, placement {world}": joules[
                physics, topology, count, world, one
            ]
            / joules[physics, topology, count, world, other]
            for topology, count, world in cases
            for one, other in product(dearer, cheaper)
        }

    def excess(dearer: list[str], cheaper: list[str]) -> dict[str, float]:
        found = times("physical", dearer, cheaper)
        return {name: 100 * (ratio - 1) for name, ratio in found.items()}

    ours = ["tree", "ring"]
    errors = {"less": config.epsilons[0], "more": config.epsilons[1]}
    dearer = {
        name: _constant(ratio, epsilon)
        for epsilon in config.epsilons
        for name, ratio in _uses_to_match(config, rows, epsilon, ours).items()
    }
    last = {f"ε = {errors['less']:g} and {errors['more']:g}": _last_tie(*config.epsilons)}
    return (
        exact(claim("corollary2"), times("physical", ["ring"], ["tree"])),
        exact(claim("corollary2-chunked"), excess(["ring-chunked"], ["tree"])),
        exact(claim("tree-slower"), _slower(rows, ["ring", *gossip])),
        exact(claim("tree-slower-chunked"), _slower(rows, ["ring-chunked"])),
        exact(claim("gossip-dearer"), times("physical", gossip, ours)),
        open_constant(claim("gossip-dearer-printed"), dearer),
        exact(claim("smaller-epsilon", **errors), excess(gossip[:1], gossip[1:])),
        open_constant(claim("smaller-epsilon-printed", **errors), last),
        exact(claim("energy-grows"), _growth(config, joules)),
    )


def _uses(constant: float, epsilon: float) -> int:
    """K = ⌈c ln 1/ε⌉ of eq. `s1`, which prints O(ln 1/ε): the constant is open."""
    return math.ceil(constant * math.log(1 / epsilon))


def _uses_to_match(
    config: Config, rows: list[Row], epsilon: float, others: list[str]
) -> dict[str, float]:
    """By the paper's equations, how often gossip may use every link for another scheme's joules."""
    label = f"gossip, ε = {epsilon:g}"
    found = {_key(row): row for row in rows if row["physics"] == "paper"}
    made = {}
    for topology, count, world in product(config.topologies, config.devices, config.worlds):
        mine = found["paper", topology, count, world, label]
        once_j = float(mine["total_j"]) / int(mine["rounds"])
        for other in others:
            case = f"{label} over {other}, {topology}, N = {count}, placement {world}"
            rival = found["paper", topology, count, world, other]
            made[case] = float(rival["total_j"]) / once_j
    return made


def _constant(uses: float, epsilon: float) -> float:
    """The c above which ⌈c ln 1/ε⌉ exceeds so many uses.

    >>> c = _constant(44.6, 0.05)
    >>> _uses(c, 0.05), _uses(1.0001 * c, 0.05)
    (44, 45)
    """
    return math.floor(uses) / math.log(1 / epsilon)


def _last_tie(less: float, more: float) -> float:
    """The largest c with which two errors are rounded up to the same K; 0 if there is none.

    >>> c = _last_tie(0.05, 0.06)
    >>> round(c, 2), _uses(0.9999 * c, 0.05) - _uses(0.9999 * c, 0.06)
    (5.34, 0)
    """
    long, short = math.log(1 / less), math.log(1 / more)
    # ⌈c·short⌉ = ⌈c·long⌉ = k where (k − 1)/short < c ≤ k/long: for k below long/(long − short).
    k = math.ceil(long / (long - short)) - 1
    return k / long


def _slower(rows: list[Row], rivals: list[str]) -> dict[str, float]:
    """Seconds of the tree's critical path over those of the rivals'."""
    seconds = {_key(row): float(row["exchange_s"]) for row in rows if row["physics"] == "physical"}
    known = [key for key in seconds if key[-1] in rivals and np.isfinite(seconds[key])]
    return {
        f"tree against {rival}, {topology}, N = {count}, placement {world}": seconds[
            physics, topology, count, world, "tree"
        ]
        / seconds[key]
        for key in known
        for physics, topology, count, world, rival in [key]
    }


def _growth(config: Config, joules: Mapping[Key, float]) -> dict[str, float]:
    labels = [label for label, _ in _schemes(config)]
    return {
        f"{label}, {topology}, N = {few} to {many}, placement {world}": 100
        * (
            joules["physical", topology, many, world, label]
            / joules["physical", topology, few, world, label]
            - 1
        )
        for label, topology, world in product(labels, config.topologies, config.worlds)
        for few, many in pairwise(config.devices)
    }


def pictures(config: Config, rows: Sequence[Row]) -> tuple[Picture, ...]:
    """The figure, from its rows."""
    joules = {_key(row): float(row["total_j"]) for row in rows}
    panels = []
    for letter, (physics, topology) in zip(
        "abcdefgh", product(PHYSICS, config.topologies), strict=False
    ):
        series = tuple(
            spread(
                label,
                config.devices,
                [[joules[physics, topology, n, w, label] for w in config.worlds]
                 for n in config.devices],
            )
            for label, _ in _schemes(config)
        )  # fmt: skip
        title = f"({letter})  {topology}: {PHYSICS[physics]}"
        panels.append(
            Panel(title, "devices N", "aggregation energy [J]", series, log=True, marks=True)
        )
    title = f"Energy of {config.iterations} aggregations, MLP 784-200-10"
    bands = f"bars: range over {len(config.worlds)} placements"
    columns = len(config.topologies)
    return (Picture("fig7", title, tuple(panels), columns, bands=bands, share="all"),)


def setup(config: Config) -> str:
    """What was priced, and what the paper leaves open."""
    return (
        f"Nothing is trained: the radio energy of {config.iterations} exchanges of the MLP's "
        f"159,010 parameters is computed, for {len(config.worlds)} random placements of the "
        "devices. Open in the paper: bandwidth, path loss, area, and what a quasi-ring is (here a "
        "ring with two chords). (a) and (b): the transmitter pays, and gossip runs until its "
        "consensus error is ε, by the spectral gap of the graph. (c) and (d): the paper's own "
        "equations, by which both ends pay and gossip uses every link O(ln 1/ε) times; the paper "
        "gives no constant, and 1 is drawn: ⌈ln 1/ε⌉ times."
    )


def run(config: Config) -> Outcome:
    """Price every scheme.

    >>> run(Config(devices=(10, 20), worlds=(0,))).name
    'fig7'
    """
    cases = product(config.topologies, config.devices, config.worlds)
    rows = [row for case in cases for row in _priced(config, *case)]
    notes = (
        "gossip's joules are the expectation over its random pairs",
        f"gossip's clock is followed where an exchange has at most {config.gossip_clock_most} "
        "ticks",
    )
    drawn, findings = pictures(config, rows), _findings(config, rows)
    return Outcome("fig7", rows, drawn, findings, notes, setup(config))
