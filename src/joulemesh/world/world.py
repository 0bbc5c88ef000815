"""Devices, graph and channel of a scenario, in one object; links with measured rates."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.base.units import unit_of
from joulemesh.scenario import Scenario
from joulemesh.tables import number_column, read_links, read_table
from joulemesh.world.channel import Channel, build_channel
from joulemesh.world.devices import DeviceArrays, build_devices
from joulemesh.world.links import (
    NO_MARGIN,
    Framing,
    LinkCosts,
    Packets,
    Radio,
    build_packets,
    expected_tries,
    link_costs,
    require_usable_links,
    snr_error,
    snr_gap,
)
from joulemesh.world.quantities import LEAST, LINK_FIGURES, MOST, Intervals, deviation, usable
from joulemesh.world.topology import Graph, build_graph
from joulemesh.world.traces import Motion, Traces, build_motion, build_traces

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MeasuredLinks:
    """What the links of a graph cost as measured.

    Attributes:
        costs: of one bit, in the order of the graph's links.
        loss: float64 [E, 2]: share of packets that is lost, forward and backward; None where it
            was not measured.
    """

    costs: LinkCosts
    loss: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of a file that hold for each direction of each link: int64 [E, 2]."""

    path: str
    columns: dict[str, list[str]]
    row: IntArray
    shift: float

    def column(self, name: str, *, zero: bool = False, sign: int = 1) -> FloatArray | None:
        """float64 [E, 2]: a column as it is planned with; None if the file has none."""
        if name not in self.columns or not any(self.columns[name]):
            return None
        values = number_column(self.columns, name, self.path, unit_of(name))
        wrong = (values < 0) | ((values == 0) & (not zero))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ScenarioError(
                f"{self.path}, row {row + 2}: {name} = {values[row]:g} must be "
                f"{'at least' if zero else 'above'} 0; correct it or drop the column"
            )
        planned = self.shift and name in LINK_FIGURES
        spread = deviation(self.columns, name, values, self.path) if planned else None
        if spread is not None:
            values = values + sign * self.shift * spread
            if not (values > 0).all():
                row = int(np.argmin(values))
                raise ScenarioError(
                    f"{self.path}, row {row + 2}: the interval of {name} is so wide that nothing "
                    "of it is left at plan.safety; measure it again, for longer, or lower "
                    "plan.safety"
                )
        return np.asarray(values[self.row])

    def energy(self, scenario: Scenario, column: str, field: str) -> FloatArray | None:
        """float64 [E, 2]: a column of joules per bit; None if the file has none."""
        found = self.column(column, zero=column.startswith("receive"))
        other = "receive_power_w" if field == "receive_j_per_bit" else field
        for name in (field, other):
            given = getattr(scenario.devices, name) is not None
            if found is not None and given and scenario.origin(f"devices.{name}").kind != "profile":
                raise ScenarioError(
                    f"{self.path} has a column {column!r} and devices.{name} is given; one of "
                    "them would be ignored: drop one"
                )
        return found


def measured_links(scenario: Scenario, graph: Graph, devices: DeviceArrays) -> MeasuredLinks | None:
    """The links of ``network.links`` on a graph; None if no file is given.

    A row is of one direction, i to j; where the file has none of the other, it counts for both.
    Joules per bit that the file does not have are those of the devices.
    """
    path = scenario.network.links
    if path is None:
        return None
    columns = read_table(path)
    rows = _Rows(path, columns, _rows_of(columns, path, graph), Intervals(scenario).shift)
    rate = rows.column("rate_bps", sign=-1)
    if rate is None:
        raise ScenarioError(f"{path} has no column 'rate_bps'; add it (bits per second)")
    seconds, ends = 1.0 / rate, graph.edges
    sent = rows.energy(scenario, "energy_j_per_bit", "send_j_per_bit")
    if sent is None and devices.send_j_per_bit is not None:
        sent = devices.send_j_per_bit[ends]
    elif sent is None:
        besides_w = 0.0 if devices.circuit_w is None else devices.circuit_w[ends]
        sent = (devices.transmit_power_w[ends] + besides_w) * seconds
    heard = rows.energy(scenario, "receive_j_per_bit", "receive_j_per_bit")
    if heard is None and devices.receive_j_per_bit is not None:
        heard = devices.receive_j_per_bit[ends[:, ::-1]]
    elif heard is None and devices.receive_power_w is not None:
        heard = devices.receive_power_w[ends[:, ::-1]] * seconds
    costs = LinkCosts(
        seconds[:, 0],
        seconds[:, 1],
        sent[:, 0],
        sent[:, 1],
        None if heard is None else heard[:, 0],
        None if heard is None else heard[:, 1],
    )
    require_usable_links(ends, costs, lambda link: f"in {path}; correct its row")
    return MeasuredLinks(costs, rows.column("loss", zero=True))


