"""Physics in SI units. In: a Scenario and sizes (samples per round). Out: a World: devices' costs,
the radio graph, gains over time, link costs. May not know: what is sent over the links, or why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.scenario import Scenario
from joulemesh.world.channel import Channel, build_channel
from joulemesh.world.devices import DeviceArrays, build_devices
from joulemesh.world.links import LinkCosts, link_costs
from joulemesh.world.topology import Graph, build_graph

__all__ = ["Channel", "DeviceArrays", "Graph", "LinkCosts", "World", "build_world"]


@dataclass(frozen=True)
class World:
    """Everything physical about a scenario."""

    devices: DeviceArrays
    graph: Graph
    channel: Channel
    bandwidth_hz: float
    noise_w_per_hz: float

    def costs(self, gain: NDArray[np.float64]) -> LinkCosts:
        """Price of one bit on every link at the given gains."""
        return link_costs(
            self.graph.edges,
            gain,
            self.devices.transmit_power_w,
            self.bandwidth_hz,
            self.noise_w_per_hz,
        )


def build_world(scenario: Scenario, round_samples: NDArray[np.float64]) -> World:
    """Devices, graph and channel of a scenario.

    >>> world = build_world(Scenario(), np.full(20, 32.0))
    >>> world.graph.edges.shape
    (20, 2)
    """
    graph = build_graph(scenario)
    return World(
        devices=build_devices(scenario, round_samples),
        graph=graph,
        channel=build_channel(scenario, graph),
        bandwidth_hz=scenario.network.bandwidth_hz,
        noise_w_per_hz=10 ** (scenario.network.noise_dbm_per_hz / 10) * 1e-3,
    )
