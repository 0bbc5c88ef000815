"""Gossip-PGA: neighbours mix in every iteration, and all devices average exactly in every H-th.

Chen, Yuan, Zhang, Pan, Xu, Yin: "Accelerating Gossip SGD with Periodic Global Averaging",
ICML 2021, arXiv:2105.09080, Algorithm 1. In iteration k = 1, 2, …, with Metropolis weights W,

    x_i ← x_i − η g_i(x_i)
    x_i ← (1/N) Σ_j x_j   if H divides k,   otherwise   x_i ← Σ_j W_ij x_j

The period is 6 unless given, as in the authors' experiments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joulemesh.base.registry import Citation
from joulemesh.methods.base import Contender, register, whole
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import Pattern, steady

_PERIOD = 6


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    rounds = steady(setting, given.get("tau", 1))
    return Pattern(setting, rounds, every=given.get("period", _PERIOD)).contender(name)


register(
    "gossip-pga",
    _build,
    description="One round, then one Metropolis mixing with all neighbours; in every H-th "
    "iteration an exact average of all devices instead: gossip SGD with periodic averaging.",
    citation=Citation(
        "Chen, Yuan, Zhang, Pan, Xu, Yin",
        "Accelerating Gossip SGD with Periodic Global Averaging",
        2021,
        "ICML",
        arxiv="2105.09080",
        names="Chen, Yiming and Yuan, Kun and Zhang, Yingya and Pan, Pan and Xu, Yinghui and "
        "Yin, Wotao",
    ),
    parameters={
        "period": whole(meaning="iterations from one exact average to the next", default="6"),
        "tau": whole(meaning="rounds per iteration", default="1"),
    },
    main="period",
)
