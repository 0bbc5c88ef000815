"""What the runner makes of a node's effects, with a script in the place of a node."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.journal import JOURNAL
from joulemesh.deploy.device.runner import Runner, Tools
from joulemesh.deploy.device.store import Ceiling
from joulemesh.deploy.effects import (
    Begin,
    Commit,
    Delivered,
    Durable,
    Effect,
    End,
    Evaluate,
    Event,
    Note,
    Plan,
    Planned,
    Received,
    Save,
    Saved,
    SaveFailed,
    Send,
    SetTimer,
    StopAsked,
    Tick,
    Train,
    Trained,
    TrainFailed,
    Undelivered,
)
from joulemesh.deploy.messages import Beat, Part
from joulemesh.deploy.transport import Receive
from joulemesh.deploy.view import View
from tests.deploy.loopback import Loopback, ToyLearner, tools

VIEW = View(0, 1, (0, 1))
DONE = End("done", complete=True)


class Script:
    """Answers events as it is told, and keeps them with their times."""

    def __init__(self, answer: Callable[[Event], list[Effect]]) -> None:
        self.answer, self.seen = answer, list[tuple[float, Event]]()

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.seen.append((now, event))
        return self.answer(event)

    def kinds(self) -> list[str]:
        return [type(event).__name__ for _, event in self.seen]


def drive(script: Script, made: Tools, **more: Any) -> End:
    async def run() -> End:
        return await asyncio.wait_for(Runner(script, made, **more).run(), 5)

    return asyncio.run(run())


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]


def state(iteration: int) -> Durable:
    return Durable(1, (VIEW,), Commit(iteration, np.full(3, float(iteration))))


def test_every_effect_is_answered_and_the_journal_tells(tmp_path: Path) -> None:
    network: dict[int, Receive] = {1: lambda sender, message: None}
    part = Part(0, 1, 0, np.zeros(3))

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [Plan(VIEW), Train(1, 2, Commit(0, np.zeros(3)))]
            case Trained():
                return [Send(7, 1, part, 1.0), Send(8, 2, part, 0.02)]
            case Delivered(token=7):
                return [Save(1, state(1))]
            case Saved():
                return [SetTimer("a", 30.0), SetTimer("a", 0.03)]
            case Tick():
                return [Note("view", {"number": 1}), DONE]
        return []

    script, made = Script(answer), tools(tmp_path, network=network)
    assert drive(script, made).complete
    assert script.kinds()[0] == "Begin"
    assert {"Planned", "Trained", "Delivered", "Undelivered", "Saved", "Tick"} <= {*script.kinds()}
    gone = next(event for _, event in script.seen if isinstance(event, Undelivered))
    assert gone.token == 8
    assert "device 2 is away" in gone.reason
    found = {line["kind"]: line for line in lines(tmp_path)}
    assert found["trained"]["rounds"] == 2
    assert found["committed"]["sent"]["1"][0] == 24
    assert found["committed"]["sent"]["1"][2] == 1
    assert found["view"]["number"] == 1
    assert found["undelivered"]["reason"] == "too late"
    assert found["end"]["complete"] is True
    assert made.store.load() is not None


def test_beats_go_on_while_it_trains_and_while_the_disk_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(ToyLearner):
        def train(self, iteration: int, rounds: int) -> None:
            time.sleep(0.3)

    made = tools(tmp_path, learner=Slow())
    save, begun = made.store.save, threading.Event()

    def slow_save(durable: Durable) -> None:
        begun.set()
        time.sleep(0.3)
        save(durable)

    monkeypatch.setattr(made.store, "save", slow_save)

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                start = Commit(0, np.zeros(3))
                return [Train(1, 2, start), Save(1, state(0)), SetTimer("beat", 0.02)]
            case Tick():
                return [SetTimer("beat", 0.02)]
            case Trained():
                return [Save(2, state(1))]
            case Saved(token=2):
                return [DONE]
        return []

    script = Script(answer)
    drive(script, made)
    times = [now for now, event in script.seen if isinstance(event, Tick)]
    assert len(times) > 10
    assert max(b - a for a, b in pairwise(times)) < 0.25


def test_saves_are_carried_out_in_order(tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [Save(t, state(t)) for t in range(1, 20)]
            case Saved(token=19):
                return [DONE]
        return []

    script, made = Script(answer), tools(tmp_path)
    drive(script, made)
    assert [event.token for _, event in script.seen if isinstance(event, Saved)] == [*range(1, 20)]
    found = made.store.load()
    assert found is not None
    assert found.commit.iteration == 19
    committed = [line["iteration"] for line in lines(tmp_path) if line["kind"] == "committed"]
    assert committed == [*range(1, 20)]


def test_what_cannot_be_saved_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tools(tmp_path)

    def full(durable: Durable) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(made.store, "save", full)

    def answer(event: Event) -> list[Effect]:
        if isinstance(event, Begin):
            return [Save(4, state(1))]
        return [End("no room", complete=False)] if isinstance(event, SaveFailed) else []

    script = Script(answer)
    assert not drive(script, made).complete
    assert "not-saved" in {line["kind"] for line in lines(tmp_path)}


def test_a_learner_that_fails_or_diverges_is_told(tmp_path: Path) -> None:
    class Failing(ToyLearner):
        def train(self, iteration: int, rounds: int) -> None:
            if iteration == 1:
                raise ZeroDivisionError("no samples")
            self.at[:] = np.inf

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [Train(1, 1, Commit(0, np.zeros(3)))]
            case TrainFailed(iteration=1):
                return [Train(2, 1, Commit(0, np.zeros(3)))]
            case TrainFailed(iteration=2):
                return [End("it diverged", complete=False, resumable=False)]
        return []

    script = Script(answer)
    drive(script, tools(tmp_path, learner=Failing()))
    reasons = [event.reason for _, event in script.seen if isinstance(event, TrainFailed)]
    assert "ZeroDivisionError: no samples" in reasons[0]
    assert "not finite after iteration 2" in reasons[1]


def test_training_begins_from_the_commit_whatever_was_begun_before(tmp_path: Path) -> None:
    start = Commit(0, np.full(3, 5.0), {"count": np.array(9)})
    found: list[Trained] = []

    def answer(event: Event) -> list[Effect]:
        if isinstance(event, Begin):
            return [Train(1, 2, start), Evaluate(0, np.full(3, -1.0)), Train(1, 2, start)]
        if isinstance(event, Trained):
            found.append(event)
        return [DONE] if len(found) == 2 else []

    drive(Script(answer), tools(tmp_path))
    assert found[0].vector.tobytes() == found[1].vector.tobytes()
    assert int(found[0].memory["count"]) == int(found[1].memory["count"]) == 10


def test_only_the_newest_evaluation_is_made_and_it_waits_for_training(tmp_path: Path) -> None:
    order: list[str] = []

    class Watched(ToyLearner):
        def train(self, iteration: int, rounds: int) -> None:
            order.append(f"train {iteration}")
            time.sleep(0.02)

        def evaluate(self) -> dict[str, float]:
            order.append(f"evaluate {self.at[0]:g}")
            return {"accuracy": 0.5}

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                trains: list[Effect] = [Train(t, 1, Commit(0, np.zeros(3))) for t in (1, 2)]
                return [*trains, *(Evaluate(t, np.full(3, float(t))) for t in (5, 6, 7))]
            case Trained(iteration=2):
                return [SetTimer("end", 0.1)]
            case Tick():
                return [DONE]
        return []

    drive(Script(answer), tools(tmp_path, learner=Watched()))
    assert order == ["train 1", "train 2", "evaluate 7"]
    evaluated = [line for line in lines(tmp_path) if line["kind"] == "evaluated"]
    assert [(line["iteration"], line["accuracy"]) for line in evaluated] == [(7, 0.5)]


def test_the_last_evaluation_is_waited_for(tmp_path: Path) -> None:
    class Slow(ToyLearner):
        def evaluate(self) -> dict[str, float]:
            time.sleep(0.1)
            return {"accuracy": 0.75}

    def answer(event: Event) -> list[Effect]:
        return [Evaluate(9, np.zeros(3)), DONE] if isinstance(event, Begin) else []

    drive(Script(answer), tools(tmp_path, learner=Slow()))
    assert [line["kind"] for line in lines(tmp_path)] == ["evaluated", "end"]


def test_joules_are_on_the_disk_before_they_are_spent(tmp_path: Path) -> None:
    made = tools(tmp_path)
    known: list[float] = []

    class Looking(ToyLearner):
        def train(self, iteration: int, rounds: int) -> None:
            known.append(Ceiling(tmp_path).joules)

    made = tools(tmp_path, learner=Looking(), network={1: lambda sender, message: None})

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                made.meter.train(7)
                return [Train(1, 7, Commit(0, np.zeros(3)))]
            case Trained():
                made.meter.send(1, 24)
                return [Send(1, 1, Part(0, 1, 0, np.zeros(3)), 1.0)]
            case Delivered():
                known.append(Ceiling(tmp_path).joules)
                return [DONE]
        return []

    drive(Script(answer), made)
    assert known[0] >= 7.0
    assert known[1] >= 7.0 + 12.0
    assert Ceiling(tmp_path).joules == 19.0  # exact after an end in order


def test_somebody_who_asks_it_to_stop(tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [SetTimer("never", 1000.0)]
            case StopAsked(reason=reason):
                return [Save(1, state(2)), Note("left", {"reason": reason})]
            case Saved():
                return [End("stopped", complete=False)]
        return []

    async def run() -> End:
        runner = Runner(Script(answer), tools(tmp_path))
        asyncio.get_running_loop().call_later(0.05, runner.stop, "SIGTERM")
        return await asyncio.wait_for(runner.run(), 5)

    end = asyncio.run(run())
    assert (end.complete, end.resumable) == (False, True)
    kinds = [line["kind"] for line in lines(tmp_path)]
    assert kinds == ["stopped", "left", "committed", "end"]


def test_a_training_that_nobody_waits_for_does_not_delay_the_end(tmp_path: Path) -> None:
    class Endless(ToyLearner):
        def train(self, iteration: int, rounds: int) -> None:
            time.sleep(3.0)

    def answer(event: Event) -> list[Effect]:
        if isinstance(event, Begin):
            return [Train(1, 1, Commit(0, np.zeros(3))), SetTimer("end", 0.05)]
        return [DONE] if isinstance(event, Tick) else []

    began = time.monotonic()
    drive(Script(answer), tools(tmp_path, learner=Endless()))
    assert time.monotonic() - began < 1.0


def test_a_defect_of_the_node_is_not_swallowed(tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        raise RuntimeError("a rule is broken")

    with pytest.raises(RuntimeError, match="a rule is broken"):
        drive(Script(answer), tools(tmp_path))


@pytest.mark.parametrize("place", ["trained", "saved", "planned", "evaluated", "timer"])
def test_an_exception_in_any_callback_ends_the_node_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Whatever calls it: the learner, the disk, the planner, or a timer."""

    def defect(*arguments: Any, **more: Any) -> Any:
        raise RuntimeError(f"a defect in {place}")

    def answer(event: Event) -> list[Effect]:
        if not isinstance(event, Begin):
            return []
        train, save = Train(1, 2, Commit(0, np.zeros(3))), Save(1, state(1))
        wanted: dict[str, Effect] = {
            "trained": train,
            "saved": save,
            "planned": Plan(VIEW),
            "evaluated": Evaluate(1, np.zeros(3)),
            "timer": Note("view", {}),
        }
        return [wanted[place]]

    made = tools(tmp_path)
    runner = Runner(Script(answer), made)
    if place == "trained":
        monkeypatch.setattr(runner.tally, "trained", defect)
    elif place == "saved":
        monkeypatch.setattr(runner, "_write_commit", defect, raising=True)
    elif place == "planned":
        monkeypatch.setattr(runner, "take", _only_begin(runner, defect))
    elif place == "evaluated":
        monkeypatch.setattr(runner, "_learner_note", defect)
    else:
        monkeypatch.setattr(runner, "_chore", defect)

    async def run() -> End:
        return await asyncio.wait_for(runner.run(), 5)

    with pytest.raises(RuntimeError, match=f"a defect in {place}"):
        asyncio.run(run())
    if place != "saved":  # which writes the journal's lines, too
        (failed,) = [line for line in lines(tmp_path) if line["kind"] == "failed"]
        assert f"a defect in {place}" in failed["reason"]
        assert "defect" in failed["traceback"]


