"""LED, local exact diffusion: local steps that a correction keeps from drifting apart.

Alghunaim: "Local Exact-Diffusion for Decentralized Optimization and Learning", IEEE Transactions on
Automatic Control, 2024, arXiv:2302.00620, Algorithm 1. In every iteration, from y_i = 0 on,

    φ_i ← x_i;   τ times:  φ_i ← φ_i − η g_i(φ_i) − β y_i
    x_i ← Σ_j W_ij φ_j
    y_i ← y_i + φ_i − x_i

One vector is sent to every neighbour, as in decentralized SGD; y_i never leaves its device. With
τ = 1 and β = 1 it is exact diffusion, and what is left of devices' differences no longer depends on
how their data differ. β is 1/τ unless given otherwise, so that an iteration subtracts y_i in all.

W is (I + M)/2 with Metropolis weights M: without negative eigenvalues, with which y_i would
oscillate, on a ring of even length for ever (notes: methods-beside-the-baselines).
"""

from __future__ import annotations

__all__ = ["led"]

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from scipy import sparse

from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.aggregation.spectrum import metropolis_weights
from joulemesh.citation import Citation
from joulemesh.methods.base import Contender
from joulemesh.methods.moment import Mixings
from joulemesh.methods.parameters import AS_PLANNED, number, whole
from joulemesh.methods.registry import register
from joulemesh.methods.setting import Setting
from joulemesh.methods.stacked import flatten, mixed
from joulemesh.methods.walk import walk
from joulemesh.models.core import Params
from joulemesh.setup.from_plan import power_mixing
from joulemesh.training.jax.exchange import Context, Exchange


@lru_cache(maxsize=32)  # equal exchanges share their compiled programs
def led(strength: float) -> Exchange:
    """The exchange; its state is y.

    Args:
        strength: β τ, what of y an iteration's steps subtract in all.

    Returns:
        The exchange; the schedule's ``mixing`` is W.
    """

    def init(params: Params) -> Params:
        return jax.tree.map(jnp.zeros_like, params)

    def apply(
        params: Params, y: Params, key: jax.Array, context: Context
    ) -> tuple[Params, Params, tuple[()]]:
        del key
        flat, back = flatten(params)
        new = back(mixed(flat, context))
        y = jax.tree.map(lambda own, before, after: own + before - after, y, params, new)
        return new, y, ()

    def correction(y: Params) -> Params:
        return jax.tree.map(lambda leaf: strength * leaf, y)

    return Exchange(init, apply, correction=correction)


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    edges, devices = setting.world.graph.edges, setting.devices
    tau, own = given.get("tau", setting.rounds), led(given.get("beta", 1.0))
    if setting.world.traces.given:
        mixings = Mixings(setting.work.model_bits, lazy=True)
        walked = walk(setting, name, lambda now: mixings.act(now, now.rounds(tau)))
        return walked.contender(name, exchange=own)
    one = metropolis_route(edges, setting.work.model_bits, 1)
    both: Any = metropolis_weights(edges, devices) + sparse.eye_array(devices)
    mixing, _ = power_mixing(sparse.csr_array(both / 2), 1)
    return setting.contender(
        name,
        tau,
        setting.route_prices(tau, lambda t: one, alike=True),
        mixing=mixing,
        exchange=own,
    )


register(
    "led",
    _build,
    description="A number of local rounds with a correction for what mixing changed before, then "
    "one mixing with all neighbours: local exact diffusion.",
    citation=Citation(
        "Alghunaim",
        "Local Exact-Diffusion for Decentralized Optimization and Learning",
        2024,
        "IEEE Transactions on Automatic Control",
        arxiv="2302.00620",
        names="Alghunaim, Sulaiman A.",
        kind="article",
    ),
    parameters={
        "tau": whole(meaning="rounds per iteration", default=AS_PLANNED),
        "beta": number(
            meaning="step of the correction, times the steps of an iteration", default="1"
        ),
    },
    main="tau",
)
