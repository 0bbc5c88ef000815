"""A local fleet whose devices come and go as a table says."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.fleet.pack import DEVICES, check_deployable
from joulemesh.deploy.local.local import (
    RUN,
    Churn,
    LocalFleet,
    churn_of,
    open_fleet,
    states_of,
    steadfast,
)
from joulemesh.deploy.local.supervisor import Job, Supervisor
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import read_history
from joulemesh.deploy.record.replay import Course, Plans, course_of_histories, plans_of, replay
from joulemesh.deploy.view import Settings
from joulemesh.planning.walk import origins
from joulemesh.training.schedule import Schedule
from joulemesh.world.traces import Timed

COUNT, ITERATIONS = 5, 200
SLEEPER = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
    "open(sys.argv[1], 'a').write('.')\n"
    "time.sleep(float(sys.argv[2]))"
)


def trace(*rows: tuple[float, int, int], seconds: bool = False) -> Timed:
    time_, device, here = (np.array(column, float) for column in zip(*rows, strict=True))
    return Timed(
        "away.csv", seconds, time_, device.astype(np.int64), here[:, None], np.ones((COUNT, 1))
    )


def scenario(folder: Path, text: str, **plan: Any) -> joulemesh.Scenario:
    path = folder / "away.csv"
    path.write_text(text, "utf-8")
    return joulemesh.Scenario(
        devices={"count": COUNT, "availability": str(path)},
        network={"profile": "ideal", "topology": "complete"},
        budget={"energy_j": 1000.0, "deadline_s": 0.05},
        plan={"iterations": ITERATIONS, "rounds": "fixed", "fixed_rounds": 2, **plan},
        training={"model": "logistic", "eval_every": 100},
    )


def schedule_of_course(course: Course, plans: Plans, devices: int) -> Schedule:
    """What the engine plays: rounds, presence and gifts of a deployment with exact exchanges."""
    rounds, active, exchanged, gifts = [], [], [], []
    iteration = 1
    while True:
        view = course.view(iteration)
        plan = plans(view, view.members[0])
        if iteration > plan.last:
            break
        there, each = np.zeros(devices, np.bool_), np.zeros(devices, np.int64)
        for device in plan.active(iteration):
            planned = plans(view, device).rounds(iteration)
            there[device] = True
            each[device] = course.rounds.get((iteration, device), planned)
        route = plan.route(iteration)
        assert route is None or plan.exact(iteration)
        rounds.append(each)
        active.append(there)
        exchanged.append(route is not None)
        given = origins(course.gifts(iteration))
        gifts += [(iteration - 1, newcomer, giver) for newcomer, giver in sorted(given.items())]
        iteration += 1
    return Schedule(np.stack(rounds), np.stack(active), np.array(exchanged), gifts=tuple(gifts))


# Who is to be there -----------------------------------------------------------------------------


@dataclass
class Recorded:
    """A supervisor that keeps what it is told."""

    states: list[str]
    told: list[tuple[str, int]] = field(default_factory=list)

    @property
    def processes(self) -> list[Any]:
        return [
            SimpleNamespace(known=True, over=state == "done", state=state) for state in self.states
        ]

    def send_away(self, position: int) -> None:
        self.told.append(("away", position))

    def bring_back(self, position: int) -> None:
        self.told.append(("back", position))


def test_iterations_that_anybody_has_committed_say_who_is_to_be_there() -> None:
    recorded = Recorded(["running"] * COUNT)
    churn = Churn(trace((4, 1, 0), (6, 1, 1)), recorded)  # type: ignore[arg-type]
    for committed, there in ((1, "back"), (2, "back"), (3, "away"), (4, "away"), (5, "back")):
        recorded.told.clear()
        recorded.states[1] = "away" if committed == 4 else "running"
        churn.look([Standing(i, f"d{i}", iteration=committed - (i > 0)) for i in range(COUNT)])
        assert {who: what for what, who in recorded.told}[1] == there
        assert ("back", 0) in recorded.told


def test_no_change_is_left_out_however_fast_the_fleet_is() -> None:
    recorded = Recorded(["running"] * COUNT)
    churn = Churn(trace((4, 1, 0), (6, 1, 1)), recorded)  # type: ignore[arg-type]
    seen = []
    for committed, state in (
        (0, "running"),
        (50, "running"),  # far beyond both changes at once: the first comes first
        (50, "running"),
        (51, "away"),  # it is away; nobody has gone on yet
        (51, "away"),
        (60, "away"),  # the others have
        (60, "running"),
    ):
        recorded.told.clear()
        recorded.states[1] = state
        churn.look([Standing(i, f"d{i}", iteration=committed) for i in range(COUNT)])
        seen.append({who: what for what, who in recorded.told}[1])
    assert seen == ["back", "away", "away", "away", "away", "back", "back"]


def test_seconds_count_from_the_start_and_somebody_may_be_waited_for() -> None:
    clock = [100.0]
    recorded = Recorded(["away", *(["done"] * (COUNT - 1))])
    rows = trace((2.0, 0, 0), (5.0, 0, 1), seconds=True)
    churn = Churn(rows, recorded, now=lambda: clock[0])  # type: ignore[arg-type]
    standings = [Standing(i, f"d{i}") for i in range(COUNT)]
    for moment, there, waits in ((100.0, "back", True), (103.0, "away", True), (106.0, "back", 0)):
        clock[0] = moment
        recorded.told.clear()
        churn.look(standings)
        assert recorded.told[0] == (there, 0)
        assert churn.expects() == bool(waits)


def test_what_only_a_simulation_can_do_is_refused(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "t,device,available\n3,1,0\n")
    assert steadfast(asked).devices.availability is None
    with pytest.raises(ScenarioError, match=r"devices\.harvest_w is for simulation"):
        steadfast(asked.override({"devices.harvest_w": 0.5}))
    with pytest.raises(ScenarioError, match=r"devices\.availability is for simulation"):
        check_deployable(joulemesh.plan(asked.override({"plan.iterations": 4})))


def test_a_fleet_that_would_wait_for_ever_is_refused(tmp_path: Path) -> None:
    rows = "".join(f"7,{device},0\n" for device in range(1, COUNT))
    asked = scenario(tmp_path, "t,device,available\n" + rows)
    with pytest.raises(ScenarioError, match="leaves 1 of 5 devices in iteration 7"):
        churn_of(asked)
    assert churn_of(steadfast(asked)) is None


# Processes --------------------------------------------------------------------------------------


def test_a_process_that_was_sent_away_is_started_again(tmp_path: Path) -> None:
    marks = [tmp_path / f"mark{i}" for i in range(2)]
    jobs = [
        Job(
            f"d{i}",
            [sys.executable, "-c", SLEEPER, str(marks[i]), "30" if i else "1.5"],
            tmp_path / f"log{i}",
        )
        for i in range(2)
    ]
    supervisor = Supervisor(jobs)
    stage = 0

    def watch() -> None:
        nonlocal stage
        begun = marks[1].read_text() if marks[1].exists() else ""
        if stage in (0, 2) and len(begun) > stage // 2:
            supervisor.send_away(1)  # the second time for good: the other's end is the end
            stage += 1
        elif stage == 1 and supervisor.processes[1].state == "away":
            supervisor.bring_back(1)
            stage += 1

    supervisor.run(watch, every_s=0.02)
    assert stage == 3
    assert marks[1].read_text() == ".."
    assert supervisor.processes[1].state == "away"
    assert supervisor.processes[0].state == "done"
    assert supervisor.processes[1].restarts == 0


# The whole --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_fleet_that_follows_a_trace_ends_with_the_simulated_runs_parameters(
    tmp_path: Path,
) -> None:
    """Device 1 leaves and comes back; the engine plays the views that this makes."""
    from joulemesh.deploy.device.simulated import simulated_learner
    from joulemesh.models import build
    from joulemesh.training import Engine, Options
    from joulemesh.training.prepare import partitions, the_dataset

    asked = scenario(tmp_path, "t,device,available\n5,1,0\n15,1,1\n")
    made = joulemesh.plan(steadfast(asked))
    folder = tmp_path / "fleet"
    fleet, _ = open_fleet(folder, made, settings=Settings(patience_s=3.0))
    running = LocalFleet(folder, fleet, made, trace=churn_of(asked))
    running.run(lambda standings: None, every_s=0.05)
    assert running.complete, [one.last_words() for one in running.processes]

    histories = [
        read_history(folder / DEVICES / name / RUN, device, name)
        for device, name in enumerate(fleet.names)
    ]
    course = course_of_histories(histories, COUNT)
    without = [set(range(COUNT)) - set(view.members) for view in course.views]
    assert {1} in without
    assert course.views[-1].members == tuple(range(COUNT))
    deployed = np.stack([state.commit.vector for state in states_of(folder, fleet)])

    plans = plans_of(fleet.ground())
    learners = [simulated_learner(fleet, device) for device in range(COUNT)]
    *_, last = replay(course, plans, learners)
    np.testing.assert_array_equal(deployed, last.vectors)

    schedule = schedule_of_course(course, plans, COUNT)
    assert {newcomer for _, newcomer, _ in schedule.gifts} == {1}
    training, data = made.scenario.training, the_dataset(made.scenario)
    engine = Engine(
        build(training.model, data.shape, data.classes, **dict(training)),
        data,
        partitions(made.scenario, data, (made.scenario.seed,), made.work.round_samples),
        schedule,
        Options.from_scenario(training),
        seeds=(made.scenario.seed,),
    )
    *_, (state, _) = engine.train()
    params = engine.params(state)
    flat = [
        np.concatenate([np.ravel(leaf[0, device]) for leaf in jax.tree.leaves(params)])
        for device in range(COUNT)
    ]
    apart = np.abs(np.stack(flat) - deployed).max()
    assert apart <= 2e-5, apart  # float32, in which sums are made in another order
