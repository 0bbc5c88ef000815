"""What a device that has ended still does for its neighbours: it serves its last parameters.

It takes no part in agreements any more. A neighbour that was away when the fleet ended learns from
it which views there were, that the fleet is over, and asks for the parameters that it ended with.
"""

from __future__ import annotations

__all__ = ["Served"]

from collections import Counter

from joulemesh.deploy.effects import Durable
from joulemesh.deploy.messages import OVER, Beat, Fetch, Given, Message, Recall, Refused
from joulemesh.deploy.plans import Meter


class Served:
    """Answers neighbours after the end.

    Args:
        device: the number of the device that has ended.
        state: what it ended with.
        meter: what its battery still holds; nothing is sent that it does not pay for.
        epoch: names this run of its process.
    """

    def __init__(self, device: int, state: Durable, meter: Meter, epoch: int) -> None:
        self._device, self._state, self._meter, self._epoch = device, state, meter, epoch
        self._counts: Counter[int] = Counter()
        self._recalled: set[tuple[int, int]] = set()
        self._accounts = {one.device: one for one in state.accounts}

    def answer(self, sender: int, message: Message) -> list[Message]:
        """What a neighbour's message is answered with."""
        if isinstance(message, Beat):
            return [] if message.phase == OVER else self._heard(sender, message)
        commit = self._state.commit
        if isinstance(message, Fetch) and message.iteration == commit.iteration:
            given = Given(message.view, message.iteration, commit.vector, message.gift)
            size = int(commit.vector.nbytes)
            if self._meter.send_j(sender, size) <= self._meter.left_j():
                self._meter.send(sender, size)
                return [given]
        return []

    def _heard(self, sender: int, beat: Beat) -> list[Message]:
        answers: list[Message] = []
        if (sender, beat.epoch) not in self._recalled:  # it was started: what it had said before
            self._recalled.add((sender, beat.epoch))
            answers.append(Recall(self._accounts.get(sender), epoch=beat.epoch))
        views = self._state.views
        unknown = tuple(one for one in views if one.number > beat.view and one.proof is not None)
        if unknown:
            answers.append(Refused(f"view {beat.view} is over", unknown))
        self._counts[sender] += 1
        sign = Beat(
            self._epoch,
            views[-1].number,
            self._state.commit.iteration,
            OVER,
            finished=(self._device,),
            count=self._counts[sender],
            echo=(beat.epoch, beat.count),
            roster=self._state.roster.number,
        )
        return [*answers, sign]
