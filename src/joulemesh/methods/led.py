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

Where packets are lost, a pair of neighbours mixes only if the messages of both arrive, which both
know by the acknowledgements. So W stays symmetric and the y_i sum to 0: if only one of the two
moved, their sum would drift, and all devices would agree on a point that is not the optimum.
y_i gathers differences in iterations in which a device mixes, and is subtracted in all: β τ is then
the least probability that a pair mixes, unless given otherwise. With 1, parameters grow without
bound where only a quarter of the pairs mix on a ring.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from joulemesh.aggregation.gossip import metropolis_route, metropolis_weights
from joulemesh.base.registry import Citation
from joulemesh.methods.base import (
    AS_PLANNED,
    Contender,
    FloatArray,
    IntArray,
    number,
    register,
    whole,
)
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import Mixings, chances, drawn, walk
from joulemesh.training.arrays import Tree, flatten, namespace, tree_map
from joulemesh.training.exchange import Context, Exchange
from joulemesh.training.from_plan import power_mixing, require_room


@lru_cache(maxsize=32)  # equal exchanges share their compiled programs
def led(strength: float) -> Exchange:
    """The exchange; its state is y."""

    def init(params: Tree) -> Tree:
        return tree_map(lambda leaf: namespace(leaf).zeros_like(leaf), params)

    def apply(params: Tree, y: Tree, key: Any, context: Context) -> tuple[Tree, Tree, tuple[()]]:
        del key
        flat, back = flatten(params)
        new = back(context.mix(flat))
        y = tree_map(lambda own, before, after: own + before - after, y, params, new)
        return new, y, ()

    def correction(y: Tree) -> Tree:
        return tree_map(lambda leaf: strength * leaf, y)

    return Exchange(init, apply, correction=correction)


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    edges, devices = setting.world.graph.edges, setting.devices
    mix = chances(setting, setting.work.model_bits).prod(axis=1)
    tau, own = given.get("tau", setting.rounds), led(given.get("beta", float(mix.min())))
    if setting.world.traces.given:
        mixings = Mixings(setting.work.model_bits, lazy=True)
        walked = walk(setting, name, lambda now: mixings.act(now, now.rounds(tau)))
        return walked.contender(name, exchange=own)
    one = metropolis_route(edges, setting.work.model_bits, 1)
    both: Any = metropolis_weights(edges, devices) + sparse.eye_array(devices)
    weights = sparse.csr_array(both / 2)
    mixing, _ = power_mixing(weights, 1)
    made = setting.contender(
        name,
        tau,
        setting.route_prices(tau, lambda t: one, alike=True),
        mixing=mixing,
        exchange=own,
    )
    if setting.world.packets is None:
        return made
    made, found = drawn(setting, made, lambda t: one)
    if not found.lost_messages.any():
        return made
    require_room(setting.scenario.training.chunk_iterations, devices)
    entire, pairs = weights.toarray(), edges[one.edge]
    lossy = replace(made.schedule, mixing=lambda t: without(entire, pairs[found.lost[t]]))
    return replace(made, schedule=lossy)


def without(weights: FloatArray, pairs: IntArray) -> FloatArray:
    """W without some pairs of devices: what they would give each other, each keeps to itself."""
    left = weights.copy()
    first, second = np.unique(pairs, axis=0).T
    share = weights[first, second]
    left[first, second] = left[second, first] = 0.0
    np.add.at(left, (first, first), share)
    np.add.at(left, (second, second), share)
    return left


register(
    "led",
    _build,
    description="A number of local rounds with a correction for what mixing changed before, then "
    "one mixing of all pairs of neighbours whose messages both arrive: local exact diffusion.",
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
            meaning="step of the correction, times the steps of an iteration",
            default="1; where packets are lost, the probability that a pair mixes",
        ),
    },
    main="tau",
)
