"""Balanced decentralized federated learning: τ1 local steps, then τ2 mixings.

Liu, Chen, Zhang: "Decentralized Federated Learning: Balancing Communication and Computing Costs",
IEEE T-SIPN 8:131-143, 2022, arXiv:2107.12048. In every iteration, with Metropolis weights C,

    τ1 times:  x_i ← x_i − η g_i(x_i)
    τ2 times:  x_i ← Σ_j C_ij x_j

``balanced`` alone chooses (τ1, τ2): those that minimise the bound below over all pairs that the
budget allows, when ``[bounds]`` has numbers; else τ1 is the adaptive plan's mean and τ2 is 4.
``compress=topk:0.1`` (or ``randk:0.1``, ``qsgd:8``, ``identity``) is C-DFL: see ``choco``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh.aggregation.gossip import contraction, metropolis_route, metropolis_weights
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import ALISTARH, KOLOSKOVA, Citation
from joulemesh.methods.base import (
    AS_PLANNED,
    Contender,
    FloatArray,
    Parameter,
    number,
    register,
    whole,
)
from joulemesh.methods.choco import Compressor, compressor
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import (
    Copied,
    Mixings,
    arrivals,
    chances,
    drawn,
    first_mixing,
    neighbours,
    walk,
    with_losses,
)
from joulemesh.scenario.scenario import rounded_to
from joulemesh.training.from_plan import power_mixing

if TYPE_CHECKING:
    from joulemesh.methods.choco import Links
    from joulemesh.training.exchange import Exchange

_TAU2 = 4  # where no constants are known (notes: baselines-of-fig-9)
_MOST = 64  # of the grid of pairs
_MOST_COPIES = 500_000_000  # numbers, of every repetition


def mixing_contender(
    name: str,
    setting: Setting,
    *,
    tau1: int,
    tau2: int,
    squeeze: Compressor | None = None,
    gamma: float | None = None,
) -> Contender:
    """τ1 local steps and τ2 Metropolis mixings, as a contender."""
    edges, devices, size = setting.world.graph.edges, setting.devices, setting.work.parameters
    per_parameter = setting.scenario.network.bits_per_parameter
    bits = setting.work.model_bits if squeeze is None else squeeze.bits(size, per_parameter)
    own, step = None, 1.0
    if squeeze is not None and tau2:
        from joulemesh.methods.choco import choco, linked_choco

        step = consensus_step(setting, squeeze) if gamma is None else gamma
        wire, away = rounded_to(per_parameter), setting.world.traces.given
        own = choco(squeeze, size, tau2, step, away=away, wire=wire)
    if setting.world.traces.given:
        return _followed(name, setting, tau1, tau2, bits, own)
    one = _apart(setting, metropolis_route(edges, bits, tau2), squeeze is not None)
    prices = setting.route_prices(tau1, lambda t: one, alike=True)
    if tau2 == 0:
        return setting.contender(name, tau1, prices)
    weights = metropolis_weights(edges, devices)
    if squeeze is not None:
        once, _ = power_mixing(weights, 1)
        made = setting.contender(name, tau1, prices, mixing=once, exchange=own)
        if setting.world.packets is None:
            return made
        wire = rounded_to(per_parameter)
        return _linked(
            setting, made, one, lambda links: linked_choco(squeeze, tau2, step, links, wire)
        )
    mixing, rounds = power_mixing(weights, tau2)
    made = setting.contender(name, tau1, prices, mixing=mixing, mixing_rounds=rounds)
    scheme = neighbours(setting, tau2)
    return with_losses(setting, made, lambda t: scheme)


def consensus_step(setting: Setting, squeeze: Compressor) -> float:
    """CHOCO's γ unless given: that of the compressor, smaller where messages are lost.

    A message that is lost with some probability passes a smaller share of its norm.
    """
    size, per_parameter = setting.work.parameters, setting.scenario.network.bits_per_parameter
    bits = squeeze.bits(size, per_parameter)
    return squeeze.step(size) * float(chances(setting, bits).min())


def _followed(
    name: str, setting: Setting, tau1: int, tau2: int, bits: float, own: Exchange | None
) -> Contender:
    """The same under traces: those who take part mix among themselves.

    With CHOCO, whose messages change copies that neighbours keep, two devices send each other their
    copies whole when they meet again.
    """
    # Copies are sums of rounded messages, and are not rounded themselves.
    copy_bits = float(
        setting.work.parameters * max(32, setting.scenario.network.bits_per_parameter)
    )
    mixings = Mixings(bits, tau2) if own is None else Copied(bits, tau2, copy_bits)
    walked = walk(setting, name, lambda now: mixings.act(now, now.rounds(tau1)))
    return walked.contender(name, exchange=own)


def _apart(setting: Setting, route: Route, compressed: bool) -> Route:
    """A route; compressed messages differ where any are lost, by what each neighbour has missed."""
    differ = compressed and setting.world.packets is not None
    return replace(route, same_to_all=False) if differ else route


def _linked(
    setting: Setting, made: Contender, route: Route, exchange: Callable[[Links], Exchange]
) -> Contender:
    """Compressed mixing as it turns out where packets are lost: with copies for every link."""
    from joulemesh.methods.choco import Links

    made, found = drawn(setting, made, lambda t: route)
    arrived = arrivals(found, (route.repeats, len(route.edge)))
    if arrived is None:
        return made
    links, size = len(route.edge), setting.work.parameters
    if links * size > _MOST_COPIES:
        raise ScenarioError(
            f"{made.name}: messages are lost, and copies of {size:,} parameters for {links:,} "
            f"directions of links are more than {_MOST_COPIES:,} numbers; leave compress out, "
            "raise network.tries, or use fewer links"
        )
    weights = metropolis_weights(setting.world.graph.edges, setting.devices)
    each = np.asarray(weights[route.receiver, route.sender]).ravel()
    own = exchange(Links.of(route.sender, route.receiver, each))
    schedule = replace(made.schedule, mixing="mean", arrived=arrived)  # weights are the links' own
    return replace(made, schedule=schedule, exchange=own)


@dataclass(frozen=True)
class CooperativeBound:
    """Bound on the mean squared gradient: cooperative SGD (Wang, Joshi) with C replaced by C^τ2.

    2 gap/(η K τ1) + η L σ²/N + η² L² σ² ((1 + ζ^{2τ2})/(1 − ζ^{2τ2}) τ1 − 1).

    Attributes:
        contraction: ζ of one mixing.
        devices: N.
        learning_rate: η.
        smoothness: L.
        variance: σ², of a stochastic gradient.
        gap: F(u_1) − F_inf.
    """

    contraction: float
    devices: int
    learning_rate: float
    smoothness: float
    variance: float
    gap: float

    def of(self, tau1: Any, tau2: Any, iterations: Any) -> FloatArray:
        """The bound at τ1, τ2 and K, arrays that broadcast."""
        tau1, iterations = np.asarray(tau1, np.float64), np.asarray(iterations, np.float64)
        left = self.contraction ** (2.0 * np.asarray(tau2))
        rate = self.learning_rate
        noise = rate * self.smoothness * self.variance
        drift = rate * self.smoothness * noise * ((1 + left) / (1 - left) * tau1 - 1)
        with np.errstate(divide="ignore"):
            start = 2 * self.gap / (rate * iterations * tau1)
        return np.asarray(start + noise / self.devices + drift)


def choose_pair(
    setting: Setting, tau1: int | None = None, tau2: int | None = None, *, bits: float | None = None
) -> tuple[int, int, str]:
    """The balance: the (τ1, τ2) of the least bound, K being what the budget then pays for."""
    constants, rate = setting.scenario.bounds, setting.scenario.training.learning_rate
    known = (constants.smoothness, constants.gradient_variance, constants.initial_gap)
    # Without mixing the bound is infinite, and balances nothing.
    if (tau1 is not None and tau2 is not None) or "estimate" in known or tau2 == 0:
        chosen = (setting.rounds if tau1 is None else tau1, _TAU2 if tau2 is None else tau2)
        why = "it does not mix" if tau2 == 0 else "[bounds] has no numbers"
        return *chosen, f"tau1 = {chosen[0]} and tau2 = {chosen[1]}, not balanced: {why}"
    first = np.arange(1, _MOST + 1) if tau1 is None else np.array([tau1])
    second = np.arange(1, _MOST + 1) if tau2 is None else np.array([tau2])
    grid1, grid2 = np.meshgrid(first, second, indexing="ij")
    graph = setting.ground.graph  # where devices that move begin
    bound = CooperativeBound(
        contraction=contraction(graph.edges, graph.devices, "metropolis"),
        devices=setting.devices,
        learning_rate=rate,
        smoothness=float(constants.smoothness),
        variance=float(constants.gradient_variance),
        gap=float(constants.initial_gap),
    )
    value = bound.of(grid1, grid2, _affordable(setting, grid1, grid2, bits))
    best = np.unravel_index(int(np.argmin(value)), value.shape)
    pair = int(grid1[best]), int(grid2[best])
    return *pair, f"tau1 = {pair[0]} and tau2 = {pair[1]} minimise the bound under the budget"


def _affordable(setting: Setting, tau1: Any, tau2: Any, compressed: float | None) -> FloatArray:
    """K: iterations that the batteries (and what is equal) allow, for each pair."""
    devices = setting.world.devices
    bits = setting.work.model_bits if compressed is None else compressed
    one = _apart(setting, first_mixing(setting, bits), compressed is not None)
    priced = setting.pricer.route(one, setting.forecast)
    each_j = tau1[..., None] * devices.round_energy_j + tau2[..., None] * priced.energy_j[0]
    most = (setting.battery_j / each_j).min(axis=-1)
    if setting.limits_time:
        each_s = tau1 * devices.round_latency_s.max() + tau2 * priced.seconds[0]
        most = np.minimum(most, setting.limit_s / each_s)
    elif setting.equal == "iterations":
        most = np.minimum(most, setting.iterations)
    return np.asarray(np.floor(most), np.float64)


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    squeeze: Compressor | None = given.get("compress")
    if squeeze is None and "gamma" in given:
        raise ScenarioError(f"{name}: gamma belongs to compress: give both, or leave gamma out")
    if squeeze is not None and given.get("tau2") == 0:
        raise ScenarioError(f"{name}: compress without mixing compresses nothing: give tau2 from 1")
    size, per_parameter = setting.work.parameters, setting.scenario.network.bits_per_parameter
    bits = None if squeeze is None else squeeze.bits(size, per_parameter)
    tau1, tau2, why = choose_pair(setting, given.get("tau1"), given.get("tau2"), bits=bits)
    made = mixing_contender(
        name, setting, tau1=tau1, tau2=tau2, squeeze=squeeze, gamma=given.get("gamma")
    )
    if squeeze is not None and squeeze.kind != "identity" and "gamma" not in given:
        step, told = consensus_step(setting, squeeze), f"tau1={tau1},tau2={tau2}"
        others = (step / 2, 2 * step) if 2 * step < 1 else (step / 2,)
        method = name.partition(":")[0]
        names = (f"{method}:{told},compress={squeeze},gamma={gamma:.3g}" for gamma in others)
        made = replace(made, variants=tuple(names))
    if "tau1" in given and "tau2" in given:
        return made
    return replace(made, notes=(why, *made.notes))


_BALANCED = "of least bound, if [bounds] has numbers; otherwise "
register(
    "balanced",
    _build,
    description="A number of local rounds, then a number of Metropolis mixings with all "
    "neighbours, balanced under the budget; compressed on request.",
    citation=Citation(
        "Liu, Chen, Zhang",
        "Decentralized Federated Learning: Balancing Communication and Computing Costs",
        2022,
        "IEEE Transactions on Signal and Information Processing over Networks 8:131-143",
        arxiv="2107.12048",
        names="Liu, Wei and Chen, Li and Zhang, Wenyi",
    ),
    parameters={
        "tau1": whole(meaning="rounds per iteration", default=_BALANCED + AS_PLANNED),
        "tau2": whole(0, meaning="mixings per iteration", default=f"{_BALANCED}{_TAU2}"),
        "compress": Parameter(
            compressor,
            "identity, topk:FRACTION, randk:FRACTION or qsgd:LEVELS",
            meaning="compression of the messages, with CHOCO-G's error feedback "
            "(arXiv:1902.00340), which also makes up for lost ones",
            default="none",
            cites=lambda sent: (KOLOSKOVA, ALISTARH) if sent.kind == "qsgd" else (KOLOSKOVA,),
            example="topk:0.1",
        ),
        "gamma": number(
            meaning="compress: step towards the neighbours' public copies",
            default="in proportion to the share of a message's squared norm that compression "
            "keeps (2 times for topk, 1.4 for qsgd, 0.7 for randk), times the probability that a "
            "message arrives; where learning rates are tuned, half and twice of it are tried",
        ),
    },
    main="tau1",
)
