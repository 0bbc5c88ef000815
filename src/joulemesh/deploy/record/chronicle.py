"""What the histories of all devices tell together: views, presence, learning, rates of links."""

from __future__ import annotations

__all__ = ["LinkRate", "Seen", "accuracies", "disagreements", "link_rates", "presence", "views_of"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.history import Event, History, Sent
from joulemesh.deploy.view import View

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """A view, and who installed it when.

    Attributes:
        view: as the first device that installed it wrote it down.
        first_at: when that was, in Unix seconds by that device's clock.
        last_at: when the last one did.
        devices: who did.
    """

    view: View
    first_at: float
    last_at: float
    devices: tuple[int, ...]


def views_of(histories: Sequence[History]) -> tuple[Seen, ...]:
    """The views that were installed after the plan's own, by number."""
    found: dict[int, list[tuple[Event, View]]] = {}
    for event, view in _view_events(histories):
        found.setdefault(view.number, []).append((event, view))
    made = []
    for _, seen in sorted(found.items()):
        seen.sort(key=lambda one: one[0].at)
        devices = tuple(sorted({event.device for event, _ in seen}))
        made.append(Seen(seen[0][1], seen[0][0].at, seen[-1][0].at, devices))
    return tuple(made)


def _view_events(histories: Sequence[History]) -> list[tuple[Event, View]]:
    made = []
    for event in (event for one in histories for event in one.events if event.kind == "view"):
        try:
            view = _view(event)
        except (KeyError, TypeError, ValueError):
            continue  # of another version; it stands among the events all the same
        if view.number > 0:
            made.append((event, view))
    return made


def _view(event: Event) -> View:
    said = event.figures
    cut, gifts = (
        tuple((int(a), int(b)) for a, b in said.get(name, ())) for name in ("cut", "gifts")
    )
    return View(
        number=int(said["number"]),
        start=max(1, int(said["start"])),
        members=tuple(int(one) for one in said["members"]),
        left_j=tuple(float(one) for one in said.get("left_j", ())),
        elapsed_s=float(said.get("elapsed_s", 0.0)),
        digest=str(said.get("digest", "")),
        cut=cut,
        gifts=gifts,
        pace=tuple(float(one) for one in said.get("pace", ())),
    )


def disagreements(histories: Sequence[History]) -> tuple[str, ...]:
    """Views of one number that devices wrote down differently; there must be none.

    >>> disagreements([])
    ()
    """
    told: dict[int, dict[tuple[int, tuple[int, ...], str], str]] = {}
    names = {one.device: one.name for one in histories}
    for event, view in _view_events(histories):
        content = (view.start, view.members, view.digest)
        told.setdefault(view.number, {}).setdefault(content, names[event.device])
    return tuple(
        f"view {number} is not the same on {' and '.join(versions.values())}"
        for number, versions in sorted(told.items())
        if len(versions) > 1
    )


def presence(history: History) -> list[tuple[float, float]]:
    """When a device's node was running: from each start to the last line before the next one."""
    if np.isnan(history.first_at):
        return []
    written = np.sort(
        np.concatenate(
            [
                history.column("at"),
                history.evaluations[:, 2],
                [event.at for event in history.events],
                [history.first_at, history.last_at],
            ]
        )
    )
    begins = sorted({start.at for start in history.starts} | {history.first_at})
    spans = []
    for k, begin in enumerate(begins):
        end = begins[k + 1] if k + 1 < len(begins) else np.inf
        own = written[(written >= begin) & (written < end)]
        spans.append((begin, float(own[-1])))
    return spans


def accuracies(histories: Sequence[History]) -> tuple[NDArray[np.int64], FloatArray]:
    """What the devices measured of their models.

    Returns:
        int64 [e], the iterations in which anybody measured, and float64 [e, N], their accuracy;
        NaN where a device did not measure.
    """
    when = [one.evaluations[:, 0].astype(np.int64) for one in histories]
    iterations = np.unique(np.concatenate([*when, np.zeros(0, np.int64)]))
    values = np.full((len(iterations), len(histories)), np.nan)
    for place, one in enumerate(histories):
        values[np.searchsorted(iterations, when[place]), place] = one.evaluations[:, 1]
    return iterations, values


@dataclass(frozen=True)
class LinkRate:
    """One direction of a link: what the plan expects of it, and what it carried.

    Attributes:
        sender: who sends.
        receiver: who receives.
        planned_bps: bits per second by the plan; None if the two are not linked in it.
        sent: what was sent, by the sender's journal.
    """

    sender: int
    receiver: int
    planned_bps: float | None
    sent: Sent

    @property
    def share(self) -> float | None:
        """The measured rate as a share of the planned one; None where either is not known.

        >>> LinkRate(0, 1, 1e7, Sent(1e6, 1.0, 2)).share
        0.8
        """
        measured = self.sent.rate_bps
        return measured / self.planned_bps if measured and self.planned_bps else None


def link_rates(plan: Plan, histories: Sequence[History]) -> tuple[LinkRate, ...]:
    """Every direction of a link that carried something, with its planned rate.

    Under fading the plan's rate is that of its forecast.
    """
    edges = plan.world.graph.edges
    there_bps, back_bps = plan.ground.forecast_at(0, np.arange(len(edges))).payload_bps()
    planned = {
        (int(i), int(j)): rate
        for pairs, rows in ((edges, there_bps), (edges[:, ::-1], back_bps))
        for (i, j), rate in zip(pairs.tolist(), rows.tolist(), strict=True)
    }
    return tuple(
        LinkRate(one.device, to, planned.get((one.device, to)), sent)
        for one in histories
        for to, sent in one.sent.items()
    )
