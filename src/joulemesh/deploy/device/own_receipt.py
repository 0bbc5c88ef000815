"""What a device has spent and taken, for whoever stands before it: its part of the receipt."""

from __future__ import annotations

__all__ = ["CSV", "JSON", "write_receipt"]

from pathlib import Path

import numpy as np

from joulemesh.base.files import write_text
from joulemesh.deploy.fleet.pack import DevicePack
from joulemesh.deploy.record.costs import planned, planned_again
from joulemesh.deploy.record.history import read_history, views_of
from joulemesh.deploy.record.receipt import Receipt
from joulemesh.planning.plan import Plan

JSON, CSV = "receipt.json", "receipt.csv"


def write_receipt(pack: DevicePack, plan: Plan, run: Path) -> Receipt:
    """Write ``receipt.json`` and ``receipt.csv`` of one device, in the format of the fleet's.

    Args:
        pack: the device's folder.
        plan: the fleet's.
        run: where its journal is; the files are written beside it.

    Returns:
        What was written.

    Raises:
        ScenarioError: the journal cannot be read, or the disk cannot be written.
    """
    device = pack.device
    history = read_history(run, device, pack.name)
    before = planned(plan)
    after, _ = planned_again(plan, before, views_of([history]), pack.fleet.settings.reserve)
    receipt = Receipt(
        [history],
        before.only(device),
        after.only(device),
        fleet=pack.fleet.id,
        plan=pack.fleet.digest,
        battery_j=np.array([pack.orders.battery_j]),
        deadline_s=pack.orders.deadline_s,
        reserve=pack.fleet.settings.reserve,
    )
    write_text(run / JSON, receipt.to_json())
    write_text(run / CSV, receipt.to_csv())
    return receipt
