"""Methods under traces: walked through one iteration after another.

Who is there by the trace takes part. Batteries hold their first charge and what they have harvested
so far, and nothing else is spent:

    - on equal batteries a method ends before the first iteration that some battery cannot pay;
    - otherwise, where batteries recharge, a device that cannot pay for an iteration sits it out
      until it can, if ``plan.on_depletion = "leave"``; if not, an equal budget ends before it, and
      equal iterations and equal time are refused.

Where nothing recharges, batteries are as they are without traces. The planned methods have a walk
of their own (`joulemesh.planning.traced`), with the same traces, prices and batteries.
"""

from __future__ import annotations

__all__ = ["Walked", "walk"]

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.countable import require_countable
from joulemesh.errors import InfeasibleError, ScenarioError
from joulemesh.ledger import Ledger, charge, total_of
from joulemesh.methods.base import Contender, FloatArray, IntArray
from joulemesh.methods.horizon import notes_on, refusal
from joulemesh.methods.moment import Act, Follow, Moment
from joulemesh.planning.recharge import recharged
from joulemesh.setup.from_plan import MOST_ENTRIES, someone
from joulemesh.tolerance import left_of, within
from joulemesh.training.schedule import Mixing, Schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from joulemesh.methods.setting import Setting
    from joulemesh.training.exchange import Exchange

BoolArray = NDArray[np.bool_]

_MOST = 100_000  # iterations that are walked through


@dataclass(frozen=True, eq=False)
class Walked:
    """The iterations of a method under traces.

    Attributes:
        setting: the terms of the comparison.
        moments: what was known at the beginning of every iteration, of those who took part.
        acts: what the method did.
        ledger: what that cost.
    """

    setting: Setting
    moments: tuple[Moment, ...]
    acts: tuple[Act, ...]
    ledger: Ledger

    @property
    def supplied_j(self) -> FloatArray:
        """float64 [N]: the batteries' first charge and all that they have gained."""
        return self.setting.battery_j + total_of(self.ledger.harvested_j)

    @property
    def rounds(self) -> IntArray:
        """int64 [n, N]."""
        return np.stack([act.rounds for act in self.acts])

    @property
    def active(self) -> BoolArray:
        """bool [n, N]: who takes part."""
        return np.stack([now.who for now in self.moments])

    def contender(
        self,
        name: str,
        *,
        exchange: Exchange | None = None,
        settle: Callable[[Any], Ledger] | None = None,
        notes: Sequence[str] = (),
    ) -> Contender:
        """The method, ready to be trained.

        Args:
            name: as the user wrote it.
            exchange: the method's own exchange; it takes place whenever somebody takes part.
            settle: see `Contender`.
            notes: what a reader of the results should know.
        """
        active = self.active
        own, mixing = exchange is not None, self._mixing()
        exact = [act.exact and mixing != "mean" for act in self.acts]
        schedule = Schedule(
            self.rounds.astype(np.int32),
            someone(active),
            np.asarray(active.any(axis=1) if own else self.ledger.bits > 0, bool),
            mixing=mixing,
            exact=np.array(exact, bool),
        )
        often, n = active.sum(axis=0), len(active)
        there = f"devices take part in {often.min()} to {often.max()} of {n} iterations"
        more = notes_on(
            self.setting, self.ledger, at_most=settle is not None, battery_j=self.supplied_j
        )
        return Contender(
            name,
            schedule,
            exchange,
            self.ledger,
            self.supplied_j,
            (*notes, there, *more),
            settle,
            traced=True,
        )

    def _mixing(self) -> Mixing:
        """The mean, where no exchange has another matrix; otherwise each iteration's matrix."""
        acts, moments = self.acts, self.moments
        if all(act.exact or act.matrix is None for act in acts):
            return "mean"
        held, devices = self.setting.scenario.training.chunk_iterations, self.setting.devices
        if held * devices**2 > MOST_ENTRIES:
            raise ScenarioError(
                f"who takes part changes, and {held} mixing matrices of {devices} devices are more "
                f"than {MOST_ENTRIES:,} numbers; lower training.chunk_iterations, use fewer "
                "devices, or leave the traces out"
            )

        def matrix(t: int) -> FloatArray:
            made = acts[t].matrix
            if acts[t].exact:
                return moments[t].mean()
            return np.eye(devices) if made is None else made()

        return matrix

    def priced(self, sent: Callable[[Moment], Ledger], own_samples: FloatArray) -> Ledger:
        """The ledger with other messages and another computation of the method's own.

        Args:
            sent: what the messages of an iteration cost.
            own_samples: [n, N]: what the method itself computed, in samples of training.
        """
        rows = [
            _row(self.setting, replace(act, sent=sent(now), own_samples=own), now.who)
            for act, now, own in zip(self.acts, self.moments, own_samples, strict=True)
        ]
        return Ledger.joined(rows)


