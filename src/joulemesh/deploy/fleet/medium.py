"""What a plan's radio medium means to devices that talk over IP."""

from __future__ import annotations

from joulemesh.scenario import Scenario

__all__ = ["medium_notes"]


def medium_notes(scenario: Scenario) -> tuple[str, ...]:
    """What the operator should know, one line each; nothing on orthogonal links.

    >>> medium_notes(Scenario())
    ()
    >>> len(medium_notes(Scenario(network={"medium": "shared", "broadcast": True})))
    2
    """
    found = []
    if scenario.network.medium == "shared":
        found.append(
            'network.medium = "shared": devices do not keep to slots; the radio itself decides who '
            "is on the air, and the plan's seconds of an exchange are what good slots would take"
        )
    if scenario.network.broadcast:
        found.append(
            "network.broadcast = true: the bytes go to each neighbour by unicast; modelled joules "
            "are those of the plan, one broadcast for all of them, and a meter of the machine "
            "counts what the unicasts really take"
        )
    return tuple(found)
