"""Gossip learning with subsampled or partitioned models.

Hegedűs, Danner, Jelasity: "Decentralized Learning Works: An Empirical Comparison of Gossip Learning
and Federated Learning", JPDC 148:109-124, 2021; "Gossip Learning as a Decentralized Alternative to
Federated Learning", DAIS 2019. Without their token accounts: one send per iteration.

Each iteration every device k
    runs τ rounds;                       t_k += steps                  (its age)
    sends a part of w_k, with t_k, to one random neighbour;
    for each part ŵ, t̂ received, in order of the senders:
        w_k[j] += t̂ / (t_k + t̂) (ŵ[j] − w_k[j])  for the coordinates j sent
        t_k = max(t_k, t̂)

The part: a fraction s of the coordinates drawn without replacement (``form=random``), or the
coordinates j ≡ p mod S of the next part p in the device's own random order, with an age for each
part (``form=partitioned,parts=S``). Common initialisation; constant learning rate. A part that is
lost on the air is not merged: its receiver keeps its parameters and its age.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import Citation
from joulemesh.methods.base import (
    AS_PLANNED,
    Contender,
    FloatArray,
    IntArray,
    choice,
    number,
    register,
    whole,
)
from joulemesh.methods.sampling import (
    GOSSIP,
    GOSSIP_PARTS,
    Neighbours,
    neighbours_of,
    permuted,
    scores,
    world_key,
)
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import Act, Moment, arrivals, drawn, walk
from joulemesh.training import draws
from joulemesh.training.arrays import (
    Array,
    Tree,
    choices,
    flatten,
    like,
    namespace,
    pad,
    place,
    put,
    repeat,
)
from joulemesh.training.exchange import Context, Exchange, key_words
from joulemesh.world.topology import Graph

AGE_BITS = 32

_U = np.uint32


@dataclass(frozen=True, eq=False)
class GossipLearning:
    """Who sends what to whom, and what it does.

    Attributes:
        neighbours: of every device.
        seed: the scenario's.
        size: number of parameters d.
        tau: rounds per iteration.
        batch, local_round: they decide how many steps a round is.
        fraction: s.
        parts: S of the partitioned form; 0 for the random form.
        bits_per_parameter: of a value sent.
        index_bits: of a coordinate's number sent.
    """

    neighbours: Neighbours
    seed: int
    size: int
    tau: int
    batch: int
    local_round: str
    fraction: float = 0.1
    parts: int = 0
    bits_per_parameter: int = 32
    index_bits: int = 0

    @property
    def longest(self) -> int:
        return -(-self.size // self.parts) if self.parts else math.ceil(self.fraction * self.size)

    def partners(self, t: Any) -> Any:
        """Whom each device sends to in iteration t (uint32, from 0): [N]."""
        number, _ = self._words(t)
        slot = draws.below(number, self.neighbours.degree.astype(np.uint32))
        table = place(self.neighbours.table.astype(np.int32), slot)
        return table[np.arange(len(table)), slot.astype(np.int32)]

    def part(self, t: Any) -> Any:
        """The part that each device sends in iteration t, in the partitioned form: uint32 [N]."""
        lap, turn = t // _U(self.parts), (t % _U(self.parts)).astype(np.int32)
        drawn = scores(world_key(self.seed, GOSSIP_PARTS), lap, self._devices, self.parts)
        order = drawn.argsort(axis=1, stable=True)  # a permutation of the parts in every lap
        return order[np.arange(len(drawn)), turn].astype(np.uint32)

    def count(self, t: Any) -> Any:
        """Coordinates that each device sends in iteration t: [N]."""
        if self.parts:
            return (_U(self.size + self.parts - 1) - self.part(t)) // _U(self.parts)
        whole, rest = divmod(self.fraction * self.size, 1.0)
        extra = self._words(t)[1] < _U(min(round(rest * 2**32), 2**32 - 1))
        return _U(int(whole)) + extra.astype(np.uint32)

    @property
    def _devices(self) -> Any:
        return np.arange(len(self.neighbours.degree), dtype=np.uint32)

    def _words(self, t: Any) -> draws.Key:
        return draws.fold(draws.fold(world_key(self.seed, GOSSIP), t), self._devices)

    def bits(self, t: Any) -> FloatArray:
        """Bits of each device's message in iteration t: values, coordinates and age."""
        each = self.bits_per_parameter + self.index_bits
        return np.asarray(self.count(t), np.float64) * each + AGE_BITS

    def partners_among(self, now: Moment) -> IntArray:
        """Whom each device sends to, of those who take part: [N]; N where it sends to nobody."""
        links, nobody = now.edges, now.devices
        if not len(links):
            return np.full(nobody, nobody)
        near = neighbours_of(Graph(nobody, links, np.zeros((nobody, 2))))
        number, _ = self._words(np.array([now.t], np.uint32))
        slot = draws.below(number, np.maximum(near.degree, 1).astype(np.uint32))
        drawn = near.table[np.arange(nobody), slot.astype(np.int32)]
        return np.where(near.degree > 0, drawn, nobody)

    def route_among(self, now: Moment) -> Route:
        to = self.partners_among(now)
        sender = np.flatnonzero(to < now.devices)
        bits = self.bits(np.array([now.t], np.uint32))[sender]
        uses = float(bits.max(initial=0.0)) / (self.bits_per_parameter * self.size)
        return self.neighbours.route(sender, to[sender], bits, uses)

    def route(self, t: int) -> Route:
        """What is sent in iteration t (from 0)."""
        t32 = np.array([t], np.uint32)
        bits, receiver = self.bits(t32), np.asarray(self.partners(t32), np.int64)
        sender: IntArray = np.arange(len(bits))
        uses = float(bits.max()) / (self.bits_per_parameter * self.size)
        return self.neighbours.route(sender, receiver, bits, uses)

    def exchange(self, to: IntArray | None = None) -> Exchange:
        """The exchange; its state is the ages, int32 [N, S] (S = 1 in the random form)."""
        count = len(self.neighbours.degree)

        def init(params: Tree) -> Array:
            return choices(params).zeros((count, max(1, self.parts)), dtype=np.int32)

        def apply(
            params: Tree, age: Array, key: Any, context: Context
        ) -> tuple[Tree, Array, tuple[()]]:
            flat, back = flatten(params)
            t, xp = context.iteration, choices(params)
            steps = draws.steps_per_round(context.size, self.batch, self.local_round)
            older = (self.tau * steps).astype(np.int32)
            if to is not None:
                older = xp.where(context.active, older, 0)
            age = age + older[:, None]
            partners = self.partners(t) if to is None else xp.asarray(to, dtype=np.int32)[t]
            coordinates = self._coordinates(key_words(key), t)
            column = self.part(t) if self.parts else xp.zeros(count, dtype=np.uint32)
            if not isinstance(context.arrived, tuple):
                partners = xp.where(context.arrived, partners, count)
            flat, age = _merge(flat, age, partners, coordinates, column.astype(np.int32))
            return back(flat), age, ()

        return Exchange(init, apply)

    def _coordinates(self, words: draws.Key, t: Any) -> Any:
        """int32 [N, longest]: what each device sends; ``size`` where its message has ended."""
        lanes, xp = np.arange(self.longest, dtype=np.uint32), namespace(words[0])
        if self.parts:
            chosen = (self.part(t)[:, None] + _U(self.parts) * lanes).astype(np.int32)
            return chosen.clip(None, self.size)
        each = draws.fold(words, self._devices)
        if self.fraction == 1:
            chosen = np.broadcast_to(lanes, (len(each[0]), self.size)).astype(np.int32)
        else:
            chosen = permuted((each[0][:, None], each[1][:, None]), lanes, self.size)
        return xp.where(lanes < self.count(t)[:, None], chosen, self.size)