def walk(
    setting: Setting,
    name: str,
    follow: Follow,
    *,
    last: Follow | None = None,
    most: int | None = None,
) -> Walked:
    """Walk through the iterations of a method, for as long as it may run.

    Args:
        setting: says what is equal, and the budgets.
        name: of the method.
        follow: what it does in an iteration.
        last: what it does in its last one, if that is something else: joules and seconds for it
            are kept, at the price that it has now.
        most: iterations after which it ends; on equal iterations, their number.

    Raises:
        InfeasibleError: not even the first iteration can be paid.

    >>> from joulemesh import Scenario
    >>> from joulemesh.methods.moment import Mixings
    >>> from joulemesh.methods.setting import Setting
    >>> gone = Setting(Scenario.preset("adaptive").override({"devices.leave": [[3, 41]]}))
    >>> mixings = Mixings(gone.work.model_bits)
    >>> walked = walk(gone, "mine", lambda now: mixings.act(now, now.rounds(2)))
    >>> walked.rounds[39:41, 3].tolist()
    [2, 0]
    """
    return _Walk(setting, name, follow, last, most).walked()


def _row(setting: Setting, act: Act, who: BoolArray) -> Ledger:
    """The ledger of one iteration; who takes no part pays nothing."""
    own = None if act.own_samples is None else act.own_samples[None]
    devices = setting.world.devices
    return charge(devices, act.rounds[None], act.sent, own_samples=own, who=who)


