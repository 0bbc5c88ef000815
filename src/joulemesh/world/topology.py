"""The radio graph: what a topology is, and the graph of a scenario, checked whoever defines it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from joulemesh.base import machine
from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario import Network, Scenario
from joulemesh.tables import read_links, read_table
from joulemesh.world.quantities import resolve, stream

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Site:
    """What a topology is given to draw its links.

    Attributes:
        devices: number of devices N.
        positions_m: float64 [N, 2].
        network: the scenario's section ``network``.
        rng: a random stream of the scenario's seed, for links alone.
    """

    devices: int
    positions_m: FloatArray
    network: Network
    rng: np.random.Generator


@dataclass(frozen=True)
class Topology:
    """A way to link devices.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        links: site -> pairs of devices [E, 2] in any order and direction, as often as you like;
            together they must connect all devices.
        phrase: the graph in a sentence: "20 devices on ..."; by default from the name.
        least: fewest devices that it is defined for.
        ring: number of devices -> a ring [N] that the graph is known to contain, or None; without
            it a ring is searched for where a scheme needs one.
        layout: (number of devices, side of the square in metres) -> positions [N, 2] and their
            spacing in metres, by which they are moved a little at random; without it devices stand
            anywhere in the square.
        parameters: fields of the scenario's section ``network`` that it reads.
        link_count: (number of devices, section ``network``) -> about how many links there will be,
            asked for before any is drawn; by default as many as devices.
        by_place: do links depend on where devices stand? Then they are drawn again where these
            move (``devices.positions``).

    >>> star = Topology("star", "a hub", lambda site: [(0, i) for i in range(1, site.devices)])
    >>> star.phrase
    'the topology star'
    """

    name: str
    description: str
    links: Callable[[Site], ArrayLike]
    phrase: str = ""
    least: int = 2
    ring: Callable[[int], IntArray | None] | None = None
    layout: Callable[[int, float], tuple[FloatArray, float]] | None = None
    parameters: tuple[str, ...] = ()
    link_count: Callable[[int, Network], int] | None = None
    by_place: bool = False

    def __post_init__(self) -> None:
        if not self.phrase:
            object.__setattr__(self, "phrase", f"the topology {self.name}")


@dataclass(frozen=True, eq=False)
class Graph:
    """The radio graph.

    Attributes:
        devices: number of devices N.
        edges: int64 [E, 2], i < j, sorted, each link once.
        positions_m: float64 [N, 2].
        ring: int64 [N]: a ring that the topology is known to contain, or None.
        whole: the topology's links before ``network.without`` takes some away; None if it takes
            none. What is drawn for a link does not depend on which others are gone.
    """

    devices: int
    edges: IntArray
    positions_m: FloatArray
    ring: IntArray | None = None
    whole: IntArray | None = None

    @property
    def before(self) -> Graph:
        """The graph with the links that are gone."""
        return self if self.whole is None else Graph(self.devices, self.whole, self.positions_m)

    @property
    def kept(self) -> IntArray:
        """int64 [E]: places of the links among those of the graph `before`."""
        weights = [self.devices, 1]
        return np.searchsorted(self.before.edges @ weights, self.edges @ weights)


def components(edges: IntArray, devices: int) -> tuple[int, IntArray]:
    """Number of connected components, and the component of each device."""
    ones = np.ones(len(edges), np.int8)
    matrix = coo_array((ones, (edges[:, 0], edges[:, 1])), shape=(devices, devices))
    count, label = connected_components(matrix, directed=False)
    return int(count), np.asarray(label, np.int64)


def topology_of(network: Network) -> Topology:
    """The topology that a scenario names, or that its own links are."""
    asked = network.topology
    if not isinstance(asked, str):
        listed = np.array(asked, np.int64).reshape(-1, 2)
        name, links = f"the {len(listed)} listed links", partial(_listed, listed)
    elif asked in TOPOLOGIES:
        return TOPOLOGIES[asked]
    else:
        name, links = asked, partial(_links_in, asked)
    return Topology(name, "links of the user's own", links, phrase="a graph of their own")


def _listed(links: IntArray, site: Site) -> IntArray:
    if links.max() >= site.devices:
        i, j = links[int(np.argmax(links.max(axis=1)))]
        raise ScenarioError(
            f"network.topology: the link {i}-{j} must join two of the devices "
            f"0..{site.devices - 1}; correct it, or set devices.count to {links.max() + 1}",
            field="network.topology",
        )
    return links


def _links_in(path: str, site: Site) -> IntArray:
    return read_links(read_table(path), path, site.devices)


# What planning holds at its peak, measured on rings, complete and geometric graphs.
_DEVICE_BYTES, _LINK_BYTES = 500, 150


def require_room(scenario: Scenario) -> None:
    """Refuse more devices or links than this machine's memory holds."""
    count, network = scenario.devices.count, scenario.network
    estimate = topology_of(network).link_count
    links = count if estimate is None else int(estimate(count, network))
    need, have = count * _DEVICE_BYTES + links * _LINK_BYTES, machine.memory_bytes()
    if need > have:
        raise ScenarioError(
            f"devices.count = {count} with {links} links takes about {need / 1e9:.3g} GB to plan, "
            f"and this machine has {have / 1e9:.3g} GB; lower devices.count, or take fewer links",
            field="devices.count",
        )


