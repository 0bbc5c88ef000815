"""Performance-based neighbour selection.

Onoszko, Karlsson, Mogren, Listo Zec: "Decentralized Federated Learning of Deep Neural Networks on
non-iid Data", FL-ICML workshop 2021, arXiv:2107.08517. After τ local rounds, device i

    phase 1 (R1 iterations):
        S ← n of its neighbours, uniformly without replacement
        ℓ_j ← loss of w_j on i's own training data, for j in S
        M ← the m of S with the smallest ℓ_j;   count_i[j] += 1 for j in M
        w_i ← mean of w_i and w_j, j in M
    selection:  N_i* ← {j: count_i[j] > times that j was in S · m/n}, or all neighbours if none
    phase 2:
        w_i ← mean of w_i and of up to ``partners`` members of N_i*, drawn uniformly

A model that is lost on the air is neither scored, nor counted, nor averaged with, and its receiver
keeps its own if all are lost. So n and m are those of the models that arrive, at most m of n, and
N_i* holds who was among the best more often than chance, Σ m/n over the times that j arrived.

Neighbours' models are asked for, so the neighbours transmit; all n are charged in phase 1, and the
forward passes at a third of a training pass. Requests and counts are a few bits and free.
"""

from __future__ import annotations

__all__: list[str] = []

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.aggregation.route import Route
from joulemesh.bibliography import ONOSZKO
from joulemesh.errors import InfeasibleError
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.base import Contender, FloatArray
from joulemesh.methods.losses import drawn
from joulemesh.methods.moment import Act, Moment
from joulemesh.methods.parameters import AS_PLANNED, whole
from joulemesh.methods.pens_exchange import Pens, Sent
from joulemesh.methods.registry import register
from joulemesh.methods.sampling import neighbours_of
from joulemesh.methods.setting import Prices, Setting
from joulemesh.methods.walk import walk
from joulemesh.planning.drawing import Outcome, tries_of
from joulemesh.planning.pricing.drawn import drawn_prices
from joulemesh.planning.workload import explicit_sizes

_FORWARD = 1 / 3  # of a training pass: forward, and twice that backward
_MOST_EVALUATED = 512


def _reserve(setting: Setting, pens: Pens, tau: int) -> Prices:
    """Phase 1 as it will be (at most D_i samples are evaluated); phase 2 at its dearest.

    Who is asked in phase 2 is known only in training: every device is ready to answer all of
    its neighbours.
    """
    bits = setting.work.model_bits
    everybody = metropolis_route(setting.world.graph.edges, bits, 1)
    passed: FloatArray = np.asarray(pens.looked_at * pens.evaluated * _FORWARD, np.float64)
    first = setting.route_prices(
        tau,
        lambda t: pens.route(pens.first(np.array([t], np.uint32)), bits),
        own_samples=passed,
    )
    second = setting.route_prices(tau, lambda t: everybody, alike=True)

    def prices(start: int, stop: int) -> Ledger:
        turn = min(max(pens.phase1, start), stop)
        if turn == stop:
            return first(start, stop)
        later = second(turn, stop)
        later = later if later.iterations > 1 else later.tiled(stop - turn)
        return later if turn == start else first(start, turn).then(later)

    return prices


def _settle(setting: Setting, pens: Pens, tau: int, reserved: Prices) -> Callable[[Any], Ledger]:
    """The price of what was sent and evaluated."""

    def settle(sent: Sent) -> Ledger:
        asked, evaluated = np.asarray(sent.asked), np.asarray(sent.evaluated)
        prices = setting.route_prices(
            tau,
            lambda t: pens.route(asked[t], setting.work.model_bits),
            own_samples=evaluated * _FORWARD,
        )
        found = prices(0, len(asked))
        if not setting.pricer.medium.shared:
            return found
        # The slots that are reserved serve whoever is asked: fewer transmissions need no more.
        seconds = np.minimum(found.seconds, reserved(0, len(asked)).seconds)
        return found.resting(setting.world.devices.idle_w, seconds)

    return settle


