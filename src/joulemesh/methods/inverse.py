"""The adaptive rounds in reverse order: the paper's "inverse" variant (Fig. 8).

Yan, Li: "Adaptive Decentralized Federated Learning in Energy and Latency Constrained Wireless
Networks", arXiv:2403.20075. τ[t] of the plan becomes τ[n + 1 − t], within each iteration's cap.
"""

from __future__ import annotations

__all__: list[str] = []

from collections.abc import Mapping
from typing import Any

from joulemesh.methods.adaptive import PAPER, contender_of, paper_plan
from joulemesh.methods.base import Contender
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Setting


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    del given
    plan = paper_plan(setting, "inverse")
    return contender_of(name, setting, plan)


register(
    "inverse",
    _build,
    description="The adaptive plan's rounds in reverse order, within each iteration's cap.",
    citation=PAPER,
)