def build_graph(scenario: Scenario) -> Graph:
    """The scenario's graph, connected, with the devices' positions."""
    count, network = scenario.devices.count, scenario.network
    topology = topology_of(network)
    if count < topology.least:
        raise ScenarioError(
            f"devices.count is {count}, but {topology.name!r} needs at least {topology.least} "
            "devices",
            remedies=[(Edit("network.topology", "complete"),)] if count > 1 else (),
        )
    positions = _positions(scenario, topology)
    site = Site(count, positions, network, stream(scenario.seed, "links"))
    whole = _checked_links(topology, site)
    edges = _without(whole, network, count)
    gone = len(edges) < len(whole)
    _require_connected(edges, count, topology.name, gone=gone)
    ring = None if topology.ring is None else topology.ring(count)
    if ring is not None:
        ring = _checked_ring(ring, whole, count, topology.name)
        ring = ring if _has_ring(ring, edges, count) else None
    return Graph(count, edges, positions, ring, whole if gone else None)


def links_at(scenario: Scenario, positions_m: FloatArray) -> IntArray:
    """int64 [E, 2]: the links of a scenario's topology, if its devices stand at some places."""
    site = Site(len(positions_m), positions_m, scenario.network, stream(scenario.seed, "links"))
    links = _checked_links(topology_of(scenario.network), site)
    return _without(links, scenario.network, len(positions_m))


def _without(links: IntArray, network: Network, devices: int) -> IntArray:
    """The links that ``network.without`` leaves; a pair without a link is no harm."""
    if not network.without:
        return links
    gone = np.array(network.without, np.int64)
    if gone.max() >= devices:
        i, j = gone[int(np.argmax(gone.max(axis=1)))]
        raise ScenarioError(
            f"network.without: the link {i}-{j} must join two of the devices 0..{devices - 1}; "
            "correct it",
            field="network.without",
        )
    return links[~np.isin(links @ [devices, 1], gone @ [devices, 1])]


def _checked_links(topology: Topology, site: Site) -> IntArray:
    """The topology's links, i < j, sorted, each once."""
    links = np.asarray(topology.links(site))
    if links.ndim != 2 or links.shape[1] != 2 or not len(links) or links.dtype.kind not in "iu":
        raise ScenarioError(
            f"topology {topology.name!r} gives {links.dtype} of shape {links.shape}; its links "
            "must be pairs of devices, whole numbers [E, 2], at least one"
        )
    links = np.sort(links.astype(np.int64), axis=1)
    wrong = (links[:, 0] < 0) | (links[:, 1] >= site.devices) | (links[:, 0] == links[:, 1])
    if wrong.any():
        i, j = links[int(np.argmax(wrong))]
        raise ScenarioError(
            f"topology {topology.name!r} gives the link {i}-{j}; a link must join two different "
            f"devices of 0..{site.devices - 1}"
        )
    # One number for each link sorts many times faster than a row of two; np.unique would hash.
    keys = np.sort(links[:, 0] * site.devices + links[:, 1])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return np.stack(np.divmod(keys, site.devices), axis=1)


def _require_connected(edges: IntArray, devices: int, name: str, *, gone: bool = False) -> None:
    count, label = components(edges, devices)
    if count > 1:
        outside = int(np.argmax(label != label[0]))
        raise ScenarioError(
            "network.topology: the graph of {graph} falls into {count:part} (no path from "
            "{from_device} to {device}); add a link between them"
            + (", or take one out of network.without" if gone else ""),
            device=outside,
            figures={"graph": name, "count": count, "from_device": 0},
            field="network.topology",
        )


def _checked_ring(ring: ArrayLike, edges: IntArray, devices: int, name: str) -> IntArray:
    """The ring that a topology claims to contain."""
    order = np.asarray(ring)
    if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(devices)):
        raise ScenarioError(
            f"topology {name!r} names a ring that does not visit each of the {devices} devices "
            "once; correct it, or give no ring"
        )
    order = order.astype(np.int64)
    steps, missing = _steps(order, edges, devices)
    if missing.any():
        i, j = steps[int(np.argmax(missing))]
        raise ScenarioError(
            f"topology {name!r} names a ring through {i} and {j}, which it does not link; "
            "correct it, or give no ring"
        )
    return order


def _steps(ring: IntArray, edges: IntArray, devices: int) -> tuple[IntArray, NDArray[np.bool_]]:
    """The links that a ring goes along, and which of them do not exist."""
    steps = np.sort(np.stack([ring, np.roll(ring, -1)], axis=1), axis=1)
    return steps, ~np.isin(steps @ [devices, 1], edges @ [devices, 1])


def _has_ring(ring: IntArray, edges: IntArray, devices: int) -> bool:
    return not bool(_steps(ring, edges, devices)[1].any())


def _positions(scenario: Scenario, topology: Topology) -> FloatArray:
    """Positions given, along the topology's layout, or uniform in the square."""
    count, side = scenario.devices.count, scenario.network.area_m
    given = (scenario.devices.x_m, scenario.devices.y_m)
    if given[0] is not None and given[1] is not None:
        infinite = -np.inf
        return np.stack(
            [
                resolve(scenario, "x_m", given[0], minimum=infinite),
                resolve(scenario, "y_m", given[1], minimum=infinite),
            ],
            axis=1,
        )
    if given != (None, None):
        raise ScenarioError(
            "devices.x_m and devices.y_m go together; give both or neither", field="devices.x_m"
        )
    rng = stream(scenario.seed, "positions")
    if scenario.network.placement == "uniform" or topology.layout is None:
        return rng.uniform(0.0, side, (count, 2))
    centre, spacing = topology.layout(count, side)
    if np.shape(centre) != (count, 2) or not np.isfinite(centre).all():
        raise ScenarioError(
            f"topology {topology.name!r} lays out positions of shape {np.shape(centre)}; give "
            f"finite metres of shape {(count, 2)}"
        )
    jitter = 0.3 * min(spacing, 0.3 * side)
    return np.clip(centre + rng.uniform(-jitter, jitter, (count, 2)), 0.0, side)
