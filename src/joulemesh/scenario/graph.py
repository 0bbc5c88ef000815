"""A networkx graph as fields of a scenario; networkx itself is not needed for it."""

from __future__ import annotations

from typing import Any

from joulemesh.errors import ScenarioError

__all__ = ["graph_fields"]


def graph_fields(graph: Any) -> dict[str, Any]:
    """What a graph says of devices and links, as changes to a scenario.

    Args:
        graph: an undirected ``networkx.Graph``.

    Returns:
        ``devices.count``, ``network.topology``, and positions and gains where the graph has them.

    Raises:
        ScenarioError: not such a graph, or only some nodes or edges have an attribute.
    """
    try:
        odd = graph.is_directed() or graph.is_multigraph()
        nodes, edges = list(graph.nodes(data=True)), list(graph.edges(data=True))
    except (AttributeError, TypeError):
        raise ScenarioError(
            f"a {type(graph).__name__} is not a graph; give a networkx.Graph"
        ) from None
    if odd:
        raise ScenarioError(
            f"the graph is a {type(graph).__name__}; links work both ways and are single: "
            "give networkx.Graph(graph)"
        )
    if not edges:
        raise ScenarioError("the graph has no edges; add the links")
    number = {node: k for k, (node, _) in enumerate(nodes)}
    links = [[number[a], number[b]] for a, b, _ in edges]
    own = next((link for link in links if link[0] == link[1]), None)
    if own is not None:
        raise ScenarioError(f"the graph joins device {own[0]} to itself; remove its self-loops")
    fields: dict[str, Any] = {
        "devices.count": len(nodes),
        "network.topology": links,
        "network.gains": _all_or_none([data.get("gain") for _, _, data in edges], "gain", "edges"),
    }
    spots = [_position(data) for _, data in nodes]
    whole = _all_or_none(spots, "pos", "nodes")
    for axis, field in enumerate(("devices.x_m", "devices.y_m")):
        values = None if whole is None else {"values": [spot[axis] for spot in whole]}
        fields[field] = values
    return fields


def _position(data: dict[str, Any]) -> tuple[float, float] | None:
    spot = data.get("pos", (data.get("x_m"), data.get("y_m")))
    if spot is None or any(part is None for part in spot):
        return None
    if len(spot) != 2:
        raise ScenarioError(f"a node's pos has {len(spot)} coordinates; give x and y in metres")
    return float(spot[0]), float(spot[1])


def _all_or_none(values: list[Any], name: str, kind: str) -> list[Any] | None:
    missing = sum(value is None for value in values)
    if 0 < missing < len(values):
        raise ScenarioError(
            f"{missing} of {len(values)} {kind} of the graph have no {name!r}; "
            "give it to all of them, or to none"
        )
    return None if missing else values