def _only_begin(runner: Runner, defect: Callable[..., Any]) -> Callable[[Event], None]:
    take = runner.take
    return lambda event: take(event) if isinstance(event, Begin) else defect()


def test_a_defect_of_the_transport_is_not_swallowed(tmp_path: Path) -> None:
    def broken(sender: int, message: object) -> None:
        raise RuntimeError("a bug")

    def answer(event: Event) -> list[Effect]:
        part = Part(0, 1, 0, np.zeros(3))
        return [Send(1, 1, part, 1.0)] if isinstance(event, Begin) else []

    with pytest.raises(RuntimeError, match="a bug"):
        drive(Script(answer), tools(tmp_path, network={1: broken}))


def test_what_comes_before_it_begins_waits_until_it_has(tmp_path: Path) -> None:
    beat = Beat(1, 0, 0, "training")

    class Eager(Loopback):
        async def start(self, receive: Receive) -> None:
            receive(1, beat)

    def answer(event: Event) -> list[Effect]:
        return [DONE] if isinstance(event, Received) else []

    script, made = Script(answer), tools(tmp_path)
    drive(script, replace(made, transport=Eager(0, {})))
    assert script.kinds() == ["Begin", "Received"]


def test_a_process_that_slept_reads_before_it_judges(tmp_path: Path) -> None:
    """Ticks that came due while it was stopped come after the messages that wait to be read."""
    beat = Beat(1, 0, 0, "training")
    network: dict[int, Receive] = {}

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [SetTimer("judge", 0.01)]
            case Tick():
                return [DONE]
        return []

    async def run() -> Script:
        script = Script(answer)
        running = asyncio.ensure_future(Runner(script, tools(tmp_path, network=network)).run())
        await asyncio.sleep(0.002)
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, lambda: network[0](1, beat))  # as a socket's thread would
        time.sleep(1.2)  # stopped
        await asyncio.wait_for(running, 5)
        return script

    assert asyncio.run(run()).kinds() == ["Begin", "Received", "Tick"]


