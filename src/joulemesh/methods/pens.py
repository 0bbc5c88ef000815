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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import InfeasibleError
from joulemesh.base.registry import ONOSZKO
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.base import AS_PLANNED, Contender, FloatArray, IntArray, register, whole
from joulemesh.methods.sampling import (
    PENS_FIRST,
    PENS_SECOND,
    Neighbours,
    neighbours_of,
    scores,
    world_key,
)
from joulemesh.methods.setting import Prices, Setting
from joulemesh.methods.walk import Act, BoolArray, Moment, drawn, walk
from joulemesh.planning.ground import explicit_sizes
from joulemesh.planning.losses import Outcome, drawn_prices, tries_of
from joulemesh.training.arrays import (
    Array,
    Tree,
    add,
    branch,
    choices,
    like,
    namespace,
    place,
    tree_map,
)
from joulemesh.training.exchange import Context, Exchange

_NEVER = np.uint32(0xFFFFFFFF)  # a score that comes after all others
_SHARES = 2520  # a share m/n is a whole number of these, for any n up to 10


class Tally(NamedTuple):
    """What a device remembers of phase 1, by slot among its neighbours."""

    best: Array  # int32 [N, widest]: how often it was among the best
    # int32 [N, widest]: how often it was looked at; where devices come and go or messages are lost,
    # how often chance would then have put it among the best, times `_SHARES`.
    sampled: Array


class Sent(NamedTuple):
    """What the ledger must know of an exchange."""

    asked: Array  # int32 [N, most]: places of the neighbours that sent their model; −1 for none
    evaluated: Array  # int32 [N]: samples passed forward


@dataclass(frozen=True, eq=False)
class Pens:
    """The method's figures.

    Attributes:
        neighbours: of every device.
        seed: the scenario's.
        sampled: n, lowered to each device's number of neighbours.
        top: m, lowered likewise.
        partners: neighbours asked in phase 2, at most.
        phase1: R1.
        evaluated: own samples on which neighbours' models are evaluated, at most.
        followed: do devices come, go or move? Then chance goes by neighbours' numbers, not by
            their places among all that a device ever has.
        there: bool [n, N, widest]: which neighbours take part in each iteration, if followed.
    """

    neighbours: Neighbours
    seed: int
    sampled: int
    top: int
    partners: int
    phase1: int
    evaluated: int
    followed: bool = False
    there: BoolArray | None = None

    @property
    def looked_at(self) -> IntArray:
        """int64 [N]: models that each device evaluates in an iteration of phase 1."""
        return np.minimum(self.sampled, self.neighbours.degree)

    @property
    def kept(self) -> IntArray:
        """int64 [N]: models that each device averages with its own in phase 1."""
        return np.minimum(self.top, self.looked_at)

    @property
    def degenerate(self) -> Any:
        """bool [N]: devices that keep all that they look at, so that nothing is selected."""
        return self.kept >= self.looked_at

    def first(self, t: Any, xp: Any = np, there: Any = None) -> Any:
        """int [N, n]: places of the neighbours sampled in iteration t of phase 1; −1 for none."""
        there = self._there(t) if there is None else there
        drawn = xp.where(there, self._scores(PENS_FIRST, t), _NEVER)
        return _lowest(drawn, self.looked(there), self._widest(self.sampled))

    def near(self, now: Moment) -> BoolArray:
        """bool [N, widest]: the neighbours who take part."""
        used = np.zeros(len(self.neighbours.edges) + 1, np.bool_)  # the last stands for no link
        used[now.links] = True
        return np.asarray(used[self.neighbours.link])

    def looked(self, there: Any) -> Any:
        """[N]: models that each device evaluates, of the neighbours who take part."""
        return there.sum(axis=1).clip(0, self.sampled)

    def _there(self, t: Any) -> Any:
        if self.there is None:
            return np.arange(self.neighbours.table.shape[1]) < self.neighbours.degree[:, None]
        return place(self.there, t)[t]

    def _scores(self, purpose: int, t: Any) -> Any:
        table = self.neighbours.table
        devices = np.arange(len(table), dtype=np.uint32)
        width = table if self.followed else table.shape[1]
        return scores(world_key(self.seed, purpose), t, devices, width)

    def _widest(self, wanted: int) -> int:
        return int(min(wanted, self.neighbours.table.shape[1]))

    @property
    def _most(self) -> int:
        return max(self._widest(self.sampled), self._widest(self.partners))

    def exchange(self) -> Exchange:
        """The exchange; its state is a `Tally`, and it reports `Sent`."""
        shape = self.neighbours.table.shape

        def init(params: Tree) -> Tally:
            xp = choices(params)
            return Tally(xp.zeros(shape, dtype=np.int32), xp.zeros(shape, dtype=np.int32))

        def apply(
            params: Tree, tally: Tally, key: Any, context: Context
        ) -> tuple[Tree, Tally, Sent]:
            del key  # all chance is the scenario's
            first, second = partial(self._phase1, context), partial(self._phase2, context)
            done: tuple[Tree, Tally, Sent] = branch(
                context.iteration < self.phase1, first, second, params, tally
            )
            return done

        return Exchange(init, apply)

    def _phase1(self, context: Context, params: Tree, tally: Tally) -> tuple[Tree, Tally, Sent]:
        xp, there = choices(params), self._there(context.iteration)
        looked = self.looked(there)
        asked = slot = self.first(context.iteration, xp, there)
        shared = self.followed
        if not isinstance(context.arrived, tuple):
            shared, slot = True, _arrived(slot, context.arrived)
            looked = xp.sum(slot >= 0, axis=1)
        kept = looked.clip(0, self.top)
        loss = xp.where(slot >= 0, self._losses(context, params, self._numbers(slot)), np.inf)
        best = _lowest(loss, kept, self._widest(self.top))
        chosen = xp.where(best >= 0, xp.take_along_axis(slot, best, axis=1), -1)
        share = kept * _SHARES // looked.clip(1) if shared else np.ones_like(looked)
        tally = Tally(_add(tally.best, chosen), _add(tally.sampled, slot, share))
        passed = looked.astype(np.int32) * xp.minimum(context.size.astype(np.int32), self.evaluated)
        sent = Sent(self._padded(asked), passed)
        return _averaged(params, chosen, self._numbers(chosen)), tally, sent

    def _phase2(self, context: Context, params: Tree, tally: Tally) -> tuple[Tree, Tally, Sent]:
        xp, there = choices(params), self._there(context.iteration)
        lossy = not isinstance(context.arrived, tuple)
        if self.followed or lossy:
            good = (tally.best * _SHARES > tally.sampled) & there
        else:
            good = selected(tally, self.kept, self.looked_at) & there
        good = xp.where(xp.any(good, axis=1, keepdims=True), good, there)
        drawn = xp.where(good, self._scores(PENS_SECOND, context.iteration), _NEVER)
        wanted = xp.minimum(xp.sum(good, axis=1), self.partners)
        slot = _lowest(drawn, wanted, self._widest(self.partners))
        sent = Sent(self._padded(slot), xp.zeros(len(slot), dtype=np.int32))
        slot = _arrived(slot, context.arrived) if lossy else slot
        return _averaged(params, slot, self._numbers(slot)), tally, sent

    def _numbers(self, slot: Array) -> Array:
        xp, table = namespace(slot), place(self.neighbours.table.astype(np.int32), slot)
        return xp.take_along_axis(table, xp.maximum(slot, 0), axis=1)

    def _padded(self, slot: Array) -> Array:
        missing = ((0, 0), (0, self._most - slot.shape[1]))
        return namespace(slot).pad(slot, missing, constant_values=-1).astype(np.int32)

    def _losses(self, context: Context, params: Tree, owner: Array) -> Array:
        """[N, n]: loss of owner[i, k]'s model on device i's own samples."""
        count, each = owner.shape
        xp = namespace(owner)
        viewer = xp.repeat(xp.arange(count), each)
        found = context.losses(params, viewer, owner.reshape(-1), self.evaluated)
        return found.reshape(count, each)

    # The price ----------------------------------------------------------------------------------

    def route(self, asked: Any, bits: float) -> Route:
        """The messages of one exchange, from the slots asked: int [N, k], −1 for none."""
        receiver, column = np.nonzero(np.asarray(asked) >= 0)
        sender = self.neighbours.table[receiver, np.asarray(asked)[receiver, column]]
        return self.neighbours.route(sender, receiver, np.full(len(sender), bits), 1.0)


