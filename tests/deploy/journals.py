"""Journals as a fleet writes them, made from a plan without running one: with noise and faults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.deploy.record.receipt import Costs, planned
from joulemesh.deploy.view import View
from joulemesh.planning.plan import Plan

BEGUN = 1_800_000_000.0
MODELLED = "modelled: joules per round and per byte"


@dataclass(frozen=True)
class Outage:
    """A device that is killed after an iteration and is back some iterations later.

    Attributes:
        device: who.
        after: its last iteration.
        back: the first iteration after its return; None if it never returns.
        patience_s: how long the others wait for it.
    """

    device: int
    after: int
    back: int | None = None
    patience_s: float = 2.0


@dataclass
class Fleet:
    """A made-up deployment of a plan."""

    plan: Plan
    names: Sequence[str]
    outages: Sequence[Outage] = ()
    seed: int = 0
    every: int = 5
    costs: Costs = field(init=False)

    def __post_init__(self) -> None:
        self.costs = planned(self.plan)
        self.random = np.random.default_rng(self.seed)
        edges = self.plan.world.graph.edges
        rates = self.plan.ground.forecast_at(0, np.arange(len(edges))).payload_bps()
        self.latest: tuple[Any, dict[int, dict[int, float]]] = (None, {})
        self.rates: dict[tuple[int, int], float] = {}
        for (i, j), there, back in zip(edges.tolist(), *map(np.ndarray.tolist, rates), strict=True):
            self.rates[i, j], self.rates[j, i] = there, back

    def views(self) -> list[View]:
        """The views after view 0, in order of their starts."""
        changes: list[tuple[int, Outage, bool]] = []
        for one in self.outages:
            changes.append((one.after + 1, one, False))
            if one.back is not None:
                changes.append((one.back, one, True))
        members, made = set(range(len(self.names))), []
        for number, (start, one, joins) in enumerate(sorted(changes, key=lambda c: c[0]), 1):
            members = members | {one.device} if joins else members - {one.device}
            giver = min(members - {one.device})
            gifts = ((one.device, giver),) if joins else ()
            made.append(View(number, start, tuple(sorted(members)), gifts=gifts, digest="ab" * 32))
        return made

    def began(self) -> np.ndarray[Any, Any]:
        """When each iteration begins: the plan's seconds, a little more, and the waits."""
        took = np.nanmax(self.costs.seconds, axis=1) * self.random.uniform(1.02, 1.1)
        for one in self.outages:
            took[min(one.after, len(took) - 1)] += one.patience_s
        return BEGUN + 1.5 + np.concatenate([[0.0], np.cumsum(took)])

    def lines(self, device: int, began: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
        """The journal of one device."""
        start = {"device": device, "name": self.names[device], "fleet": "farm", "plan": "ab" * 32,
                 "version": "0.2.0", "meter": MODELLED, "battery_j": 6.0}  # fmt: skip
        yield {"at": BEGUN, "t": 0.0, "kind": "start", "incarnation": 1, "iteration": 0, **start}
        mine = next((one for one in self.outages if one.device == device), None)
        views, number, spent = self.views(), 0, 0.0
        for t in range(self.plan.iterations):
            gone = mine is not None and t >= mine.after
            if gone and mine is not None and (mine.back is None or t + 1 < mine.back):
                continue
            if mine is not None and t + 1 == mine.back:
                yield {"at": began[t] - 0.3, "kind": "start", "incarnation": 2,
                       "iteration": mine.after, **start}  # fmt: skip
                yield {"at": began[t], "kind": "gift", "iteration": t, "giver": 0}
            for view in views:
                if view.start == t + 1:
                    lost = [one for one in self.outages if one.after == t]
                    for one in lost if device != 0 else []:
                        reason = f"no beat for {one.patience_s:g} s"
                        at = began[t] + one.patience_s - 0.2
                        who = {"device": one.device, "reason": reason}
                        yield {"at": at, "kind": "suspected", **who}
                    at = began[t] + (0.0 if view.gifts else 2.0)
                    yield {"at": at, "kind": "view", **asdict(view)}
                    number = view.number
            spent += yield from self._iteration(device, t, number, spent, began)
        ended = mine is None or mine.back is not None
        if ended:
            yield {"at": began[-1], "kind": "end", "reason": "the plan was carried out",
                   "complete": True, "resumable": False}  # fmt: skip

    def _iteration(
        self, device: int, t: int, view: int, spent: float, began: np.ndarray[Any, Any]
    ) -> Any:
        noise = self.random.normal(1.0, 0.03, 3).tolist()
        train_j = float(np.nan_to_num(self.costs.train_j[t, device]))
        exchange_j = float(np.nan_to_num(self.costs.exchange_j[t, device])) * noise[0]
        train_s = float(np.nan_to_num(self.costs.train_s[t, device])) * noise[1]
        took = began[t + 1] - began[t]
        sent = {
            str(to): [bits / 8, bits / (0.9 * self.rates[device, to]) * noise[2], 1]
            for to, bits in self._messages(t).get(device, {}).items()
        }
        yield {
            "at": began[t] + train_s, "kind": "trained", "iteration": t + 1,
            "rounds": int(self.plan.rounds[t, device]), "joules": train_j, "seconds": train_s,
        }  # fmt: skip
        yield {
            "at": began[t + 1], "kind": "committed", "iteration": t + 1, "view": view,
            "rounds": int(self.plan.rounds[t, device]), "train_j": train_j, "train_s": train_s,
            "exchange_j": exchange_j, "exchange_s": max(0.0, took - train_s),
            "spent_j": spent + train_j + exchange_j, "left_j": 6.0 - spent, "elapsed_s": 1.0,
            "absent": [], "sent": sent, "received": {},
        }  # fmt: skip
        if (t + 1) % self.every == 0 or t + 1 == self.plan.iterations:
            accuracy = 0.95 - 0.8 * float(np.exp(-t / 25)) + 0.004 * (noise[0] - 1)
            yield {"at": began[t + 1] + 0.02, "kind": "evaluated", "iteration": t + 1,
                   "accuracy": accuracy, "loss": 1 - accuracy}  # fmt: skip
        return train_j + exchange_j

    def _messages(self, t: int) -> dict[int, dict[int, float]]:
        """Bits from sender to receiver in an iteration."""
        route = self.plan.route(t + 1)
        if route is not self.latest[0]:
            sent: dict[int, dict[int, float]] = {}
            for _, sender, receiver, bits in route.messages() if route is not None else ():
                to = sent.setdefault(sender, {})
                to[receiver] = to.get(receiver, 0.0) + bits
            self.latest = (route, sent)
        return self.latest[1]

    def write(self, folder: Path) -> None:
        """Write every device's journal to ``folder/NAME/journal.jsonl``."""
        began = self.began()
        for device, name in enumerate(self.names):
            place = folder / name
            place.mkdir(parents=True)
            text = "".join(f"{json.dumps(line)}\n" for line in self.lines(device, began))
            (place / "journal.jsonl").write_text(text, "utf-8")
