"""The time lines of a few iterations, as few bars as a page can show."""

from __future__ import annotations

__all__ = ["gantt_data", "iteration_data"]

from dataclasses import replace
from typing import Any

import numpy as np

from joulemesh.errors import ScenarioError
from joulemesh.planning.drafting import Draft
from joulemesh.planning.gantt import Gantt
from joulemesh.planning.plan import Plan

_MOST_BARS = 3_000
_MOST_ROWS = 60


def gantt_data(plan: Plan) -> list[dict[str, Any]]:
    """What ``gantt.js`` draws: the first iteration that exchanges, and the longest.

    With many messages, plays and chunks of a transmission are one bar; with many devices, those
    that finish last have a row (``shown``).

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> [one["title"] for one in gantt_data(made)]
    ['iteration 1', 'iteration 72 (the longest)']
    """
    exchanging = np.flatnonzero(plan.exchanged)
    first = int(exchanging[0]) if len(exchanging) else 0
    seconds = plan.planned.latency_s
    longest = int(np.argmax(seconds))
    rows = [first] if seconds[longest] <= seconds[first] * (1 + 1e-9) else [first, longest]
    titles = [f"iteration {first + 1}", f"iteration {longest + 1} (the longest)"]
    return [
        {"title": title, **chart}
        for title, row in zip(titles, rows, strict=False)
        if (chart := iteration_data(plan, row + 1)) is not None
    ]


def iteration_data(plan: Plan, iteration: int, most: int = _MOST_BARS) -> dict[str, Any] | None:
    """One iteration (1..n) with few bars; None where it sends more messages than can be looked at.

    Args:
        plan: the plan.
        iteration: which.
        most: bars that may be drawn.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> iteration_data(made, 7)["iteration"]
    7
    """
    if not 1 <= iteration <= plan.iterations:
        raise ScenarioError(f"iteration {iteration} is not one of 1..{plan.iterations}")
    try:
        draft = _draft(plan, iteration, most)
    except ScenarioError:  # of very many messages no time line is drawn
        return None
    shown = _last(draft, most)
    chart = draft.gantt(shown)
    bars = tuple(bar for bar in chart.bars if bar.kind != "rest")
    return {**_short(replace(chart, bars=bars[:most], names=())), "shown": shown}


def _draft(plan: Plan, iteration: int, most: int) -> Draft:
    """Every message, or with many of them every transmission of the pattern."""
    route = plan.route(iteration)
    crowded = route is not None and 2 * route.count > most
    return Draft(plan, iteration, merged=crowded)


def _last(draft: Draft, most: int) -> list[int]:
    """All devices, or of many those that finish last, by their numbers."""
    devices, bars = len(draft.counts), int(draft.counts.sum()) + len(draft.resting)
    if devices <= _MOST_ROWS and bars <= most:
        return list(range(devices))
    order = np.argsort(-draft.until_s, kind="stable")
    order = order[draft.counts[order] > 0]
    fitting = max(1, int(np.searchsorted(np.cumsum(draft.counts[order]), most, side="right")))
    return sorted(order[: min(_MOST_ROWS, fitting)].tolist())


def _short(chart: Gantt) -> dict[str, Any]:
    """As plain values, the figures of the bars with few digits."""
    data = chart.to_dict()
    for bar in data["bars"]:
        for name in ("ready_s", "start_s", "end_s", "joules"):
            bar[name] = float(f"{bar[name]:.9g}")
    return data