def _followed(name: str, setting: Setting, pens: Pens, tau: int, notes: Sequence[str]) -> Contender:
    """The method under traces, with the neighbours who take part; see `_reserve` for its price."""
    bits = setting.work.model_bits

    def follow(now: Moment) -> Act:
        rounds = now.rounds(tau)
        if now.t >= pens.phase1:
            return Act(rounds, now.price(now.mixing_route(bits)))
        there = pens.near(now)
        asked = pens.first(np.array([now.t], np.uint32), there=there)
        passed = pens.looked(there) * pens.evaluated * _FORWARD
        return Act(rounds, now.price(pens.route(asked, bits)), own_samples=passed)

    walked = walk(setting, name, follow)

    def settle(sent: Sent) -> Ledger:
        asked, own = np.asarray(sent.asked), np.asarray(sent.evaluated) * _FORWARD
        found = walked.priced(lambda now: now.price(pens.route(asked[now.t], bits)), own)
        if not setting.pricer.medium.shared:
            return found
        # As where nobody is ever away: the slots that are reserved serve whoever is asked.
        seconds = np.minimum(found.seconds, walked.ledger.seconds)
        return found.resting(setting.world.devices.idle_w, seconds, walked.active)

    pens = replace(pens, there=np.stack([pens.near(now) for now in walked.moments]))
    own = pens.exchange()
    return walked.contender(name, exchange=own, settle=settle, notes=notes)


def _drawn(setting: Setting, pens: Pens, tau: int, made: Contender) -> Contender:
    """PENS as it turns out where packets are lost.

    Transmissions are drawn for the answers to every neighbour in phase 2, of which the batteries
    pay for all; those that were asked for are settled.
    """
    bits = setting.work.model_bits
    everybody = metropolis_route(setting.world.graph.edges, bits, 1)

    def route(t: int) -> Route:
        if t >= pens.phase1:
            return everybody
        return pens.route(pens.first(np.array([t], np.uint32)), bits)

    made, found = drawn(setting, made, route)

    def arrived(t: int) -> NDArray[np.bool_]:
        every, lost = route(t), found.lost[t]
        return pens.neighbours.all_but(every.sender[lost], every.receiver[lost])

    if found.lost_messages.any():
        made = replace(made, schedule=replace(made.schedule, arrived=arrived))
    if made.schedule.iterations > pens.phase1:
        said = f"{made.notes[-1]} (with every neighbour asked in phase 2)"
        made = replace(made, notes=(*made.notes[:-1], said))
    return replace(made, settle=_settle_drawn(setting, pens, tau, made.reserve, route, found))


