"""How far a fleet on this machine ended from its simulated run."""

from __future__ import annotations

__all__ = ["largest_difference", "states_of"]

from pathlib import Path

import numpy as np

from joulemesh.base.bounded import NODE_STATE, read_bounded
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.device import RUN
from joulemesh.deploy.device.store import Owner, Store
from joulemesh.deploy.effects import Durable
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES


def states_of(folder: Path, fleet: Fleet) -> list[Durable]:
    """What all devices of a fleet have on this machine's disk.

    Args:
        folder: of the fleet.
        fleet: what it holds.

    Raises:
        ScenarioError: a device has none, or it is damaged.
    """
    found = []
    for device, name in enumerate(fleet.names):
        run = folder / DEVICES / name / RUN
        state = Store(run, Owner(fleet.id, fleet.digest, device)).load()
        if state is None:
            raise ScenarioError(f"{run} holds no state; start {name} first")
        found.append(state)
    return found


def largest_difference(folder: Path, fleet: Fleet, model: Path) -> float | None:
    """The largest difference of the devices' mean parameters from a simulated run's.

    Args:
        folder: of the fleet.
        fleet: what it holds.
        model: ``model.safetensors`` of the simulated run: the mean of its devices.

    Returns:
        The difference; None if devices joined or left meanwhile, or have not all finished: then
        there is no such run.

    Raises:
        ScenarioError: a file cannot be read.
    """
    from safetensors.numpy import load

    states = states_of(folder, fleet)
    if len({state.commit.iteration for state in states}) > 1 or any(
        state.views[-1].number for state in states
    ):
        return None
    arrays = load(read_bounded(model, NODE_STATE.now))
    wanted = np.concatenate([arrays[name].ravel() for name in sorted(arrays)])
    found = np.mean([state.commit.vector for state in states], axis=0, dtype=np.float64)
    return float(np.abs(found - wanted).max()) if found.shape == wanted.shape else None