def test_the_wall_clock_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1e9, 5e8, 2e9, 0.0, 1e9, 1e9, 1e9])
    monkeypatch.setattr(time, "time", lambda: next(times))

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [SetTimer("a", 0.01), Note("one", {})]
            case Tick(name="a"):
                return [SetTimer("b", 0.01), Note("two", {})]
            case Tick(name="b"):
                return [DONE]
        return []

    script = Script(answer)
    made = tools(tmp_path)
    drive(script, made)
    assert script.kinds() == ["Begin", "Tick", "Tick"]
    t = [line["t"] for line in lines(tmp_path)]
    assert t == sorted(t)
    assert t[-1] < 5


def test_planned_comes_back_with_a_refusal(tmp_path: Path) -> None:
    def answer(event: Event) -> list[Effect]:
        if isinstance(event, Begin):
            return [Plan(VIEW)]
        assert isinstance(event, Planned)
        assert event.refusal == "none here"
        return [DONE]

    drive(Script(answer), tools(tmp_path))


def test_messages_that_are_acknowledged_after_the_commit_are_counted_with_it(
    tmp_path: Path,
) -> None:
    network: dict[int, Receive] = {}

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [Send(1, 1, Part(0, 1, 0, np.zeros(3)), 5.0), Save(1, state(1))]
            case Saved():
                network[1] = lambda sender, message: None  # only now is the neighbour there
                return []
            case Delivered():
                return [DONE]
        return []

    drive(Script(answer), tools(tmp_path, network=network))
    committed = [line for line in lines(tmp_path) if line["kind"] == "committed"]
    assert [line["sent"]["1"][0] for line in committed] == [24]


