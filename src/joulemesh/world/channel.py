"""Channel gains: path loss and shadowing, or gains from a file; and how they fade."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.fading import Fading, Links, find
from joulemesh.scenario import Network, Scenario
from joulemesh.tables import number_column, read_links, read_table
from joulemesh.world.quantities import stream
from joulemesh.world.topology import Graph
from joulemesh.world.traces import Motion, Snapshot

FloatArray = NDArray[np.float64]


def path_gain(distance_m: FloatArray, network: Network) -> FloatArray:
    """Power gain of a path without shadowing or fading; below 1 m the loss is that at 1 m."""
    distance_m = np.maximum(distance_m, 1.0)
    if network.path_loss == "3gpp-macro":
        loss_db = 128.1 + 37.6 * np.log10(distance_m / 1000.0)
    else:
        loss_db = network.path_loss_reference_db + 10 * network.path_loss_exponent * np.log10(
            distance_m
        )
    return np.power(10.0, -loss_db / 10.0)


@dataclass(frozen=True, eq=False)
class Channel:
    """Gains of all links over time.

    Gains are float64 [E], or [E, 2] where the two directions of a link differ.

    Attributes:
        mean_gain: float64 [E]: gain without fading.
        fades: how the gains vary around it; None if they do not.
        coherence: iterations over which a fade lasts.
        known: does the planner see the gains of an iteration when it decides?
        moving: how gains follow the devices' places; None if these do not change.
    """

    mean_gain: FloatArray
    fades: Fading | None = None
    coherence: int = 1
    known: bool = True
    moving: Moving | None = None

    @property
    def fading(self) -> bool:
        """Do the gains change over time?"""
        return self.fades is not None

    def block(self, iteration: int) -> int:
        """Index of the coherence block of an iteration (counted from 0)."""
        return iteration // self.coherence if self.fading else 0

    def gain(self, iteration: int, snapshot: Snapshot | None = None) -> FloatArray:
        """The realised gains in an iteration (counted from 0), with devices as they stand."""
        if self.fades is None:
            return self._at(None, snapshot)
        return self._at(self.fades.gain(self.block(iteration)), snapshot)

    def quantile_gain(
        self, quantile: float, iteration: int = 0, snapshot: Snapshot | None = None
    ) -> FloatArray:
        """The gains whose link energy is exceeded with probability 1 − quantile.

        Link energy falls with the gain. This is all that is known of the future when an iteration
        (counted from 0) is planned: devices are expected to stay where they are.
        """
        if self.fades is None:
            return self._at(None, snapshot)
        return self._at(self.fades.forecast(quantile, self._seen(iteration)), snapshot)

    def _at(self, faded: FloatArray | None, snapshot: Snapshot | None) -> FloatArray:
        """The gains of devices as they stand, where fades are relative to them."""
        if self.moving is None:
            return self.mean_gain if faded is None else faded
        return self.moving.gain(snapshot, faded)

    def edition(self, iteration: int) -> int:
        """A number that changes when `quantile_gain` does."""
        return 0 if self.fades is None else self.fades.edition(self._seen(iteration))

    def _seen(self, iteration: int) -> int:
        """Number of blocks that the planner has seen when it plans an iteration."""
        return self.block(iteration) + self.known


@dataclass(frozen=True, eq=False)
class Moving:
    """Gains of links between devices that move.

    Attributes:
        motion: where devices are.
        network: the scenario's section ``network``.
        shadow: float64 [E]: what shadowing multiplies the gains by, wherever devices are.
        drawn: int64 [E]: which of the drawn fades is each link's; None if there is one for each.
    """

    motion: Motion
    network: Network
    shadow: FloatArray
    drawn: NDArray[np.int64] | None = None

    def gain(self, snapshot: Snapshot | None, faded: FloatArray | None = None) -> FloatArray:
        """float64 [E]: gains in a snapshot (by default the first), times fades relative to them."""
        distance_m = self.motion.distance_m(self.motion.first if snapshot is None else snapshot)
        with np.errstate(all="ignore"):  # what is too strong or too weak, link costs refuse
            gain = path_gain(distance_m, self.network) * self.shadow
        if faded is None:
            return np.asarray(gain)
        own = faded if self.drawn is None else faded[self.drawn]
        return np.asarray((gain if own.ndim == 1 else gain[:, None]) * own)


_MOST_DRAWN = 2_000  # devices whose pairs all have a fade of their own


def _moving_channel(scenario: Scenario, motion: Motion) -> Channel:
    """The channel of devices that move.

    Where links change, every pair of devices has a draw of its own, so that what is drawn for a
    link does not depend on which others will exist.
    """
    network, count = scenario.network, scenario.devices.count
    model, argument = find(network.fading)
    pairs, drawn = motion.edges, None
    if motion.rewires and (network.fading != "none" or network.shadowing_db):
        if count > _MOST_DRAWN:
            raise ScenarioError(
                f"{count} devices that move, with links that change and fade, are more than "
                f"{_MOST_DRAWN}",
                remedies=[(Edit("network.fading", "none"), Edit("network.shadowing_db", 0.0))],
            )
        pairs = np.stack(np.triu_indices(count, 1), axis=1)
        drawn = np.searchsorted(pairs @ [count, 1], motion.edges @ [count, 1])
    shadow = np.ones(len(pairs))
    if network.shadowing_db:
        rng = stream(scenario.seed, "shadowing")
        shadow = np.power(10.0, rng.normal(0, network.shadowing_db, len(pairs)) / 10.0)
    moving = Moving(motion, network, shadow if drawn is None else shadow[drawn], drawn)
    fades = model.make(
        Links(pairs, count, np.ones(len(pairs)), partial(stream, scenario.seed, "fading")),
        {name: getattr(network, name) for name in model.parameters},
        argument,
    )
    first = moving.gain(None)
    return Channel(first, fades, network.coherence_iterations, network.channel_known, moving)


def build_channel(scenario: Scenario, graph: Graph, motion: Motion | None = None) -> Channel:
    """The scenario's channel on its graph."""
    network = scenario.network
    if network.links is not None:
        return Channel(np.ones(len(graph.edges)))  # rates are measured: no gain is asked
    if motion is not None:
        return _moving_channel(scenario, motion)
    if graph.whole is not None:
        return _kept(build_channel(scenario, graph.before), graph.kept)
    if isinstance(network.gains, str):
        gain = _gains_from_file(network.gains, graph)
    elif network.gains is not None:
        links = np.sort(np.array(network.topology, np.int64).reshape(-1, 2), axis=1)
        gain = _matched("network.gains", links, np.array(network.gains, np.float64), graph)
    else:
        gain = _gains_by_distance(scenario, graph)
    model, argument = find(network.fading)
    fades = model.make(
        Links(graph.edges, graph.devices, gain, partial(stream, scenario.seed, "fading")),
        {name: getattr(network, name) for name in model.parameters},
        argument,
    )
    return Channel(gain, fades, network.coherence_iterations, network.channel_known)


