"""Exchanges whose messages are rounded or quantised: what they do to all devices' parameters.

Without rounding an exchange is a matrix. With it the order of the operations matters, and even
their form: sums of rounded numbers often lie midway between two others. A `RoundedExchange` is the
operations themselves, recorded from the devices' own rules (`joulemesh.training.recorded`), so that
training ends with what devices in the field end with.

Quantised exchanges average what has changed since the last average, and what messages lose is owed
(`joulemesh.aggregation.peer.QuantisedPeer`): registers begin with each device's change and what it
owes, and end with the change of the average and what each owes from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.bits import bits_of
from joulemesh.base.errors import ScenarioError

IntArray = NDArray[np.int32]


FIELDS = ("target", "first", "second", "sign", "factor", "divisor", "rounds", "output", "owed")
_ENDS = ("output", "owed")


@dataclass(frozen=True, eq=False)
class RoundedExchange:
    """What one exchange does, in C parts of the parameters (as ``numpy.array_split`` cuts them).

    Registers hold a vector each; at first register i holds the parameters of device i. Then, one
    after another, I operations

        register[target] ← (register[first] + sign · register[second]) · factor / divisor

    are carried out in the precision of the parameters, and rounded to that of messages where
    ``rounds`` says so.
    """

    target: IntArray  # int32 [C, I]: registers
    first: IntArray  # int32 [C, I]: registers
    second: IntArray  # int32 [C, I]: registers
    sign: NDArray[np.float64]  # float64 [C, I]: 1, −1, or 0 for ``first`` alone
    factor: NDArray[np.float64]  # float64 [C, I]; one of them is 1
    divisor: NDArray[np.float64]  # float64 [C, I]; one of them is 1
    rounds: NDArray[np.bool_]  # bool [C, I]
    output: IntArray  # int32 [C, N]: the register that holds each device's parameters in the end
    owed: IntArray  # int32 [C, D]: the register of what each of D devices owes: of all, or none
    registers: int  # their number R

    @property
    def parts(self) -> int:
        return len(self.target)

    @property
    def length(self) -> int:
        return int(self.target.shape[1])

    def same(self, other: RoundedExchange) -> bool:
        return all(np.array_equal(getattr(self, one), getattr(other, one)) for one in FIELDS)

    def padded(self, parts: int, length: int) -> RoundedExchange:
        """The same with more parts (of one that all share) and operations that change nothing."""
        more = length - self.length
        fill = {"factor": 1.0, "divisor": 1.0}  # register 0 ← register 0

        def wide(name: str) -> NDArray[Any]:
            values = getattr(self, name)
            tail = 0 if name in _ENDS else more
            longer = np.pad(values, ((0, 0), (0, tail)), constant_values=fill.get(name, 0))
            return np.broadcast_to(longer, (parts, longer.shape[1]))

        columns: dict[str, Any] = {name: wide(name) for name in FIELDS}
        return RoundedExchange(**columns, registers=self.registers)


class RoundedExchanges:
    """The rounded exchanges of n iterations, all in one form."""

    def __init__(self, each: Sequence[RoundedExchange | None], wire: str) -> None:
        self.wire = wire
        distinct: list[RoundedExchange] = []
        self._which = np.zeros(len(each), np.int64)
        known: dict[int, int] = {}
        for t, one in enumerate(each):
            if one is None:
                continue
            if id(one) not in known:
                known[id(one)] = len(distinct)
                distinct.append(one)
            self._which[t] = known[id(one)]
        shared = set() if bits_of(wire) else {1}  # parts whose numbers share units stay apart
        counts = {one.parts for one in distinct} - shared
        if len(counts) > 1:
            remedy = "plan.bits" if bits_of(wire) else "network.bits_per_parameter"
            raise ScenarioError(
                f"messages are rounded in exchanges of {' and '.join(map(str, sorted(counts)))} "
                "parts, which one training cannot mix; use a scheme without chunks, for instance "
                f'plan.aggregation = "tree", or {remedy} = 32'
            )
        self.parts = max(counts, default=1)
        length = max((one.length for one in distinct), default=0)
        self.registers = max((one.registers for one in distinct), default=0)
        self._each = [one.padded(self.parts, length) for one in distinct]

    def __len__(self) -> int:
        """Number n of iterations."""
        return len(self._which)

    @property
    def static(self) -> bool:
        return len(self._each) == 1

    def at(self, iteration: int) -> RoundedExchange:
        """The exchange of an iteration (from 0)."""
        return self._each[int(self._which[iteration])]

    def digested(self) -> Iterator[bytes]:
        yield self.wire.encode()
        yield self._which.tobytes()
        for one in self._each:
            yield from (np.ascontiguousarray(getattr(one, name)).tobytes() for name in FIELDS)