def _rows_of(columns: dict[str, list[str]], path: str, graph: Graph) -> IntArray:
    """int64 [E, 2]: the row of each direction of each link."""
    ends = read_links(columns, path, graph.devices)
    key = ends[:, 0] * graph.devices + ends[:, 1]
    order = np.argsort(key, kind="stable")
    again = np.flatnonzero(np.diff(key[order]) == 0)
    if len(again):
        i, j = ends[order[again[0]]]
        first, second = order[again[0]] + 2, order[again[0] + 1] + 2
        raise ScenarioError(f"{path} has two rows from {i} to {j} ({first} and {second}); keep one")

    def find(start: IntArray, stop: IntArray) -> IntArray:
        wanted = start * graph.devices + stop
        row = np.minimum(np.searchsorted(key[order], wanted), len(key) - 1)
        return np.where(key[order][row] == wanted, order[row], -1)

    forward = find(graph.edges[:, 0], graph.edges[:, 1])
    backward = find(graph.edges[:, 1], graph.edges[:, 0])
    missing = (forward < 0) & (backward < 0)
    if missing.any():
        i, j = graph.edges[int(np.argmax(missing))]
        raise ScenarioError(
            f"{path} has no row for the link {i}-{j} of the topology; add it (joulemesh calibrate "
            "links measures it), or leave network.topology out, and the file is the topology"
        )
    forward, backward = (
        np.where(forward < 0, backward, forward),
        np.where(backward < 0, forward, backward),
    )
    return np.stack([forward, backward], axis=1)


@dataclass(frozen=True)
class World:
    """Everything physical about a scenario."""

    devices: DeviceArrays
    graph: Graph
    channel: Channel
    bandwidth_hz: float
    noise_w_per_hz: float
    max_rate_bps: float = np.inf
    packets: Packets | None = None
    framing: Framing | None = None
    measured: MeasuredLinks | None = None
    traces: Traces = field(default_factory=Traces)
    motion: Motion | None = None

    @property
    def changes(self) -> bool:
        """Does anything change over time, so that iterations are planned one after another?"""
        return self.channel.fading or self.traces.any

    def costs(self, gain: FloatArray, links: NDArray[np.int64] | None = None) -> LinkCosts:
        """Price of one bit on every link, or on some of them, at their gains.

        Where packets are lost, of all the transmissions that one bit is expected to take.
        """
        edges = self.graph.edges if links is None else self.graph.edges[links]
        once = self._costs_of_once(gain, links).framed(edges, self.framing)
        if self.packets is None:
            return replace(once, radio=self._radio(gain, links))
        lost, tries = self._errors(once, gain, links), self.packets.tries
        often = expected_tries(lost, tries)
        made = once.scaled(often[:, 0], often[:, 1]).expected(lost[:, 0], lost[:, 1], tries)
        return replace(made, radio=self._radio(gain, links))

    def _radio(self, gain: FloatArray, links: NDArray[np.int64] | None) -> Radio | None:
        """What senders may choose at these gains; None where the power is as it is."""
        devices = self.devices
        if devices.lowest_w is None or self.measured is not None:
            return None
        edges = self.graph.edges if links is None else self.graph.edges[links]
        both = gain if gain.ndim == 2 else np.broadcast_to(gain[:, None], edges.shape)
        lowest_w, highest_w = devices.lowest_w[edges], devices.transmit_power_w[edges]
        header_bits = 0.0
        if self.framing is not None:
            header_bits = self.framing.header_bits
        noise_w = self.bandwidth_hz * self.noise_w_per_hz / both
        if self.packets is not None and self.packets.error is None:
            snr = highest_w / noise_w
            rate_bps = np.minimum(self.bandwidth_hz * np.log2(1.0 + snr), self.max_rate_bps)
            size = self.packets.bits + header_bits
            gap = snr_gap(snr, rate_bps, self.bandwidth_hz, size)
            noise_w = noise_w * gap
            lowest_w = np.where(gap < NO_MARGIN, highest_w, lowest_w)
        circuit_w = np.zeros_like(highest_w)
        return Radio(
            noise_w,
            lowest_w,
            highest_w,
            circuit_w if devices.circuit_w is None else devices.circuit_w[edges],
            self.bandwidth_hz,
            self.max_rate_bps,
            edges,
            devices.levels_w,
            devices.receive_power_w is not None,
            header_bits,
        )

    def errors(self, gain: FloatArray) -> FloatArray:
        """float64 [E, 2]: probability that a packet is lost, forward and backward."""
        if self.packets is None:
            return np.zeros((len(self.graph.edges), 2))
        return self._errors(self._costs_of_once(gain, None), gain, None)

    def _errors(
        self, once: LinkCosts, gain: FloatArray, links: NDArray[np.int64] | None
    ) -> FloatArray:
        assert self.packets is not None
        if self.packets.error is not None:
            return self.packets.errors(links, len(once.forward_s))
        edges = self.graph.edges if links is None else self.graph.edges[links]
        both = gain if gain.ndim == 2 else gain[:, None]
        noise_w = self.bandwidth_hz * self.noise_w_per_hz
        snr = self.devices.transmit_power_w[edges] * both / noise_w
        rate_bps = 1.0 / np.stack([once.forward_s, once.backward_s], axis=1)
        header_bits = 0.0 if self.framing is None else self.framing.header_bits
        return snr_error(snr, rate_bps, self.bandwidth_hz, self.packets.bits + header_bits)

    def _costs_of_once(self, gain: FloatArray, links: NDArray[np.int64] | None) -> LinkCosts:
        """Price of sending one bit once."""
        if self.measured is not None:
            known = self.measured.costs
            return known if links is None else known.take(links)
        return link_costs(
            self.graph.edges if links is None else self.graph.edges[links],
            gain,
            self.devices.transmit_power_w,
            self.bandwidth_hz,
            self.noise_w_per_hz,
            self.max_rate_bps,
            send_j=self.devices.send_j_per_bit,
            receive_j=self.devices.receive_j_per_bit,
            receive_w=self.devices.receive_power_w,
            circuit_w=self.devices.circuit_w,
        )


