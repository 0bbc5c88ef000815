"""How much is read of what other devices of a fleet, or its operator, may have sent."""

from __future__ import annotations

__all__ = ["FLEET", "HOST_LIST", "JOURNAL", "JOURNAL_LINE", "NODE_STATE", "Limit"]

import sys
from dataclasses import dataclass

from joulemesh import machine

_MIB = 2**20


@dataclass(frozen=True)
class Limit:
    """The most that is read of one kind of file.

    Attributes:
        most: bytes, whatever the machine has.
        part: at most one part in this many of the memory that the process may use, as well.
    """

    most: int = sys.maxsize
    part: int = 0

    @property
    def now(self) -> int:
        """The figure on this machine, in its control group, within its resource limits.

        >>> FLEET.now
        33554432
        >>> NODE_STATE.now <= machine.memory_bytes() // 2
        True
        """
        return min(self.most, machine.memory_bytes() // self.part) if self.part else self.most


JOURNAL = Limit(1024 * _MIB)  # nodes begin a new one at 8 MB
JOURNAL_LINE = Limit(4 * _MIB)  # a view of 100,000 members fits
NODE_STATE = Limit(part=2)
FLEET = Limit(32 * _MIB)  # a scenario, 100,000 links and tables of 10 MiB fit
HOST_LIST = Limit(4 * _MIB)  # a row takes 40 bytes