def selected(tally: Tally, kept: Any, looked_at: Any) -> Array:
    """bool [N, widest]: neighbours among the best more often than chance would put them there.

    count > sampled · m/n, in whole numbers.
    """
    return tally.best * looked_at[:, None] > tally.sampled * kept[:, None]


def _arrived(slot: Array, arrived: Array) -> Array:
    """The slots [N, k] from which a model arrived, bool [N, widest]; −1 where none did."""
    xp = namespace(slot)
    there = xp.take_along_axis(arrived, xp.maximum(slot, 0), axis=1)
    return xp.where(there, slot, -1)


def _lowest(values: Any, count: Any, width: int) -> Any:
    """int [N, width]: where each row is lowest, ``count`` [N] slots, then −1."""
    order = values.argsort(axis=1, stable=True)[:, :width]
    keep = np.arange(width) < count[:, None]
    return order * keep - ~keep * 1


def _add(counts: Array, slot: Array, share: Any = 1) -> Array:
    """Add 1, or each row's share [N], at its slots; −1 adds nothing."""
    rows, xp = np.arange(len(counts))[:, None], namespace(counts)
    more = (slot >= 0) * xp.asarray(share, dtype=counts.dtype).reshape(-1, 1)
    return add(+counts, (rows, xp.maximum(slot, 0)), more.astype(counts.dtype))


def _averaged(params: Tree, slot: Array, owner: Array) -> Tree:
    """The plain mean of each device's model and those of the owners at valid slots."""
    valid = slot >= 0
    count = 1 + namespace(valid).sum(valid, axis=1)

    def one(leaf: Array) -> Array:
        xp, wide = namespace(leaf), (-1,) + (1,) * (leaf.ndim - 1)
        total, there, of = leaf, place(valid, leaf), place(owner, leaf)
        for k in range(slot.shape[1]):
            total = total + xp.where(there[:, k].reshape(wide), leaf[of[:, k]], 0)
        return total / like(count, leaf).reshape(wide)

    return tree_map(one, params)


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
        costs = pricer.sent(every, ground.costs(t))
        return drawn_prices(pricer, some, costs, often[:, which])

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