def _settle_drawn(
    setting: Setting,
    pens: Pens,
    tau: int,
    reserve: Ledger,
    route: Callable[[int], Route],
    found: Outcome,
) -> Callable[[Any], Ledger]:
    """The price of what was sent, as often as it was, and evaluated."""
    ground, packets = setting.ground, setting.world.packets
    assert packets is not None
    pricer = ground.pricer

    def exchanged(t: int, asked: Any) -> Ledger:
        every, some = route(t), pens.route(asked, setting.work.model_bits)
        often = found.cut[t] if t in found.cut else tries_of(ground, packets, t, every)[0]
        numbers = every.sender * setting.devices + every.receiver
        order = np.argsort(numbers)
        wanted = some.sender * setting.devices + some.receiver
        which = order[np.searchsorted(numbers[order], wanted)]
        return drawn_prices(pricer, some, ground.costs(t), often[:, which])

    def settle(sent: Sent) -> Ledger:
        each = [exchanged(t, asked) for t, asked in enumerate(np.asarray(sent.asked))]
        prices, most = Ledger.joined(each), reserve[: len(each)]
        joules = np.minimum(prices.exchange_j, most.exchange_j)  # who stops listening pays no more
        heard = np.minimum(prices.receive_j, joules)
        exchange = replace(
            prices,
            transmit_j=joules - heard,
            receive_j=heard,
            seconds=prices.seconds + pricer.overhead_s,
        )
        own, devices = np.asarray(sent.evaluated) * _FORWARD, setting.world.devices
        ledger = charge(devices, tau, exchange, own_samples=own)
        ledger = ledger.resting(devices.idle_w, np.minimum(ledger.seconds, most.seconds))
        # Who cannot pay for waiting sleeps.
        return replace(ledger, idle_j=np.minimum(ledger.idle_j, most.idle_j))

    return settle


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    neighbours = neighbours_of(setting.world.graph)
    fewest = np.bincount(setting.ground.graph.edges.ravel(), minlength=setting.devices).min()
    # With 2 neighbours the published m = 2 would keep both, and select nobody.
    top = given.get("top", 2 if fewest > 2 else 1)
    pens = Pens(
        neighbours=neighbours,
        seed=setting.scenario.seed,
        sampled=given.get("sampled", 10),
        top=top,
        partners=given.get("partners", top),
        phase1=given.get("phase1", _phase1(setting)),
        evaluated=min(given.get("eval_samples", _held(setting)), _MOST_EVALUATED),
        followed=setting.world.traces.given,
    )
    tau = given.get("tau", setting.rounds)
    notes = []
    if pens.degenerate.any():
        notes.append(
            f"degenerate on this topology: {int(pens.degenerate.sum())} of {setting.devices} "
            f"devices keep every model that they look at (sampled = {pens.sampled}, top = {top}), "
            "so that they select nobody and average with their neighbours"
        )
    if setting.limits_energy:
        notes.append(
            "who is asked in phase 2 depends on the weights: an answer to every neighbour is "
            "reserved, and what was not asked for stays in the batteries"
        )
    if setting.world.traces.given:
        made = _followed(name, setting, pens, tau, notes)
    else:
        reserved = _reserve(setting, pens, tau)
        made = setting.contender(
            name,
            tau,
            reserved,
            exchange=pens.exchange(),
            settle=_settle(setting, pens, tau, reserved),
            notes=notes,
        )
        made = made if setting.world.packets is None else _drawn(setting, pens, tau, made)
    if made.schedule.iterations <= pens.phase1:
        late = f"phase 1 takes all {made.schedule.iterations} iterations: lower phase1"
        return replace(made, notes=(late, *made.notes))
    return made


def _phase1(setting: Setting) -> int:
    """A fifth of the adaptive plan's iterations (20 of 100, the authors' 20)."""
    try:
        return max(1, setting.iterations // 5)
    except InfeasibleError:
        return 20


def _held(setting: Setting) -> int:
    """Samples that the best-provided device holds, as far as is known without the data."""
    sizes = explicit_sizes(setting.scenario)
    if sizes is not None:
        return int(sizes.max())
    return -(-setting.train_samples // setting.devices)


register(
    "pens",
    _build,
    description="Every device finds out whose models, of those that arrive, do well on its own "
    "data, and then averages with those neighbours only (PENS).",
    citation=ONOSZKO,
    parameters={
        "sampled": whole(meaning="phase 1: neighbours whose models are tried", default="10"),
        "top": whole(
            meaning="phase 1: how many of them are averaged with",
            default="2; 1 where a device has 2 neighbours",
        ),
        "partners": whole(meaning="phase 2: neighbours averaged with", default="as top"),
        "phase1": whole(
            meaning="iterations of phase 1", default="a fifth of the adaptive plan's iterations"
        ),
        "eval_samples": whole(
            meaning="samples on which a neighbour's model is tried",
            default=f"the most that a device holds, at most {_MOST_EVALUATED}",
        ),
        "tau": whole(meaning="rounds per iteration", default=AS_PLANNED),
    },
    main="sampled",
)
