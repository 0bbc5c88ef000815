"""A single global merge: decentralized parallel SGD, and one exact average at the very end.

Zhu, Zhang, Wang, Zhou, Wang: "On the Surprising Effectiveness of a Single Global Merging in
Decentralized Learning", ICLR 2026, arXiv:2507.06542. In every iteration, with Metropolis weights W,

    x_i ← x_i − η g_i(x_i)
    x_i ← Σ_j W_ij x_j,   in the last one   x_i ← (1/N) Σ_j x_j

The last exchange is reserved from the start: a method that runs until a battery or the time is used
up runs as many iterations as leave enough for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joulemesh.base.registry import Citation
from joulemesh.methods.base import Contender, register, whole
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import Pattern, steady


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    return Pattern(setting, steady(setting, given.get("tau", 1)), final=True).contender(name)


register(
    "merge",
    _build,
    description="One round, then one Metropolis mixing with all neighbours; in the last iteration "
    "an exact average of all devices, reserved from the start.",
    citation=Citation(
        "Zhu, Zhang, Wang, Zhou, Wang",
        "On the Surprising Effectiveness of a Single Global Merging in Decentralized Learning",
        2026,
        "ICLR",
        arxiv="2507.06542",
        names="Zhu, Tongtian and Zhang, Tianyu and Wang, Mingze and Zhou, Zhanpeng and Wang, Can",
    ),
    parameters={"tau": whole(meaning="rounds per iteration", default="1")},
    main="tau",
)