def _merge(
    flat: Array, age: Array, to: Array, coordinates: Array, column: Array
) -> tuple[Array, Array]:
    """Merge every message into its receiver, one sender after another."""
    count, size = flat.shape
    senders, xp = np.arange(count), namespace(age)
    # A row more and a column more take what nobody receives.
    values, ages = pad(flat, (1, 1)), pad(age, (1, 0))
    places = place(coordinates, flat)
    sent, sent_age = values[place(senders[:, None], flat), places], ages[senders, column]

    def receive(i: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        values, ages = carry
        k, j = to[i], places[i]
        mine, theirs = ages[k, column[i]], sent_age[i]
        share = like(theirs, values) / like(xp.maximum(mine + theirs, 1), values)
        row = values[k]
        own = row[j]
        row = put(row, j, own + share * (sent[i] - own))
        ages = put(ages, (k, column[i]), xp.maximum(mine, theirs))
        return put(values, k, row), ages

    values, ages = repeat(count, receive, (values, ages))
    return values[:count, :size], ages[:count]


def _build(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
    size, training = setting.work.parameters, setting.scenario.training
    parts = given.get("parts", 4) if given.get("form") == "partitioned" else 0
    fraction = given.get("s", 0.1)
    if parts and "s" in given:
        raise ScenarioError(f"{name}: the partitioned form sends 1/parts: leave s out")
    if not parts and "parts" in given:
        raise ScenarioError(f"{name}: parts needs form=partitioned: add it, or leave parts out")
    if parts > size or fraction * size < 1:
        raise ScenarioError(
            f"{name}: a model of {size} parameters leaves some message empty: "
            f"use at most {size} parts, or s of at least {1 / size:.2g}"
        )
    told = parts == 0 and fraction < 1 and given.get("indices", "sent") == "sent"
    tau = given.get("tau", setting.rounds)
    method = GossipLearning(
        neighbours=neighbours_of(setting.world.graph),
        seed=setting.scenario.seed,
        size=size,
        tau=tau,
        batch=training.batch_size,
        local_round=training.local_round,
        fraction=fraction,
        parts=parts,
        bits_per_parameter=setting.scenario.network.bits_per_parameter,
        index_bits=math.ceil(math.log2(size)) if told else 0,
    )
    if setting.world.traces.given:
        return _followed(name, setting, method)
    prices = setting.route_prices(tau, method.route)
    made = setting.contender(name, tau, prices, exchange=method.exchange())
    if setting.world.packets is None:
        return made
    made, found = drawn(setting, made, method.route)
    arrived = arrivals(found, (setting.devices,))
    return replace(made, schedule=replace(made.schedule, arrived=arrived))


def _followed(name: str, setting: Setting, method: GossipLearning) -> Contender:
    """The method under traces: partners are drawn among the neighbours who take part."""

    def follow(now: Moment) -> Act:
        return Act(now.rounds(method.tau), now.price(method.route_among(now)))

    walked = walk(setting, name, follow)
    to = np.stack([method.partners_among(now) for now in walked.moments])
    return walked.contender(name, exchange=method.exchange(to))


register(
    "gossip-learning",
    _build,
    description="Every device sends a part of its model to one random neighbour, which merges it "
    "by the models' ages if it arrives.",
    citation=Citation(
        "Hegedűs, Danner, Jelasity",
        "Decentralized Learning Works: An Empirical Comparison of Gossip Learning and Federated "
        "Learning",
        2021,
        "Journal of Parallel and Distributed Computing 148:109-124",
        doi="10.1016/j.jpdc.2020.10.006",
        names="Hegedűs, István and Danner, Gábor and Jelasity, Márk",
    ),
    parameters={
        "s": number(meaning="fraction of the parameters that a message holds", default="0.1"),
        "tau": whole(meaning="rounds per iteration", default=AS_PLANNED),
        "form": choice(
            "random",
            "partitioned",
            meaning="parameters of a message: drawn at random, or one of fixed parts in turn",
            default="random",
        ),
        "parts": whole(2, meaning="partitioned: number of parts", default="4"),
        "indices": choice(
            "sent",
            "shared",
            meaning="random: whether the drawn coordinates are sent, or follow from a shared seed",
            default="sent",
        ),
    },
    main="s",
)