def build_world(scenario: Scenario, round_samples: FloatArray) -> World:
    """Devices, graph and channel of a scenario."""
    graph = build_graph(scenario)
    for name in ("deadline_s", "total_s"):
        seconds = getattr(scenario.budget, name)
        if seconds is not None and not usable(np.array(seconds)):
            raise ScenarioError(f"budget.{name} = {seconds:g} is beyond {LEAST:g} to {MOST:g} s")
    devices = build_devices(scenario, round_samples)
    measured = measured_links(scenario, graph, devices)
    measured_heard = measured is not None and measured.costs.forward_receive_j is not None
    priced = "receive_power_w" if devices.receive_power_w is not None else "receive_j_per_bit"
    heard = measured_heard or (
        devices.receive_j_per_bit is not None or devices.receive_power_w is not None
    )
    if heard and scenario.plan.pays == "both-ends":
        profiled = scenario.origin(f"devices.{priced}").kind == "profile"
        nothing = 0.0 if profiled else None  # a profile's figure is not left out, but overruled
        raise ScenarioError(
            f"{priced} gives receiving its own price, and both ends pay the sender's "
            '(plan.physics = "paper" or plan.accounting = "both-ends")',
            remedies=[
                (Edit("plan.accounting", "transmitter"),),
                *([] if measured_heard else [(Edit(f"devices.{priced}", nothing),)]),
            ],
        )
    traces, motion = build_traces(scenario, devices.energy_budget_j, graph.positions_m), None
    if traces.positions is not None:
        motion, graph = build_motion(scenario, graph, traces.positions)
    return World(
        devices=devices,
        graph=graph,
        channel=build_channel(scenario, graph, motion),
        bandwidth_hz=scenario.network.bandwidth_hz,
        noise_w_per_hz=_noise_w_per_hz(scenario.network.noise_dbm_per_hz),
        max_rate_bps=scenario.network.max_rate_bps or np.inf,
        packets=build_packets(scenario, None if measured is None else measured.loss),
        framing=Framing.of(scenario, devices.message_j),
        measured=measured,
        traces=traces,
        motion=motion,
    )


def _noise_w_per_hz(noise_dbm_per_hz: float) -> float:
    if abs(noise_dbm_per_hz) > 900:  # 10 to the power of 90
        raise ScenarioError(
            f"network.noise_dbm_per_hz = {noise_dbm_per_hz:g} is not a noise density: it must lie "
            "within ±900, and thermal noise is -174",
            field="network.noise_dbm_per_hz",
        )
    return float(10 ** (noise_dbm_per_hz / 10) * 1e-3)
