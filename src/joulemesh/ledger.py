"""What iterations cost: joules of each device by what they go on, seconds, and bits on the air.

A plan, a method and a run have one `Ledger`; so has a single exchange. Its columns are float64
[n, N], zeros where nothing is spent. Rows that are alike are views of one row, so that the ledger
of 100,000 devices over many like iterations costs the memory of one of them.
"""

from __future__ import annotations

__all__ = [
    "JOULES",
    "Ledger",
    "alike",
    "charge",
    "just_in_time",
    "paced_j",
    "slowest_s",
    "total_of",
]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.world.devices import DeviceArrays

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

JOULES = ("compute_j", "transmit_j", "receive_j", "idle_j")
"""What a device's joules go on; together they are ``energy_j``."""

_BLOCK = 1 << 20  # entries that are multiplied at a time


@dataclass(frozen=True, eq=False)
class Ledger:
    """What n iterations of N devices cost."""

    # float64 [n, N]: joules of local training, and of a method's own computation
    compute_j: FloatArray
    transmit_j: FloatArray  # float64 [n, N]: joules of sending
    receive_j: FloatArray  # float64 [n, N]: joules of receiving
    idle_j: FloatArray  # float64 [n, N]: joules at rest
    # float64 [n, N]: joules that batteries have gained by the end of the iteration
    harvested_j: FloatArray
    seconds: FloatArray  # float64 [n]: of each iteration
    bits: FloatArray  # float64 [n]: on the air
    server_j: FloatArray  # float64 [n]: joules that no battery pays (fedavg's server)

    @classmethod
    def of(cls, shape: tuple[int, int], **columns: ArrayLike) -> Ledger:
        """A ledger of n iterations and N devices; columns are broadcast, and zero unless given."""
        n, count = shape
        shapes = {field.name: (n,) for field in fields(cls)[-3:]}
        given = {
            field.name: np.broadcast_to(
                np.asarray(columns.pop(field.name, 0.0), np.float64),
                shapes.get(field.name, (n, count)),
            )
            for field in fields(cls)
        }
        if columns:
            raise TypeError(f"a ledger has no column {', '.join(columns)}")
        return cls(**given)

    @property
    def iterations(self) -> int:
        """Number n of iterations."""
        return len(self.seconds)

    @cached_property
    def exchange_j(self) -> FloatArray:
        """float64 [n, N]: joules of the radio, sending and receiving."""
        return _as_wide(np.add, self.transmit_j, self.receive_j)

    @cached_property
    def energy_j(self) -> FloatArray:
        """float64 [n, N]: joules of each device in each iteration."""
        working = _as_wide(np.add, self.compute_j, self.exchange_j)
        return _as_wide(np.add, working, self.idle_j)

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N]: joules that each device spends in all."""
        return total_of(self.energy_j)

    @property
    def total_j(self) -> float:
        """Joules of all devices together."""
        return float(self.spent_j.sum())

    @property
    def columns_j(self) -> FloatArray:
        """float64 [4, N]: joules of all iterations, for what `JOULES` names."""
        return np.stack([total_of(getattr(self, name)) for name in JOULES])

    def __getitem__(self, rows: slice) -> Ledger:
        """The ledger of some of the iterations."""
        return self._each(lambda column: column[rows])

    def __add__(self, other: Ledger) -> Ledger:
        """The cost of both in the same iterations, one after the other in each."""
        names = [field.name for field in fields(self)]
        both = {name: (getattr(self, name), getattr(other, name)) for name in names}
        return Ledger(**{name: _as_wide(np.add, *pair) for name, pair in both.items()})

    def where(self, happens: BoolArray) -> Ledger:
        """A single iteration's ledger in those of n iterations, bool [n], in which it happens."""

        def placed(one: FloatArray) -> FloatArray:
            if not one.any():
                return np.broadcast_to(one, (len(happens), *one.shape[1:]))
            return np.asarray(one * happens.reshape(-1, *(1,) * (one.ndim - 1)))

        return self._each(placed)

    def tiled(self, iterations: int) -> Ledger:
        """One iteration's ledger, as that of several that are all alike (views, not copies)."""
        return self._each(lambda one: np.broadcast_to(one, (iterations, *one.shape[1:])))

    def then(self, *later: Ledger) -> Ledger:
        """This ledger, followed by others."""
        return Ledger.joined([self, *later])

    @classmethod
    def joined(cls, parts: Sequence[Ledger]) -> Ledger:
        """Ledgers of iterations that follow each other."""
        names = [field.name for field in fields(cls)]
        columns = {name: [getattr(part, name) for part in parts] for name in names}
        return cls(**{name: np.concatenate(each) for name, each in columns.items()})

    def with_server(self) -> Ledger:
        """The same with one device more, a server, that pays what no battery does."""
        zeros = np.zeros((self.iterations, 1))
        wide = {
            field.name: np.hstack([getattr(self, field.name), zeros]) for field in fields(self)[:-3]
        }
        wide["transmit_j"][:, -1] = self.server_j
        return replace(self, **wide, server_j=zeros[:, 0])

    def served_by(self, device: int) -> Ledger:
        """The same without the last device, a server, whose radio no battery pays."""
        wide = {field.name: getattr(self, field.name)[:, :device] for field in fields(self)[:-3]}
        return replace(self, **wide, server_j=self.exchange_j[:, device])

    def resting(self, idle_w: FloatArray | None, seconds: FloatArray, who: Any = True) -> Ledger:
        """The same with other seconds [n], in which some, bool [n, N], draw power at rest."""
        if idle_w is None:
            return replace(self, seconds=seconds)
        idle_j = np.where(who, seconds[:, None] * idle_w, 0.0)
        return replace(self, seconds=seconds, idle_j=idle_j)

    def _each(self, change: Callable[[FloatArray], FloatArray]) -> Ledger:
        return Ledger(**{field.name: change(getattr(self, field.name)) for field in fields(self)})


