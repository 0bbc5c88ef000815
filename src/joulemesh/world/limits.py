"""What a scenario may ask of memory and of floating point, asked before anything is built."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulemesh.base import machine
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.world.topology import topology_of

__all__ = ["LEAST", "MOST", "require_room", "require_usable", "usable"]

# Products of a few figures within these stay finite, and none of them is lost to zero.
LEAST, MOST = 1e-100, 1e100

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


def usable(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which figures can be computed with: neither zero, infinite nor nearly so."""
    return np.asarray((values > LEAST) & (values < MOST))


def require_usable(values: NDArray[np.float64], what: str, fields: str) -> None:
    """Refuse a device's figure that cannot be computed with."""
    fine = usable(values)
    if not fine.all():
        device = int(np.argmin(fine))
        raise ScenarioError(
            f"{{device}} has {what.format('{has}')}, beyond {{least}} to {{most}}; "
            f"correct {fields}",
            device=device,
            figures={"has": values[device], "least": LEAST, "most": MOST},
        )
