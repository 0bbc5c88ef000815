"""The rules of a node, one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest

from joulemesh.deploy.effects import (
    Commit,
    Durable,
    End,
    Note,
    Plan,
    Planned,
    Save,
    StopAsked,
    Tick,
    Train,
    TrainFailed,
)
from joulemesh.deploy.messages import (
    OVER,
    Absent,
    Accept,
    Accepted,
    Beat,
    Fetch,
    Given,
    Join,
    Leave,
    NoPlan,
    Part,
    Prepare,
    Promise,
    Recall,
    Refused,
    Replan,
    Suspect,
)
from joulemesh.deploy.node.council import next_view
from joulemesh.deploy.view import UNHELD, View, fingerprint
from joulemesh.scenario.fields import ExchangePattern
from joulemesh.testing.fleets.setup import Setup
from tests.deploy.by_hand import SETTINGS, TRIANGLE, ByHand, only, proven, said

TWICE = Setup(3, TRIANGLE, "metropolis", ExchangePattern(times=2))
PAIR = Setup(2, ((0, 1),), "tree")
MIXING = Setup(3, TRIANGLE, "metropolis", ExchangePattern(), gossip=(1, "matchings"))


def decided(world: ByHand, view: View) -> View:
    """A view as it would be agreed on, with the digest of its plan."""
    plan = world.planned(view).plan
    assert plan is not None
    return plan.view


def agree(world: ByHand, view: View) -> View:
    """Let the other members accept a view."""
    agreed = decided(world, view)
    world.flood(1, Accept((9, 1), agreed))
    for origin in (1, 2):
        world.flood(origin, Accepted(agreed.number, (9, 1), fingerprint(agreed)))
    return agreed


# One iteration --------------------------------------------------------------------------------


def test_nothing_is_trained_before_the_neighbours_are_there() -> None:
    world = ByHand()
    world.tick(5, beating=(1,))
    assert not only(world.effects, Train)
    world.begin()
    assert [train.iteration for train in only(world.effects, Train)] == [1]


def test_a_neighbour_that_never_comes_is_suspected_when_its_time_is_up() -> None:
    world = ByHand()
    world.start()
    world.hear(1, Recall())
    assert not said(world.tick(29, beating=(1,)), Suspect)
    suspects = said(world.tick(2, beating=(1,)), Suspect)
    assert {(one.view, one.device) for one in suspects} == {(0, 2)}


def test_what_was_trained_is_on_disk_before_anybody_hears_of_it() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.disk = False
    assert not said(world.train(), Part)
    assert not said(world.tick(3, beating=(0,)), Part)
    assert said(world.sync(), Part)


def test_what_can_be_trained_again_need_not_be() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.disk = False
    assert said(world.train(repeatable=True), Part)
    assert not world.unsaved


def test_a_commit_is_on_disk_before_the_next_iteration_begins_or_is_told() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.train(repeatable=True)
    world.disk = False
    done = world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    assert [save.state.commit.iteration for save in only(done, Save)] == [1]
    assert not only(done, Train)
    beats = said(world.tick(4, beating=(0,)), Beat)
    assert {beat.iteration for beat in beats} == {0}
    assert [train.iteration for train in only(world.sync(), Train)] == [2]
    assert {beat.iteration for beat in said(world.tick(4, beating=(0,)), Beat)} == {1}


def test_a_message_that_comes_early_is_kept() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    world.train()
    assert world.state.commit.iteration == 1
    assert np.array_equal(world.state.commit.vector, np.ones(PAIR.size))


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (Part(0, 0, 1, np.ones(6)), "of an iteration that is done"),
        (Part(0, 2, 7, np.ones(6)), "not on the route"),
        (Part(0, 99, 1, np.ones(6)), "of an iteration without an exchange"),
        (Part(7, 1, 1, np.ones(600)), "too much, too early"),
    ],
)
def test_a_message_that_is_not_wanted_is_refused_by_name(part: Part, reason: str) -> None:
    world = ByHand(1, setup=PAIR).begin()
    notes = only(world.hear(0, part), Note)
    assert [(note.kind, note.figures["reason"]) for note in notes] == [("refused", reason)]


def test_a_message_that_comes_twice_is_counted_and_harmless() -> None:
    world = ByHand(2).begin()  # the root, which waits for device 0 too
    world.train()
    part = Part(0, 1, 0, np.ones(6))
    notes = [only(world.hear(1, part), Note) for _ in range(5)]
    assert [len(one) for one in notes] == [0, 1, 1, 0, 1]  # the 1st, 2nd and 4th time


def test_a_message_that_the_scheme_cannot_use_does_no_harm() -> None:
    world = ByHand(2).begin()
    world.train()
    assert not only(world.hear(1, Part(0, 1, 0, np.ones(6))), Note)
    notes = only(world.hear(0, Part(0, 1, 0, np.ones(5))), Note)
    assert [note.figures["sender"] for note in notes] == [0]
    for other in (0, 1):  # both are asked again, and send again
        world.hear(other, Part(0, 1, 0, np.full(6, 3.0)))
    assert np.allclose(world.state.commit.vector, (6.0 + np.arange(6.0) + 1.0) / 3)


def test_what_a_neighbour_waits_for_is_sent_again() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.train()
    waiting = Beat(2, 0, 0, "exchanging", waiting=((1, 0),))
    assert not said(world.hear(0, waiting), Part)  # it may not have taken in what just came
    world.tick(5, beating=())
    assert len(said(world.hear(0, waiting), Part)) == 1


# Joules ---------------------------------------------------------------------------------------


def test_what_cannot_be_paid_is_not_begun() -> None:
    world = ByHand()
    world.meter.capacity_j = 0.5
    world.begin()
    assert not only(world.effects, Train)
    assert world.meter.spent_j() == 0.0
    assert said(world.effects, Replan)


def test_a_device_that_runs_short_asks_for_another_plan() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    world.meter.capacity_j = world.meter.spent_j() + 1.0
    found = world.train()
    assert world.state.commit.iteration == 1
    assert said(found, Replan)
    assert not only(found, Train)


def test_training_that_fails_makes_a_device_leave() -> None:
    world = ByHand().begin()
    leaves = said(world.handle(TrainFailed(1, "it diverged")), Leave)
    assert "it diverged" in leaves[0].reason


# Views ----------------------------------------------------------------------------------------


def test_a_fleet_whose_last_holder_leaves_ends_by_name() -> None:
    """The two devices that are left wait for the parameters of a third, which cannot go on."""
    world = ByHand().begin()
    world.handle(TrainFailed(1, "it diverged"))
    for other in (1, 2):
        found = world.flood(other, Promise(1, (1, 0), None, 0, 1e6, 0.0, pending=True))
    (view,) = {accept.view for accept in said(found, Accept)}
    assert view.digest == UNHELD
    for other in (1, 2):
        found += world.flood(other, Accepted(1, (1, 0), fingerprint(view)))
    assert [note.kind for note in only(found, Note)] == ["unheld", "view"]
    (end,) = only(found, End)
    assert not end.resumable


def test_a_device_that_holds_the_parameters_does_not_let_the_fleet_end_without_them() -> None:
    world = ByHand().begin()
    view = View(1, 1, (0, 1, 2), left_j=(1e6,) * 3, digest=UNHELD)
    assert not said(world.flood(1, Accept((1, 1), view)), Accepted)


def test_a_promise_is_on_disk_before_it_is_said() -> None:
    world = ByHand().begin()
    world.disk = False
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)  # asked again, too
    assert said(world.sync(), Promise)


def test_who_proposes_offers_nothing_before_its_own_promise_is_on_disk() -> None:
    """Started again without it, it might propose another view in the same ballot."""
    world = ByHand().begin()
    world.flood(1, Replan(0, "short"))
    world.disk = False
    world.state = replace(world.state, promised=None)
    (prepare,) = {one for one in said(world.effects, Prepare) if one.ballot[1] == 0}
    again = ByHand(state=world.state)
    again.disk = True
    again.begin()
    again.disk = False
    found = again.flood(1, Replan(0, "short"))
    ballot = next(one.ballot for one in said(found, Prepare))
    assert ballot == prepare.ballot
    for other in (1, 2):
        found += again.flood(other, Promise(1, ballot, None, 0, 9e5, 0.0))
    found += again.tick(3)
    assert not said(found, Accept)
    assert said(again.sync(), Accept)


def test_a_lower_ballot_is_answered_with_the_higher_promise() -> None:
    world = ByHand().begin()
    world.flood(2, Prepare(1, (3, 2)))
    promises = said(world.flood(1, Prepare(1, (1, 1))), Promise)
    assert {promise.ballot for promise in promises} == {(3, 2)}


def test_nothing_is_accepted_below_the_promise() -> None:
    world = ByHand().begin()
    world.flood(2, Prepare(1, (3, 2)))
    view = decided(world, View(1, 1, (0, 1), left_j=(1e6, 1e6)))
    assert not said(world.flood(1, Accept((1, 1), view)), Accepted)
    assert said(world.flood(2, Accept((3, 2), view)), Accepted)


def test_after_a_promise_nothing_is_committed_until_the_view_is_decided() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.train()
    world.flood(0, Prepare(1, (1, 0)))
    world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    assert world.state.commit.iteration == 0
    view = decided(world, View(1, 2, (0, 1), left_j=(1e6, 1e6)))  # somebody has committed it
    world.flood(0, Accept((1, 0), view))
    world.flood(0, Accepted(1, (1, 0), fingerprint(view)))
    assert world.state.commit.iteration == 1
    assert world.state.commit.view == 0


def test_an_iteration_that_nobody_has_committed_is_exchanged_again() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.train()
    world.flood(0, Prepare(1, (1, 0)))
    view = decided(world, View(1, 1, (0, 1), left_j=(1e6, 1e6)))
    world.flood(0, Accept((1, 0), view))
    found = world.flood(0, Accepted(1, (1, 0), fingerprint(view)))
    assert [part.view for part in said(found, Part)] == [1]
    assert not only(found, Train)  # what was trained is kept


def test_who_lacks_views_is_told() -> None:
    world = ByHand().begin()
    view = agree(world, View(1, 1, (0, 1), left_j=(1e6, 1e6)))
    (refused,) = said(world.hear(2, Beat(1, 0, 0, "exchanging")), Refused)
    assert refused.views == (view,)


def test_who_was_put_out_asks_to_come_back_and_begins_with_a_gift() -> None:
    world = ByHand().begin()
    world.train()
    out = decided(world, View(1, 3, (1, 2), left_j=(1e6, 1e6)))
    found = world.hear(1, Refused("view 0 is over", (proven(out, 1, 2),)))
    assert {join.view for join in said(found, Join)} == {1}
    back = decided(world, View(2, 4, (0, 1, 2), left_j=(1e6,) * 3, gifts=((0, 1),)))
    world.flood(1, Accept((1, 1), back))
    world.flood(1, Accepted(2, (1, 1), fingerprint(back)))
    found = world.flood(2, Accepted(2, (1, 1), fingerprint(back)))
    assert world.state.views[-1] == back
    assert world.state.commit.iteration == 0
    found = world.hear(1, Given(2, 3, np.full(6, 5.0), gift=True))
    assert world.state.commit.iteration == 3
    assert world.state.commit.view == 2
    assert [train.iteration for train in only(found, Train)] == [4]


def test_who_asks_to_come_back_tells_only_what_is_on_disk() -> None:
    """Others plan from the iteration that it names: a power cut must not take that one back."""
    world = ByHand().begin()
    world.train()
    world.disk = False
    out = decided(world, View(1, 3, (1, 2), left_j=(1e6, 1e6)))
    assert not said(world.hear(1, Refused("view 0 is over", (proven(out, 1, 2),))), Join)
    assert not said(world.tick(9, view=1), Join)
    (asked,) = {(join.view, join.iteration) for join in said(world.sync(), Join)}
    assert asked == (1, world.state.commit.iteration)
    assert world.state.views[-1] == out


def test_who_was_given_an_exact_average_gives_it_on() -> None:
    world = ByHand().begin()
    out = decided(world, View(1, 3, (1, 2), left_j=(1e6, 1e6)))
    world.hear(1, Refused("view 0 is over", (proven(out, 1, 2),)))
    back = decided(world, View(2, 4, (0, 1, 2), left_j=(1e6,) * 3, gifts=((0, 1),)))
    world.hear(1, Refused("view 1 is over", (proven(back, 1, 2),)))
    world.hear(1, Given(2, 3, np.full(6, 5.0), gift=True))
    (given,) = said(world.hear(2, Fetch(1, 3)), Given)
    assert np.array_equal(given.payload, np.full(6, 5.0))


def test_a_gift_of_another_view_is_not_given() -> None:
    world = ByHand().begin()
    agree(world, View(1, 1, (0, 1, 2), left_j=(1e6,) * 3, gifts=((2, 0),)))
    assert not said(world.hear(2, Fetch(2, 1, gift=True)), Given)  # it knows a newer view
    (given,) = said(world.hear(2, Fetch(1, 0, gift=True)), Given)
    assert np.array_equal(given.payload, np.zeros(6))


def test_a_newcomer_to_whom_nobody_gives_leaves_in_the_end() -> None:
    world = ByHand().begin()
    found = []
    for number in range(1, 5):
        members, gifts = ((1, 2), ()) if number == 1 else ((0, 1, 2), ((0, 1),))
        left_j = (1e6,) * len(members)
        view = decided(world, View(number, 4, members, left_j=left_j, gifts=gifts))
        world.hear(1, Refused("it is over", (proven(view, 1, 2),)))
        found.append(said(world.tick(40, view=number), Replan | Leave))  # type: ignore[arg-type]
    kinds = [{type(one) for one in asked} for asked in found]
    assert kinds == [set(), {Replan}, {Replan}, {Replan}]
    view = decided(world, View(5, 4, (0, 1, 2), left_j=(1e6,) * 3, gifts=((0, 1),)))
    world.hear(1, Refused("it is over", (proven(view, 1, 2),)))
    assert said(world.tick(40, view=5), Leave)


def test_without_a_plan_everybody_stops_with_everything_saved_and_can_resume() -> None:
    world = ByHand().begin()
    world.planning = False
    world.flood(1, Suspect(0, 2, "not heard for 8 s"))
    world.tick(2, beating=(1,))
    found = world.flood(1, Promise(1, (1, 0), None, 0, 0.0, 0.0, cut=(2,)))
    (plan,) = only(found, Plan)
    found = world.handle(Planned(plan.view, None, "device 1 has 0 J left"))
    assert {one.reason for one in said(found, NoPlan)} == {"device 1 has 0 J left"}
    (end,) = only(found, End)
    assert end.reason.startswith("there is no plan for view 1: device 1 has 0 J left")
    assert end.resumable
    assert not world.state.ended
    again = ByHand(state=world.state)  # and the next view is proposed again
    again.begin()
    assert said(again.tick(1), Prepare)


def test_who_hears_that_there_is_no_plan_finds_out_for_itself_and_stops() -> None:
    world = ByHand().begin()
    poor, rich = (View(1, 1, (0, 1, 2), left_j=(left_j,) * 3) for left_j in (0.5, 1e6))
    assert not only(world.flood(1, NoPlan(replace(poor, number=2), "of another view")), End)
    assert not only(world.flood(1, NoPlan(rich, "a lie")), End)
    (end,) = only(world.flood(1, NoPlan(poor, "nobody can pay")), End)
    assert end.resumable
    assert "nobody can pay" in end.reason


def test_a_plan_with_another_digest_stops_the_node() -> None:
    world = ByHand()
    world.planning = False
    world.begin()
    view = world.state.views[0]
    other = world.planned(replace(view, digest=""))
    assert other.plan is not None
    object.__setattr__(other.plan, "view", replace(view, digest="another"))
    (end,) = only(world.handle(Planned(view, other.plan)), End)
    assert not end.resumable
    assert "another" in end.reason
    assert not world.state.ended  # with the right version it can be started again


# Failures -------------------------------------------------------------------------------------


def test_a_silent_neighbour_is_suspected_and_a_view_without_it_proposed() -> None:
    world = ByHand().begin()
    found = world.tick(10, beating=(1,))
    assert {one.device for one in said(found, Suspect)} == {2}
    assert said(found, Prepare)
    world.flood(1, Promise(1, (1, 0), None, 0, 1e6, 0.0, cut=(2,)))
    (accept,) = set(said(world.effects, Accept))
    assert accept.view.members == (0, 1)


def test_only_the_lowest_member_proposes_at_once() -> None:
    world = ByHand(1).begin()
    world.hear(0, Beat(1, 0, 0, "training"))
    assert not said(world.tick(9, beating=(0,)), Prepare)  # it is device 0's turn
    assert said(world.tick(5, beating=(0,)), Prepare)


def test_a_device_that_was_frozen_gives_the_others_their_time() -> None:
    world = ByHand().begin()
    world.tick(3)
    world.now += 60.0
    assert not said(world.handle(Tick("tick")), Suspect)
    assert not said(world.tick(7, beating=()), Suspect)
    assert said(world.tick(3, beating=()), Suspect)


def test_training_that_hangs_is_suspected() -> None:
    """A device says so itself (below); its neighbours wait a patience longer."""
    world = ByHand().begin()
    world.train()

    def training(seconds: int) -> list[Suspect]:
        found = []
        for _ in range(seconds):
            found += world.hear(2, Beat(1, 0, 0, "training"))
            found += world.tick(1, beating=(1,))
        return said(found, Suspect)

    assert not training(27)
    assert {(one.device, one.hung) for one in training(5)} == {(2, True)}


def test_a_device_reports_its_own_training_and_is_left_out_until_it_has_answered() -> None:
    world = ByHand().begin()
    assert not said(world.tick(20), Suspect)
    found = world.tick(5)
    assert {(one.device, one.hung) for one in said(found, Suspect)} == {(0, True)}
    asked = next(found for found in (said(world.tick(1), Prepare) for _ in range(40)) if found)
    ballot = asked[0].ballot
    for other in (1, 2):
        found = world.flood(other, Promise(1, ballot, None, 0, 1e6, 0.0))
    (accept,) = set(said(world.effects, Accept))
    assert accept.view.members == (1, 2)  # though device 0 has voted, and proposed it
    for other in (1, 2):
        world.flood(other, Accepted(1, ballot, fingerprint(accept.view)))
    assert world.state.views[-1].members == (1, 2)
    assert not said(world.tick(30, view=1), Join)
    (pace,) = {join.pace for join in said([*world.train(), *world.tick(9, view=1)], Join)}
    assert pace > 100.0  # what was measured: it is planned for


def test_who_is_put_out_again_and_again_waits_longer_each_time() -> None:
    world = ByHand().begin()
    world.train()
    waits = []
    for number in range(1, 12, 2):
        out = decided(world, View(number, 3, (1, 2), left_j=(1e6, 1e6)))
        world.hear(1, Refused("it is over", (proven(out, 1, 2),)))
        began = world.now
        for _ in range(500):
            if said(world.effects, Join):
                break
            world.tick(1, view=number)
        waits.append(world.now - began)
        world.effects.clear()
        back = decided(world, View(number + 1, 3, (0, 1, 2), left_j=(1e6,) * 3, gifts=((0, 1),)))
        world.hear(1, Refused("it is over", (proven(back, 1, 2),)))
        world.effects.clear()
    assert waits[0] == 0.0
    assert all(later > 1.1 * before for before, later in pairwise(waits[1:]))
    assert waits[-1] <= 1.25 * 32.0 * SETTINGS.patience_s + 8.0


def test_a_learner_that_never_answers_ends_its_node_which_can_be_started_again() -> None:
    world = ByHand(settings=replace(SETTINGS, minority_s=400.0)).begin()
    (end,) = only(world.tick(400), End)
    assert end.resumable
    assert "has not answered" in end.reason


def test_one_training_at_a_time_is_asked_for_and_paid() -> None:
    """Whatever becomes of the views, nothing waits behind a training that hangs."""
    world = ByHand().begin()
    spent_j = world.meter.spent_j()
    for number in range(1, 6):
        agree(world, View(number, 1, (0, 1, 2), left_j=(1e6,) * 3, gifts=((0, 1),)))
        world.hear(1, Given(number, 0, np.full(6, 5.0), gift=True))
        world.tick(3, view=number)
    assert len(only(world.effects, Train)) == 1
    assert world.meter.spent_j() == spent_j
    (again,) = only(world.train(), Train)  # what it answers is of another start: not wanted
    assert again.attempt == 2


def test_a_training_that_is_paid_for_is_credited_to_the_next_view() -> None:
    world = ByHand().begin()
    (promise,) = set(said(world.flood(1, Prepare(1, (1, 1))), Promise))
    trained_j = world.meter.spent_j()
    assert promise.paid == (1, trained_j)
    said_so = {0: promise, 1: replace(promise, paid=(0, 0.0)), 2: replace(promise, iteration=1)}
    first = next_view(world.state.views[0], {0: promise, 1: said_so[1]}, {}, (), TRIANGLE)
    later = next_view(world.state.views[0], said_so, {}, (), TRIANGLE)
    assert first is not None
    assert first.left_j == (promise.left_j + trained_j, promise.left_j)
    assert later is not None
    assert later.left_j[0] == promise.left_j  # it begins with the iteration after that


def test_a_total_time_counts_by_the_plans_clock_whatever_the_devices_take() -> None:
    world = ByHand(1, setup=PAIR)
    world.now = 500.0  # compiling, waiting for neighbours
    world.begin()
    world.tick(15, beating=(0,))
    world.train()
    world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    assert world.state.commit.iteration == 1
    plan = world.planned(world.state.views[0]).plan
    assert plan is not None
    (promise,) = set(said(world.flood(0, Prepare(1, (1, 0))), Promise))
    assert promise.elapsed_s == pytest.approx(plan.price(1).iteration_s)


def test_a_device_says_that_it_will_be_short_as_soon_as_it_knows() -> None:
    world = ByHand(1, setup=PAIR).begin()
    world.train()
    world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    assert world.state.commit.iteration == 1
    state = world.state
    again = ByHand(1, setup=PAIR, state=state)
    again.meter.train(2)  # what a crash has cost
    plan = again.planned(state.views[0]).plan
    assert plan is not None
    again.meter.capacity_j = again.meter.spent_j() + plan.rest_j(2) - 0.5
    again.begin()
    assert said(again.effects, Replan)
    assert only(again.effects, Train)  # what it can pay for goes on


def test_whoever_has_no_part_any_more_takes_up_what_the_others_end_with() -> None:
    world = ByHand().begin()
    world.train()
    view = agree(world, View(1, 2, (0, 1, 2), left_j=(0.5, 1e6, 1e6)))
    world.hear(1, Given(0, 1, np.full(6, 4.0)))
    assert world.state.commit.iteration == 1
    assert not only(world.tick(5, view=1), Train | End)  # type: ignore[arg-type]
    world.hear(1, Beat(1, 1, 4, "ended", finished=(1, 2)))
    assert {(one.view, one.iteration) for one in said(world.effects, Fetch)} >= {(1, 4)}
    world.hear(1, Given(view.number, 4, np.full(6, 7.0)))
    assert world.state.commit.iteration == 4
    for other in (1, 2):
        found = world.hear(other, Beat(1, 1, 4, "ended", finished=(0, 1, 2)))
    (end,) = only(found, End)
    assert end.complete


def test_whoever_cannot_be_given_the_last_average_does_not_say_done() -> None:
    world = ByHand().begin()
    world.train()
    agree(world, View(1, 2, (0, 1, 2), left_j=(0.5, 1e6, 1e6)))
    world.hear(1, Given(0, 1, np.full(6, 4.0)))
    found = []
    for _ in range(60):
        found += world.hear(1, Beat(1, 1, 4, "ended", finished=(1, 2)))
        found += world.tick(1, beating=(2,), view=1)
    assert said(found, Leave)
    assert not [end for end in only(found, End) if end.complete]


def test_the_fleet_stops_at_the_first_failure_if_told_to() -> None:
    world = ByHand(settings=replace(SETTINGS, on_failure="stop")).begin()
    world.flood(1, Suspect(0, 2, "not heard for 8 s"))
    (end,) = only(world.tick(9, beating=(1,)), End)
    assert end.resumable
    assert 'on_failure is "stop"' in end.reason


def test_all_that_one_failure_has_stopped_wait_for_each_other_to_be_back() -> None:
    """They are started one by one: neither silence nor earlier runs stop anybody again."""
    world = ByHand(settings=replace(SETTINGS, on_failure="stop"))
    world.start()
    found = world.hear(1, Recall())
    found += world.flood(1, Suspect(0, 2, "not heard for 8 s"))
    found += world.tick(20, beating=(1,))
    assert not only(found, End)
    assert not only(found, Train)
    found = world.hear(2, Recall())
    found += world.tick(1)
    assert only(found, Train)
    world.flood(1, Suspect(0, 2, "not heard for 8 s"))
    assert only(world.tick(9, beating=(1,)), End)


def test_a_minority_stops_and_says_why() -> None:
    world = ByHand().begin()
    found = world.tick(60, beating=())
    (end,) = only(found, End)
    assert end.resumable
    assert end.reason.startswith("only 1 of 3 devices of view 0 can be reached, and 2 have to")


def test_a_mixing_goes_on_without_those_that_are_gone() -> None:
    world = ByHand(setup=MIXING).begin()
    world.train()
    world.hear(1, Part(0, 1, 0, np.zeros(6)))
    assert world.state.commit.iteration == 0
    agree(world, View(1, 2, (0, 1), left_j=(1e6, 1e6)))
    assert world.state.commit.iteration == 1
    assert world.state.commit.absent == ((0, 2),)
    assert np.allclose(world.state.commit.vector, 2.0 / 3.0 * (np.arange(6.0) + 1.0))


def test_who_is_put_out_of_a_mixing_sends_nothing_more() -> None:
    world = ByHand(setup=TWICE).begin()
    world.train()
    world.hear(1, Part(0, 1, 0, np.zeros(6)))  # the first of two steps; that of 2 is missing
    view = decided(world, View(1, 2, (1, 2), left_j=(1e6, 1e6)))
    assert not said(world.hear(1, Refused("view 0 is over", (proven(view, 1, 2),))), Part)


def test_what_was_sent_in_a_mixing_is_served_after_a_restart() -> None:
    world = ByHand(setup=MIXING).begin()
    world.train()
    for other in (1, 2):
        world.hear(other, Part(0, 1, 0, np.zeros(6)))
    assert world.state.commit.iteration == 1
    again = ByHand(setup=MIXING, state=world.state).begin()
    parts = said(again.hear(1, Beat(1, 0, 0, "exchanging", waiting=((0, 0),))), Part)
    assert [(part.iteration, part.step) for part in parts] == [(1, 0)]
    assert np.array_equal(parts[0].payload, np.arange(6.0) + 1.0)


def test_a_neighbour_is_told_that_nothing_more_will_come() -> None:
    world = ByHand(setup=MIXING).begin()
    world.train()
    for other in (1, 2):
        world.hear(other, Part(0, 1, 0, np.zeros(6)))
    lost = replace(world.state, sent=())
    again = ByHand(setup=MIXING, state=lost).begin()
    (absent,) = said(again.hear(1, Beat(1, 0, 0, "exchanging", waiting=((0, 0),))), Absent)
    assert absent == Absent(0, 1)


# Endings --------------------------------------------------------------------------------------


def test_a_node_that_is_asked_to_stop_keeps_what_it_is_training() -> None:
    world = ByHand().begin()
    assert not only(world.handle(StopAsked("Ctrl-C")), End)
    (end,) = only(world.train(), End)
    assert (end.reason, end.resumable) == ("Ctrl-C", True)
    assert world.state.trained is not None
    assert world.state.trained[0] == 1


def test_a_node_that_is_asked_twice_stops_at_once() -> None:
    world = ByHand().begin()
    world.handle(StopAsked("Ctrl-C"))
    assert only(world.handle(StopAsked("Ctrl-C")), End)


def finished(others: tuple[int, ...]) -> Beat:
    return Beat(1, 0, 4, "ended", finished=others)


def test_a_node_that_has_finished_stays_until_all_have() -> None:
    world = ByHand(1, setup=PAIR).begin()
    for iteration in range(1, 5):
        world.train()
        world.hear(0, Part(0, iteration, 1, np.ones(PAIR.size)))
    assert world.state.commit.iteration == 4
    assert not only(world.tick(7, beating=(0,)), End)
    world.hear(0, finished((0,)))
    (end,) = only(world.hear(0, finished((0, 1))), End)
    assert end.complete
    again = ByHand(1, setup=PAIR, state=world.state)
    assert only(again.start(), End) == [end]


def cut_off_at_the_end(*beats: Beat) -> list[End]:
    """How a device ends that has the last average, and hears no more after some beats."""
    world = ByHand().begin()
    for iteration in range(1, 5):
        world.train()
        world.hear(1, Given(0, iteration, np.ones(6)))
        for other in (1, 2):
            world.hear(other, Part(0, iteration, 0, np.ones(6)))
            world.hear(other, Part(0, iteration, 1, np.ones(6)))
    assert world.state.commit.iteration == 4
    heard = [effect for beat in beats for effect in world.hear(1, beat)]
    return only([*heard, *world.tick(100, beating=())], End)


def test_who_has_finished_ends_once_a_neighbour_has_ended_with_the_same() -> None:
    """It does not wait for those that are neither heard nor known to have finished."""
    world = ByHand(1, setup=replace(PAIR, iterations=1)).begin()
    world.train(repeatable=True)
    world.hear(0, Part(0, 1, 1, np.ones(PAIR.size)))
    assert world.state.commit.iteration == 1
    assert not only(world.tick(30, beating=(0,)), End)
    (end,) = only(world.hear(0, Beat(1, 0, 1, OVER, finished=(0,))), End)
    assert end.complete


def test_whoever_is_cut_off_says_done_only_if_a_majority_has_finished() -> None:
    """The others may do the last iteration again without it: seed 5107 of the simulation."""
    (alone,) = cut_off_at_the_end(Beat(1, 0, 3, "exchanging"))
    assert (alone.complete, alone.resumable) == (False, True)
    assert cut_off_at_the_end(finished((1,)))[0].complete
    assert cut_off_at_the_end(Beat(1, 0, 4, OVER, finished=(1,)))[0].complete


def test_a_last_average_that_the_others_did_again_is_replaced_when_they_have_ended() -> None:
    world = ByHand().begin()
    world.train()
    old = Commit(4, np.ones(6), view=0)
    view = decided(world, View(1, 4, (1, 2), left_j=(1e6, 1e6)))
    first = world.state.views[0]
    world = ByHand(state=Durable(1, (first, proven(view, 1, 2)), old)).begin()
    world.hear(1, Beat(1, 1, 4, OVER, finished=(1,)))
    assert said(world.effects, Fetch) == [Fetch(1, 4)]
    (end,) = only(world.hear(1, Given(1, 4, np.full(6, 7.0))), End)
    assert end.complete
    assert world.state.commit.vector.tolist() == [7.0] * 6


# Two devices ----------------------------------------------------------------------------------


def pair(quorum: Literal["majority", "one"]) -> ByHand:
    setup = replace(PAIR, alone=quorum == "one")
    return ByHand(0, setup=setup, settings=replace(SETTINGS, quorum=quorum)).begin()


def test_of_two_devices_one_goes_on_if_it_was_told_to() -> None:
    world = pair("one")
    world.train()
    world.tick(30, beating=())
    assert world.state.views[-1].members == (0,)
    assert [train.iteration for train in only(world.effects, Train)][-1] == 2


def test_of_two_devices_none_goes_on_otherwise() -> None:
    world = pair("majority")
    world.train()
    found = world.tick(60, beating=())
    assert world.state.views[-1].number == 0
    assert "have to agree to go on" in only(found, End)[-1].reason


def test_two_that_went_on_by_themselves_say_so_when_they_meet() -> None:
    world = pair("one")
    world.tick(30, beating=())
    theirs = decided(world, View(1, 1, (1,), left_j=(1e6,)))
    found = world.hear(1, Refused("it is over", (proven(theirs, 1),)))
    assert [note.kind for note in only(found, Note)] == ["split"]
    assert world.state.views[-1].members == (0,)