def charge(
    devices: DeviceArrays,
    rounds: int | IntArray,
    exchange: Ledger,
    *,
    own_samples: FloatArray | None = None,
    who: Any = True,
    window_s: FloatArray | None = None,
) -> Ledger:
    """The ledger of iterations: training, then an exchange, and rest all the while.

    ``window_s`` [n] is for how long each iteration trains, if devices use that time to run slower;
    without it, all run at full clock.
    """
    # An iteration is as long as its slowest training and the exchange. Whoever takes part draws its
    # power at rest for the whole of it.
    n = exchange.iterations
    rounds = np.asarray(rounds)
    if window_s is not None:
        compute_j = paced_j(devices, rounds, window_s)
        made = replace(exchange, compute_j=compute_j)
        return made.resting(devices.idle_w, np.asarray(window_s + exchange.seconds), who)
    wide = (n, len(devices.round_energy_j))
    if rounds.ndim < 2 or len(rounds) == 1:
        rounds = np.broadcast_to(rounds, wide[1:] if rounds.ndim < 2 else (1, wide[1]))
        compute_j = np.broadcast_to(rounds * devices.round_energy_j, wide)
        seconds = np.max(rounds * devices.round_latency_s, axis=-1) + exchange.seconds
    else:
        compute_j = rounds * devices.round_energy_j
        seconds = slowest_s(rounds, devices.round_latency_s) + exchange.seconds
    if own_samples is not None:
        share = own_samples / devices.round_samples
        compute_j = compute_j + share * devices.round_energy_j
        seconds = seconds + (share * devices.round_latency_s).max(axis=1)
    made = replace(exchange, compute_j=np.asarray(compute_j))
    return made.resting(devices.idle_w, np.asarray(seconds), who)


def paced_j(devices: DeviceArrays, rounds: ArrayLike, window_s: FloatArray) -> FloatArray:
    """Joules [n, N] of some rounds whose devices run as slowly as window_s [n] leaves time for."""
    prices, work = devices.round_prices, np.asarray(rounds)
    joules = np.empty((len(window_s), len(devices.round_energy_j)))
    height = max(1, _BLOCK // joules.shape[1])
    for first in range(0, len(joules), height):
        rows = slice(first, first + height)
        taken_s = prices.stretched_s(work[rows], window_s[rows])
        joules[rows] = prices.joules(work[rows], taken_s)
    return joules


def just_in_time(devices: DeviceArrays, ledger: Ledger) -> Ledger:
    """A ledger at full clock, with devices that compute no faster than the slowest needs.

    Each finishes what it computes in an iteration when the slowest does, or at its slowest clock.
    """
    rounds = ledger.compute_j / devices.round_energy_j
    paced = paced_j(devices, rounds, slowest_s(rounds, devices.round_latency_s))
    return replace(ledger, compute_j=np.minimum(paced, ledger.compute_j))


def slowest_s(rounds: NDArray[Any], round_s: FloatArray) -> FloatArray:
    """Seconds of the slowest training in each iteration, float64 [n]."""
    height = max(1, _BLOCK // max(1, len(round_s)))  # products of all rows are a plan's memory
    parts = [
        (rounds[first : first + height] * round_s).max(axis=1)
        for first in range(0, len(rounds), height)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def alike(column: NDArray[Any]) -> bool:
    """Are all rows views of one?"""
    return len(column) > 0 and (column.strides[0] == 0 or len(column) == 1)


def total_of(column: FloatArray) -> FloatArray:
    """The sum over iterations, of rows that are alike in one step."""
    if alike(column):
        return np.asarray(column[0] * len(column))
    return np.asarray(column.sum(axis=0))


def _as_wide(of: Callable[..., Any], first: FloatArray, second: FloatArray) -> FloatArray:
    """An operation on two columns whose rows may be alike; those of the result then are, too."""
    if alike(first) and alike(second):
        n = max(len(first), len(second))
        return np.broadcast_to(of(first[:1], second[:1]), (n, *first.shape[1:]))
    if not second.any() and len(second) <= len(first):
        return first
    return np.asarray(of(first, second))
