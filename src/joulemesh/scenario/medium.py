"""Which settings of the radio medium go together."""

from __future__ import annotations

from joulemesh.errors import ScenarioError
from joulemesh.scenario.sections import Devices, Network, PlanOptions

__all__ = ["check_medium"]


def check_medium(network: Network, plan: PlanOptions, devices: Devices) -> None:
    """Refuse combinations of the medium with other settings that have no meaning.

    >>> check_medium(Network(interference_m=100.0), PlanOptions(), Devices())
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: network.interference_m = 100 applies to a shared medium only; \
set network.medium = "shared", or leave network.interference_m out
    """
    shared, range_m = network.medium == "shared", network.interference_m
    if range_m is not None and not shared:
        raise ScenarioError(
            f"network.interference_m = {range_m:g} applies to a shared medium only; set "
            'network.medium = "shared", or leave network.interference_m out'
        )
    placed = devices.x_m is not None and devices.y_m is not None
    bare = next((name for name in ("gains", "links") if getattr(network, name) is not None), None)
    if range_m is not None and bare is not None and not placed:
        raise ScenarioError(
            f"network.interference_m = {range_m:g} needs the devices' places, and network.{bare} "
            "has none; give devices.x_m and devices.y_m, or leave network.interference_m out"
        )
    if range_m is not None and devices.positions is not None:
        raise ScenarioError(
            f"network.interference_m = {range_m:g} is for devices that stay where they are, and "
            "devices.positions moves them; leave one of them out"
        )
    asked = 'network.medium = "shared"' if shared else "network.broadcast = true"
    if (shared or network.broadcast) and "paper" in (plan.physics, plan.clock):
        said = "physics" if plan.physics == "paper" else "timing"
        raise ScenarioError(
            f'{asked} has no price under plan.{said} = "paper", which knows neither slots nor '
            "broadcasts; leave one of them out"
        )
    if network.broadcast and network.duplex == "half" and not shared:
        raise ScenarioError(
            'network.duplex = "half" lets a device serve one link at a time, and '
            'network.broadcast = true several; set network.medium = "shared", where a device takes '
            "part in one transmission at a time, or leave one of them out"
        )