class _Walk:
    def __init__(
        self, setting: Setting, name: str, follow: Follow, last: Follow | None, most: int | None
    ) -> None:
        self.setting, self.name, self.follow, self.last = setting, name, follow, last
        self.traces, self.motion = setting.world.traces, setting.world.motion
        leaves = setting.scenario.plan.on_depletion == "leave"
        self.sits_out = self.traces.harvests and leaves and setting.equal != "batteries"
        self.ends = setting.limits_energy and not self.sits_out
        self.most = setting.iterations if setting.equal == "iterations" else most
        self.battery = setting.battery_j.copy()
        self.elapsed_s = 0.0
        limit_s = setting.limit_s if setting.limits_time else 0.0  # otherwise never looked at
        self.left_s = np.array([limit_s])
        self.moments: list[Moment] = []
        self.acts: list[Act] = []
        self.rows: list[Ledger] = []
        self.memory: Any = None

    def walked(self) -> Walked:
        while not self._step():
            if len(self.rows) >= _MOST:
                raise ScenarioError(
                    f"{self.name} goes on for more than {_MOST:,} iterations under these traces; "
                    "use --equal budget, or lower budget.energy_j"
                )
        ledger = Ledger.joined(self.rows)
        return Walked(self.setting, tuple(self.moments), tuple(self.acts), ledger)

    def _step(self) -> bool:
        """Take one iteration; whether the walk is over."""
        t = len(self.rows)
        if t == self.most:
            return True
        known = self._moment(t)
        now, act, row = self._settled(known, self.follow)
        if self.last is not None:
            end = self._settled(known, self.last)
            if t + 1 == self.most or (self.most is None and not self._pays(row, end[2])):
                now, act, row = end
                self.most = t + 1
        if not self._pays(row):
            if not self.rows:
                raise refusal(self.setting, self.name, row)
            return True
        self._require_held(now, row)
        self._take(now, act, row)
        return False

    def _moment(self, t: int) -> Moment:
        """What is known when an iteration begins."""
        graph = self.setting.world.graph
        who = np.ones(self.setting.devices, np.bool_)
        gone, present = self.traces.gone(t), self.traces.present(t, self.elapsed_s)
        who = who if gone is None else who & ~gone
        who = who if present is None else who & present
        snapshot, cut = None, np.zeros(len(graph.edges), np.bool_)
        if self.motion is not None:
            snapshot = self.traces.snapshot(t, self.elapsed_s)
            cut = ~self.motion.exists(snapshot)
        return Moment(self.setting, t, who, cut, snapshot, self.battery.copy(), self.memory)

    def _settled(self, now: Moment, follow: Follow) -> tuple[Moment, Act, Ledger]:
        """What is done by those who can pay for it, where the others sit out."""
        while now.who.any():
            act = follow(now)
            if act.who is not None:
                now = now.among(act.who)
            row = _row(self.setting, act, now.who)
            broke = now.who & ~within(self.battery, row.energy_j[0])
            if not self.sits_out or not broke.any():
                require_countable(act.rounds, f"give {self.name.partition(':')[0]} fewer rounds")
                return now, act, row
            now = now.among(now.who & ~broke)
        nobody = replace(now.price(None), seconds=np.array([self._wait_s()]))
        idle = Act(now.rounds(0), nobody, memory=now.memory)
        return now, idle, _row(self.setting, idle, now.who)

    def _wait_s(self) -> float:
        """Seconds of an iteration that passes without anybody."""
        deadline_s, total_s = self.setting.deadline_s, self.setting.total_s
        if deadline_s is not None or total_s is None:
            return deadline_s or 0.0
        return total_s / self.setting.iterations

    def _pays(self, *rows: Ledger) -> bool:
        """Do the batteries, where they end the method, and the clock pay for some iterations?"""
        if self.setting.limits_time:
            seconds = (row.seconds for row in rows)
            if not within(self.left_s, *seconds).all():
                return False
        joules = (row.energy_j[0] for row in rows)
        return not self.ends or bool(within(self.battery, *joules).all())

    def _require_held(self, now: Moment, row: Ledger) -> None:
        """Refuse to spend what has not been harvested yet."""
        if self.ends or self.sits_out or not self.traces.harvests:
            return
        broke = ~within(self.battery, row.energy_j[0])
        if broke.any():
            device = int(np.argmax(broke))
            raise InfeasibleError(
                "{device} cannot pay for iteration {iteration} of {method}: it needs {needs_j} and "
                "holds {has_j}, what it has harvested included; set plan.on_depletion = "
                '"leave", so that it sits out until it can, or compare with --equal budget',
                code="energy",
                device=device,
                figures={
                    "iteration": now.t + 1,
                    "method": self.name,
                    "needs_j": row.energy_j[0, device],
                    "has_j": self.battery[device],
                },
            )

    def _take(self, now: Moment, act: Act, row: Ledger) -> None:
        self.moments.append(now)
        self.acts.append(act)
        self.memory = act.memory
        length_s = float(row.seconds[0])
        self.battery = left_of(self.battery, row.energy_j[0])
        self.left_s = left_of(self.left_s, row.seconds)
        gained = recharged(self.traces, self.battery, now.t, self.elapsed_s, length_s)
        self.elapsed_s += length_s
        if gained is not None:
            self.battery = gained.held_j
            row = replace(row, harvested_j=gained.stored_j[None])
        self.rows.append(row)
