"""Devices, graph and channel of a scenario, in one object."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import Edit, ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.channel import Channel, build_channel
from joulemesh.world.devices import DeviceArrays, build_devices
from joulemesh.world.limits import LEAST, MOST, usable
from joulemesh.world.links import Framing, LinkCosts, link_costs
from joulemesh.world.loss import Packets, build_packets, expected_tries, snr_error
from joulemesh.world.measured import MeasuredLinks, measured_links
from joulemesh.world.motion import Motion, build_motion
from joulemesh.world.topology import Graph, build_graph
from joulemesh.world.traces import Traces, build_traces

__all__ = ["World", "build_world"]

FloatArray = NDArray[np.float64]


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
            return once
        lost, tries = self._errors(once, gain, links), self.packets.tries
        often = expected_tries(lost, tries)
        return once.scaled(often[:, 0], often[:, 1]).expected(lost[:, 0], lost[:, 1], tries)

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