@dataclass(frozen=True, eq=False)
class _Kept:
    """The fading of some links.

    Attributes:
        whole: of all.
        links: int64 [E]: which of them.
    """

    whole: Fading
    links: NDArray[np.int64]

    def gain(self, block: int) -> FloatArray:
        """The realised gains in a block."""
        return np.asarray(self.whole.gain(block)[self.links])

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The gains whose link energy is exceeded with probability 1 − quantile."""
        return np.asarray(self.whole.forecast(quantile, seen)[self.links])

    def edition(self, seen: int) -> int:
        """A number that changes when the forecast does."""
        return self.whole.edition(seen)

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """What was read from files."""
        return self.whole.data


def _kept(channel: Channel, links: NDArray[np.int64]) -> Channel:
    """A channel with some of its links only, each as it was."""
    fades = None if channel.fades is None else _Kept(channel.fades, links)
    return replace(channel, mean_gain=channel.mean_gain[links], fades=fades)


def _gains_by_distance(scenario: Scenario, graph: Graph) -> FloatArray:
    """Path loss and shadowing; what is too strong or weak to compute with, link costs refuse."""
    network, ends = scenario.network, graph.positions_m[graph.edges]
    with np.errstate(all="ignore"):
        gain = path_gain(np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1), network)
        if network.shadowing_db:
            shadow_db = stream(scenario.seed, "shadowing").normal(
                0, network.shadowing_db, len(gain)
            )
            gain = gain * np.power(10.0, shadow_db / 10.0)
    return gain


def _gains_from_file(path: str, graph: Graph) -> FloatArray:
    """Gains from a CSV file with the columns i, j and gain, one row for every link."""
    columns = read_table(path)
    ends = np.sort(read_links(columns, path, graph.devices), axis=1)
    values = number_column(columns, "gain", path)
    if not (values > 0).all():
        row = int(np.argmin(values > 0))
        raise ScenarioError(f"{path}, row {row + 2}: gain {values[row]:g} must be greater than 0")
    return _matched(path, ends, values, graph)


def _matched(path: str, ends: NDArray[np.int64], values: FloatArray, graph: Graph) -> FloatArray:
    """The gains in the order of the graph's links; each link has one."""
    key = ends[:, 0] * graph.devices + ends[:, 1]
    wanted = graph.edges[:, 0] * graph.devices + graph.edges[:, 1]
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero((np.diff(key[order]) == 0) & (np.diff(values[order]) != 0))
    if len(again):
        i, j = ends[order[again[0]]]
        raise ScenarioError(
            f"{path} has two gains for the link {i}-{j} ({values[order[again[0]]]:g} and "
            f"{values[order[again[0] + 1]]:g}); keep one row"
        )
    position = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
    missing = key[order][position] != wanted
    if missing.any():
        i, j = graph.edges[int(np.argmax(missing))]
        raise ScenarioError(
            f"{path} has no gain for the link {i}-{j} of the topology; add the row {i},{j},GAIN"
        )
    return np.asarray(values[order][position])
