"""Decentralized parallel SGD: one step, one Metropolis mixing.

Lian, Zhang, Zhang, Hsieh, Zhang, Liu: "Can Decentralized Algorithms Outperform Centralized
Algorithms? A Case Study for Decentralized Parallel Stochastic Gradient Descent", NeurIPS 2017,
arXiv:1705.09056. It is balanced DFL with τ1 = τ2 = 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joulemesh.base.registry import Citation
from joulemesh.methods.balanced import mixing_contender
from joulemesh.methods.base import Contender, register
from joulemesh.methods.setting import Setting


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    del given
    return mixing_contender(name, setting, tau1=1, tau2=1)


register(
    "d-psgd",
    _build,
    description="One round, then one Metropolis mixing with all neighbours: decentralized "
    "parallel SGD.",
    citation=Citation(
        "Lian, Zhang, Zhang, Hsieh, Zhang, Liu",
        "Can Decentralized Algorithms Outperform Centralized Algorithms? A Case Study for "
        "Decentralized Parallel Stochastic Gradient Descent",
        2017,
        "NeurIPS",
        arxiv="1705.09056",
        names="Lian, Xiangru and Zhang, Ce and Zhang, Huan and Hsieh, Cho-Jui and Zhang, Wei and "
        "Liu, Ji",
    ),
)
