"""Physics in SI units. In: a Scenario and sizes (samples per round). Out: a World: devices' costs,
the radio graph, gains over time, link costs.
May not know: what is learned, or sent over the links (``data``, ``models``, ``aggregation``).
"""

from __future__ import annotations

from joulemesh.world.channel import Channel
from joulemesh.world.devices import DeviceArrays
from joulemesh.world.links import LinkCosts
from joulemesh.world.topology import Graph, Site, Topology
from joulemesh.world.world import World, build_world

__all__ = [
    "Channel",
    "DeviceArrays",
    "Graph",
    "LinkCosts",
    "Site",
    "Topology",
    "World",
    "build_world",
]
