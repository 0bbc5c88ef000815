"""Random connected graphs of several kinds, with the price of their links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from joulemesh.scenario import Scenario
from joulemesh.world.channel import path_gain
from joulemesh.world.links import Framing, LinkCosts, link_costs
from joulemesh.world.topology import Graph

Pairs = set[tuple[int, int]]
FloatArray = NDArray[np.float64]

LEAST, MOST = 3, 200
_SIDE_M = 30.0  # of the square that each device has to itself


@dataclass(frozen=True)
class Drawn:
    """A graph and what its links cost."""

    kind: str
    graph: Graph
    costs: LinkCosts


def _tree(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    """Every device hangs from one before it."""
    return {(int(rng.integers(k)), k) for k in range(1, count)}


def _ring(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    return {tuple(sorted((k, (k + 1) % count))) for k in range(count)}  # type: ignore[misc]


def _small_world(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    """A ring with as many chords as a quarter of its devices."""
    chords = rng.integers(count, size=(count // 4, 2)).tolist()
    return _ring(rng, count, at) | {(min(i, j), max(i, j)) for i, j in chords if i != j}


def _grid(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    """Rows of a square, of which the last may be short."""
    wide = max(2, round(count**0.5))
    right = {(k, k + 1) for k in range(count - 1) if (k + 1) % wide}
    return right | {(k, k + wide) for k in range(count - wide)}


def _complete(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    return set(combinations(range(count), 2))


def _geometric(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    """The shortest links: as many as make the graph connected, and half as many again."""
    i, j = np.triu_indices(count, 1)
    order = np.argsort(np.linalg.norm(at[i] - at[j], axis=1))
    group, used = np.arange(count), 0
    while (group != group[0]).any():
        a, b = group[i[order[used]]], group[j[order[used]]]
        group[group == b] = a
        used += 1
    kept = order[: used + used // 2]
    return set(zip(i[kept].tolist(), j[kept].tolist(), strict=True))


def _scale_free(rng: np.random.Generator, count: int, at: FloatArray) -> Pairs:
    """Each device is linked to two before it, the more likely the more links they have."""
    ends, pairs = [0, 1], {(0, 1)}
    for k in range(2, count):
        chosen = {ends[int(rng.integers(len(ends)))] for _ in range(2)}
        pairs |= {(one, k) for one in chosen}
        ends += [*chosen, *[k] * len(chosen)]
    return pairs


KINDS: dict[str, Callable[[np.random.Generator, int, FloatArray], Pairs]] = {
    "ring": _ring,
    "ring with chords": _small_world,
    "grid": _grid,
    "complete": _complete,
    "geometric": _geometric,
    "random tree": _tree,
    "scale-free": _scale_free,
}


def draw(number: int, radio: str = "ideal") -> Drawn:
    """The graph of a number: its kind by turns, all else at random from the number.

    Args:
        number: of the graph.
        radio: ``"ideal"``: 1 MHz at Shannon's rate, and messages cost their bits alone; or the name
            of a profile, with its power, rate, packets and receiving.
    """
    rng = np.random.default_rng(number)
    kind = list(KINDS)[number % len(KINDS)]
    count = round(float(np.exp(rng.uniform(np.log(LEAST), np.log(MOST)))))
    at = rng.uniform(0.0, _SIDE_M * count**0.5, (count, 2))
    edges = np.array(sorted(KINDS[kind](rng, count, at)), np.int64)
    far_m = np.maximum(np.linalg.norm(at[edges[:, 0]] - at[edges[:, 1]], axis=1), 1.0)
    fades = rng.exponential(size=len(edges))
    power = rng.uniform(0.1, 1.0, count) if number % 2 else np.full(count, 0.5)
    ring = np.arange(count) if kind in ("ring", "ring with chords", "complete") else None
    graph = Graph(count, edges, at, ring)
    if radio == "ideal":
        gain = 10 ** (-(128.1 + 37.6 * np.log10(far_m / 1000.0)) / 10) * fades
        return Drawn(kind, graph, link_costs(edges, gain, power, 1e6, 10**-20.4))
    known = Scenario(network={"profile": radio})
    network, devices = known.network, known.devices
    gain = path_gain(far_m, network) * fades
    costs = link_costs(
        edges,
        gain,
        2 * power * devices.transmit_power_w,
        network.bandwidth_hz,
        10 ** (network.noise_dbm_per_hz / 10) / 1000,
        network.max_rate_bps or np.inf,
        receive_w=np.full(count, devices.receive_power_w or 0.0),
    )
    return Drawn(kind, graph, costs.framed(edges, Framing.of(known)))