def test_received_bytes_are_counted(tmp_path: Path) -> None:
    network: dict[int, Receive] = {}

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [SetTimer("a", 0.01)]
            case Tick():
                part = Part(0, 1, 0, np.zeros(4))
                asyncio.get_running_loop().call_soon(network[0], 3, part)
                return []
            case Received():
                return [Save(1, state(1))]
            case Saved():
                return [DONE]
        return []

    drive(Script(answer), tools(tmp_path, network=network))
    committed = next(line for line in lines(tmp_path) if line["kind"] == "committed")
    assert committed["received"] == {"3": [32, 1]}


def test_a_learner_prepares_itself_beside_the_loop_and_before_it_trains(tmp_path: Path) -> None:
    order: list[str] = []

    class Preparing(ToyLearner):
        def prepare(self) -> None:
            time.sleep(0.1)
            order.append("prepare")
            raise ImportError("no such accelerator")

        def train(self, iteration: int, rounds: int) -> None:
            order.append("train")

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [SetTimer("a", 0.01), Train(1, 1, Commit(0, np.zeros(3)))]
            case Tick():
                order.append("tick")
                return []
            case Trained():
                return [DONE]
        return []

    drive(Script(answer), tools(tmp_path, learner=Preparing()))
    assert order == ["tick", "prepare", "train"]
    told = next(line for line in lines(tmp_path) if line["kind"] == "not-prepared")
    assert "no such accelerator" in told["reason"]


def test_a_training_that_outlasts_its_view_is_told_and_priced_by_its_own_plan(
    tmp_path: Path,
) -> None:
    replanned = threading.Event()

    class Slow(ToyLearner):
        def train(self, iteration: int, rounds: int) -> None:
            assert replanned.wait(5)
            super().train(iteration, rounds)

    class From:
        """A plan that knows only the iterations of its view."""

        last = 9

        def __init__(self, view: View) -> None:
            self.view = view

        def price(self, iteration: int) -> Any:
            if iteration < self.view.start:
                raise ScenarioError(f"iteration {iteration} is not one of {self.view.start}..9")
            return SimpleNamespace(iteration_s=0.0)

    class Plans:
        def answer(self, view: View) -> Planned:
            return Planned(view, From(view))  # type: ignore[arg-type]

    def answer(event: Event) -> list[Effect]:
        match event:
            case Begin():
                return [Plan(VIEW)]
            case Planned(view=view) if view == VIEW:
                return [Train(1, 2, Commit(0, np.zeros(3))), Plan(View(1, 5, (0, 1)))]
            case Planned():
                replanned.set()
            case Trained():
                return [DONE]
        return []

    made = tools(tmp_path, learner=Slow(), planner=Plans())
    assert drive(Script(answer), made).complete
