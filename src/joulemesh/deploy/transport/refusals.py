"""Refusals, reported without giving strangers a way to fill a journal."""

from __future__ import annotations

__all__ = ["Refusals"]

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from joulemesh.deploy.transport import Reason, Refusal

_QUIET_S = 10.0
_KINDS = 256


class Refusals:
    """Counts refusals. The first of a kind is reported at once, later ones at most every 10 s.

    A kind is a reason together with the name in the certificate, or the machine where there is
    none. Of strangers from very many places only the reasons are told apart.

    Args:
        report: told of them.
        clock: gives seconds.

    >>> seen, now = [], [0.0]
    >>> refusals = Refusals(seen.append, clock=lambda: now[0])
    >>> for at in (0.0, 1.0, 2.0, 11.0):
    ...     now[0] = at
    ...     refusals.add(Refusal(Reason.NO_CERTIFICATE, "none", address="10.0.0.9:4711"))
    >>> [refusal.count for refusal in seen], refusals.counts[Reason.NO_CERTIFICATE]
    ([1, 3], 4)
    """

    def __init__(
        self, report: Callable[[Refusal], None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._clock = report, clock
        self.counts: Counter[Reason] = Counter()
        """All refusals so far, by reason."""
        self._since: Counter[tuple[Reason, str]] = Counter()
        self._reported: dict[tuple[Reason, str], float] = {}

    def add(self, refusal: Refusal) -> None:
        """Take note of one."""
        self.counts[refusal.reason] += 1
        kind = (refusal.reason, refusal.peer or refusal.address.rpartition(":")[0])
        if kind not in self._reported and len(self._reported) >= _KINDS:
            kind = (refusal.reason, "")
        self._since[kind] += 1
        now = self._clock()
        if now - self._reported.get(kind, -_QUIET_S) >= _QUIET_S:
            self._reported[kind] = now
            self._report(replace(refusal, count=self._since.pop(kind)))
