"""The exchange of PENS (see ``pens``): look, select, average."""

from __future__ import annotations

__all__ = ["Pens", "Sent", "Tally", "selected"]

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from joulemesh.aggregation.route import Route
from joulemesh.methods.base import IntArray
from joulemesh.methods.moment import BoolArray, Moment
from joulemesh.methods.sampling import PENS_FIRST, PENS_SECOND, Neighbours, scores, world_key
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
        """int [N, n]: places of the neighbours sampled in iteration t of phase 1; −1 for none.

        Args:
            t: the iteration, uint32 from 0.
            xp: NumPy or its like in JAX.
            there: bool [N, widest]: the neighbours who take part, if the exchange is not asked.
        """
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
        """Devices at some slots among everybody's neighbours."""
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

    >>> tally = Tally(np.array([[3, 1]]), np.array([[4, 4]]))
    >>> selected(tally, np.array([1]), np.array([2])).tolist()
    [[True, False]]
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
