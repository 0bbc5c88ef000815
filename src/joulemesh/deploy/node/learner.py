"""The learner as a node sees it: what it is at, since when, and how long that may take."""

from __future__ import annotations

__all__ = ["LearnerWatch"]

from collections import deque
from dataclasses import dataclass

from joulemesh.deploy.effects import Train, Trained
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.node.planbook import Planbook
from joulemesh.deploy.plans import Price

_MEASURED = 4  # trainings, of which the slowest says what to expect
_HOPELESS = 10.0  # times the allowance, after which nobody waits any more
_LEAST_S = 1e-6  # planned, to compare with


@dataclass(eq=False)
class _Training:
    attempt: int
    iteration: int
    joules: float
    planned_s: float
    allowed_s: float
    since: float
    wanted: bool = True


class LearnerWatch:
    """Asks for one training at a time, and measures what each takes.

    A training that is no longer wanted is waited for all the same: the learner does one thing
    after the other, and what waited behind it would be paid for without being run.

    Args:
        context: the node's.
        plans: of the views, which say what training should take.
    """

    def __init__(self, context: NodeContext, plans: Planbook) -> None:
        self._context, self._plans = context, plans
        self._now: _Training | None = None
        self._attempts = 0
        self._measured: deque[float] = deque(maxlen=_MEASURED)
        self._paid: tuple[int, float] = (0, 0.0)

    @property
    def busy(self) -> bool:
        """Has it not answered yet?"""
        return self._now is not None

    @property
    def wanted(self) -> bool:
        """Is it at something whose result is wanted?"""
        return self._now is not None and self._now.wanted

    def begin(self, iteration: int, rounds: int, price: Price) -> None:
        """Pay for local rounds, and have them run."""
        context, planned_s = self._context, rounds * price.round_s
        assert self._now is None
        self._attempts += 1
        joules = context.meter.train_j(rounds)
        self._paid = (iteration, joules)
        allowed_s = self.allowed_s(context.device, iteration)
        planned_s = max(planned_s, _LEAST_S)
        self._now = _Training(self._attempts, iteration, joules, planned_s, allowed_s, context.now)
        context.meter.train(rounds)
        commit = context.state.commit
        context.emit(Train(iteration, rounds, commit, self._attempts, price.iteration_s))

    def answered(self, event: Trained) -> bool:
        """The learner is done; False if what it did is no longer wanted."""
        training = self._now
        if training is None or event.attempt != training.attempt:
            return False
        self._now = None
        taken_s = event.seconds or self._context.now - training.since
        self._measured.append(taken_s / training.planned_s)
        return training.wanted

    def failed(self) -> None:
        """It could not."""
        self._now = None

    def disown(self) -> None:
        """Whatever it is at began from something else."""
        if self._now is not None:
            self._now.wanted = False

    def slept(self, seconds: float) -> None:
        """The whole process was stopped for so long, the learner too."""
        if self._now is not None:
            self._now.since += seconds

    def paid(self, iteration: int) -> float:
        """Joules of an iteration's training that is under way or kept, and not committed."""
        kept = self._context.state.trained
        there = self.wanted or (kept is not None and kept[0] == iteration)
        return self._paid[1] if there and self._paid[0] == iteration else 0.0

    # How long it may take ---------------------------------------------------------------------

    @property
    def pace(self) -> float:
        """How many times as long as planned training takes, as far as is known."""
        known = max(self._measured, default=1.0)
        if self._now is not None and self.overdue():
            known = max(known, (self._context.now - self._now.since) / self._now.planned_s)
        return max(1.0, known)

    def allowed_s(self, device: int, iteration: int) -> float:
        """Seconds that a member's training may take: a slow one is given its time."""
        settings, pace = self._context.settings, self._context.view.pace_of(device)
        return settings.slack * pace * self._plans.iteration_s(iteration) + settings.hang_s

    def overdue(self) -> str:
        """Why this device should be left out until its learner has answered; empty if not."""
        training, context = self._now, self._context
        if training is None:
            return ""
        limit_s = max(training.allowed_s, self.allowed_s(context.device, training.iteration))
        if context.now - training.since <= limit_s:
            return ""
        return f"training iteration {training.iteration} for {limit_s:.0f} s"

    def hopeless(self) -> str:
        """Why nobody should wait for the learner any longer; empty if there is hope."""
        training = self._now
        if training is None:
            return ""
        taken_s = self._context.now - training.since
        if taken_s <= _HOPELESS * training.allowed_s:
            return ""
        return (
            f"the learner has not answered for {taken_s:.0f} s (training iteration "
            f"{training.iteration}, planned for {training.planned_s:.3g} s)"
        )
