"""Where the joules of a deployment went."""

from __future__ import annotations

__all__ = ["flow"]

from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh.views.plan.supply import flow_data, metered_flow

if TYPE_CHECKING:
    from joulemesh.views.deployment.page import DeploymentView


def flow(view: DeploymentView) -> dict[str, Any]:
    """Where the joules went, by the meters of the devices whose journals there are.

    Before any device has told what it spent: where the plan has them go.
    """
    receipt = view.receipt
    there = np.isfinite(receipt.spent_j)
    if not there.any():
        return {"title": "Where the planned joules go", **flow_data(view.plan, receipt.names)}
    uses = {
        "train": np.nansum(receipt.metered.train_j, axis=0),
        "exchange": np.nansum(receipt.metered.exchange_j, axis=0),
        "outside": np.maximum(receipt.outside_j, 0.0),
        "left": np.maximum(receipt.battery_j - receipt.spent_j, 0.0),
    }
    title = f"Where the joules went ({receipt.word})"
    return {"title": title, **metered_flow(uses, receipt.names, np.flatnonzero(there))}
