"""Folders that are lost, restored or cloned: what neighbours remember, and whom they believe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from joulemesh.deploy.effects import Durable, Effect, Note, Received, Save, Train
from joulemesh.deploy.messages import (
    Accept,
    Accepted,
    Account,
    Beat,
    Double,
    Fetch,
    Join,
    Message,
    Prepare,
    Promise,
    Recall,
    Refused,
    Replan,
    Suspect,
    signed_text,
)
from joulemesh.deploy.view import View
from joulemesh.testing.fleets.hardware import VirtualSigner
from tests.deploy.by_hand import ByHand, only, proven, said


def account(spent_j: float = 0.0, iteration: int = 0, *, by: int = 0, **given: Any) -> Account:
    """What device 0 has said of itself in its third run; signed by another if that one lies."""
    made = Account(0, spent_j, iteration, **({"incarnation": 3, "epoch": 9, "saves": 50} | given))
    return replace(made, signature=VirtualSigner(by).sign(signed_text(made)))


def started(*recalls: Recall, state: Durable | None = None) -> tuple[ByHand, list[Effect]]:
    """A device whose folder is new unless given, and what its neighbours say when it is started."""
    world = ByHand(state=state)
    world.start()
    found: list[Effect] = []
    for other, recall in enumerate(recalls, start=1):
        found += world.hear(other, recall)
        found += world.hear(other, Beat(1, 0, 4, "exchanging"))
    return world, found


def folder(incarnation: int, epoch: int, saves: int) -> Durable:
    """A folder that was in use before."""
    state = ByHand().state
    return replace(state, incarnation=incarnation, epoch=epoch, saves=saves, folder="whole")


# What was lost ----------------------------------------------------------------------------------


def test_joules_that_neighbours_remember_count_as_spent() -> None:
    world, found = started(Recall(account(7.5)), Recall(account(9.25)))
    assert world.meter.spent_j() >= 9.25
    told = [note.figures["spent_j"] for note in only(found, Note) if note.kind == "recalled"]
    assert told == [7.5, 9.25]


def test_nobody_can_make_a_device_believe_that_it_has_spent_more() -> None:
    world, found = started(Recall(account(9e5, by=1)), Recall())
    assert world.meter.spent_j() < 100
    assert [note.figures for note in only(found, Note)] == [{"sender": 1, "origin": 0}]
    stolen = replace(account(9e5), device=2)
    assert started(Recall(stolen), Recall())[0].meter.spent_j() < 100


@pytest.mark.parametrize(
    ("remembered", "held"),
    [
        ({}, None),  # removed
        ({"incarnation": 1}, None),  # removed in its first run
        ({"saves": 51}, folder(3, 9, 50)),  # an older copy of the same run
        ({"incarnation": 4, "epoch": 10, "saves": 1}, folder(3, 9, 50)),  # and of an earlier one
        ({"epoch": 10, "saves": 1}, folder(3, 9, 50)),  # a second copy of the same one
    ],
)
def test_a_folder_that_lacks_what_neighbours_remember_is_lost(
    remembered: dict[str, int], held: Durable | None
) -> None:
    known = Recall(account(3.0, 4, **remembered))
    world, found = started(known, known, state=held)
    assert not only(found, Train)
    assert [note.figures["had"] for note in only(found, Note) if note.kind == "lost"] == [4]
    assert world.state.folder == "lost"
    assert {(one.view, one.epoch) for one in said(found, Join)} == {(0, 1)}
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)
    again = ByHand(state=world.state)  # which its folder remembers
    again.begin()
    assert not said(again.flood(1, Prepare(1, (1, 1))), Promise)


@pytest.mark.parametrize("saves", [1, 50])
def test_who_has_what_it_had_goes_on(saves: int) -> None:
    known = Recall(account(0.0, 0, saves=saves))
    world, found = started(known, known, state=folder(3, 9, 50))
    assert only(found, Train)
    assert not said(found, Join)
    assert said(world.flood(1, Prepare(1, (1, 1))), Promise)


def test_what_was_said_to_an_earlier_run_does_not_count() -> None:
    """It may come late, to a run that has lost its folder since, and knows of nothing."""
    world = ByHand()
    world.start()
    late = Recall(None, epoch=17)
    found = [*world.hear(1, late), *world.hear(2, late), *world.tick(2)]
    assert not only(found, Train)
    assert only([*world.hear(1, Recall()), *world.hear(2, Recall())], Train)


def test_a_copy_of_a_folder_votes_once_all_neighbours_have_recalled() -> None:
    """It may be older than a vote that one of them knows of; it works, and asks for nothing."""
    known = Recall(account(0.0, 0, saves=50))
    copy = replace(folder(3, 9, 50), folder="copied")
    world = ByHand(state=copy)
    world.start()
    found = [*world.hear(1, known), *world.hear(1, Beat(1, 0, 0, "training"))]
    found += world.tick(40, beating=(1,))
    assert only(found, Train)
    assert not said(found, Join)
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)
    assert not any(one.account and one.account.sure for one in said(found, Beat))
    world.hear(2, known)
    assert world.state.folder == "whole"
    assert said(world.flood(1, Prepare(1, (1, 1))), Promise)


def test_a_copy_of_a_folder_that_is_too_old_is_lost() -> None:
    copy = replace(folder(3, 9, 50), folder="copied")
    world, found = started(Recall(), Recall(account(3.0, 4, saves=51)), state=copy)
    assert world.state.folder == "lost"
    assert said(found, Join)


def test_a_new_device_that_nobody_knows_begins() -> None:
    world, found = started(Recall(), Recall())
    assert only(found, Train)
    assert world.state.folder == "whole"


# Votes that were lost ---------------------------------------------------------------------------


def lost() -> ByHand:
    """A device that has lost its folder, in a view of three."""
    known = Recall(account(3.0), whole=True)
    return started(known, known)[0]


def taken_in(epoch: int, members: tuple[int, ...] = (0, 1, 2), number: int = 1) -> View:
    """The next view, in which a run of device 0 is a newcomer."""
    gone = View(number, 1, members, left_j=(1e6,) * len(members), lives=((0, epoch),))
    plan = ByHand().planned(replace(gone, gifts=((0, 1),))).plan
    assert plan is not None
    return plan.view


def test_it_votes_again_as_of_a_view_that_takes_its_run_in() -> None:
    world = lost()
    world.hear(1, Refused("view 0 is over", (proven(taken_in(77), 1, 2),)))  # an earlier run
    assert world.state.views[-1].number == 1
    assert not said(world.flood(1, Prepare(2, (1, 1))), Promise)
    later = taken_in(1, number=2)
    found = world.hear(1, Refused("view 1 is over", (proven(later, 1, 2),)))
    assert world.state.folder == "whole"
    assert said(found, Fetch)  # what it lacks
    assert said(world.flood(1, Prepare(3, (1, 1))), Promise)


def test_the_majority_that_it_was_part_of_stays_the_only_one() -> None:
    """Of three, 0 and 1 decide a view, which 1 alone knows of; 0 loses its folder, and 1 is gone.

    With 2, which knows of nothing, it would be a majority once more.
    """
    world, first = ByHand(), taken_in(5)
    world.begin()
    assert said(world.flood(1, Prepare(1, (1, 1))), Promise)
    assert said(world.flood(1, Accept((1, 1), first)), Accepted)
    again = ByHand()
    again.start()
    found = again.hear(2, Recall(account(saves=1)))
    for turn in range(1, 9):
        found += again.tick(1, beating=(2,))
        found += again.flood(2, Prepare(1, (turn, 2)))
        found += again.flood(2, Accept((turn, 2), replace(first, lives=())))
    assert not said(found, Promise)
    assert not said(found, Accepted)
    assert {one.ballot[1] for one in said(found, Prepare)} == {2}  # passed on


def test_in_a_view_of_two_the_other_one_remembers_for_both() -> None:
    for whole in (True, False):
        world, pair = lost(), taken_in(77, (0, 1))
        world.hear(1, Refused("view 0 is over", (proven(pair, 1, 2),)))
        world.hear(1, Recall(account(3.0), whole))
        world.node._lives.vouching &= {1} if whole else set()
        promises = said(world.flood(1, Prepare(2, (1, 1))), Promise)
        assert {one.pending for one in promises} == ({True} if whole else set())
        assert not said(world.tick(60, beating=(1,), view=1), Prepare)  # its ballots are unknown


def test_nobody_votes_before_the_neighbours_that_it_hears_have_spoken() -> None:
    known = Recall(account(saves=50))
    world = ByHand(state=folder(3, 9, 50))
    world.start()
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)
    world.hear(2, Beat(1, 0, 0, "exchanging"))
    world.hear(1, known)
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)
    world.hear(2, known)
    assert said(world.flood(1, Prepare(1, (1, 1))), Promise)


def test_a_neighbour_that_does_not_recall_is_waited_for_no_longer_than_one_that_is_not_there() -> (
    None
):
    world = ByHand()
    world.start()
    world.hear(1, Recall())
    assert not only(world.tick(29), Train)
    assert only(world.tick(3), Train)
    assert said(world.flood(1, Prepare(1, (1, 1))), Promise)


def test_what_neighbours_say_of_themselves_is_on_disk_before_it_is_given_back() -> None:
    world = ByHand().begin()
    theirs = Account(1, 5.0, 2, 1, 1, 8)
    theirs = replace(theirs, signature=VirtualSigner(1).sign(signed_text(theirs)))
    world.hear(1, Beat(1, 0, 2, "exchanging", account=theirs))
    world.flood(1, Prepare(1, (1, 1)))  # which is saved
    assert theirs in only(world.effects, Save)[-1].state.accounts
    again = ByHand(state=world.state)
    again.start()
    again.disk = False
    beat = Beat(7, 0, 0, "starting", account=replace(theirs, epoch=7, spent_j=0.0, sure=False))
    assert not said(again.hear(1, beat), Recall)
    recalls = said(again.sync(), Recall)
    assert [one.account for one in recalls] == [theirs]
    assert theirs in again.state.accounts  # until it has compared


def test_a_device_that_was_put_out_and_lost_its_folder_hears_of_the_view_and_asks_to_join() -> None:
    """Its beats say less than they did before, and are heeded all the same."""
    world = ByHand().begin()
    world.hear(2, Beat(5, 0, 4, "exchanging"))
    plan = world.planned(View(1, 1, (0, 1), left_j=(9e5, 9e5))).plan
    assert plan is not None
    world.hear(1, Refused("view 0 is over", (proven(plan.view, 0, 1),)))
    found = world.hear(2, Beat(6, 0, 0, "starting"))
    assert [one.views for one in said(found, Refused)] == [(plan.view,)]
    had = Account(2, 3.0, 4, 1, 5, 9)
    had = replace(had, signature=VirtualSigner(2).sign(signed_text(had)))
    wiped = ByHand(2)
    wiped.start()
    wiped.hear(0, Recall(had))
    wiped.hear(1, Recall(had))
    found = wiped.hear(0, Refused("view 0 is over", (proven(plan.view, 0, 1),)))
    assert said(found, Join)


# Doubles ----------------------------------------------------------------------------------------


def raw(world: ByHand, sender: int, message: Message) -> list[Effect]:
    """Let a message come as it is."""
    return world.handle(Received(sender, message))


def test_a_double_is_named_and_does_not_count_as_alive() -> None:
    world = ByHand().begin()
    found: list[Effect] = []
    for turn in range(1, 40):
        found += world.tick(1)  # both are heard
        found += raw(world, 1, Beat(66, 0, 0, "starting", count=turn))
    assert [note.figures for note in only(found, Note) if note.kind == "double"] == [{"device": 1}]
    assert {one.device for one in said(found, Double)} == {1}
    alone: list[Effect] = []
    for turn in range(40, 60):
        alone += world.tick(1, beating=(2,))
        alone += raw(world, 1, Beat(66, 0, 0, "starting", count=turn))
    assert 1 in {one.device for one in said(alone, Suspect)}


def test_everybody_hears_of_a_double() -> None:
    world = ByHand().begin()
    notes = only(world.flood(1, Double(2)), Note) + only(world.flood(2, Double(2)), Note)
    assert [(note.kind, note.figures) for note in notes] == [("double", {"device": 2})]


def test_a_neighbour_that_is_started_again_is_believed_once_it_answers() -> None:
    world = ByHand().begin()
    for _ in range(5):
        world.tick(1)
    answer = said(raw(world, 1, Beat(77, 0, 3, "starting", count=1)), Beat)
    late = Beat(77, 0, 3, "starting", count=2, echo=(1, answer[-1].count - 1))
    assert not world.node._lives.current(1, late)  # it was sent before
    raw(world, 1, replace(late, count=3, echo=(1, answer[-1].count)))
    assert world.node._watch.beats[1].epoch == 77
    raw(world, 1, Beat(1, 0, 9, "exchanging", count=10**6, echo=(1, 1)))  # of its last life
    assert world.node._watch.beats[1].epoch == 77


def test_a_device_that_nobody_answers_keeps_still_and_ends() -> None:
    world = ByHand()
    world.start()
    found = world.tick(60, beating=())
    assert not only(found, Train)
    assert {type(one) for one in said(found, object)} == {Beat}
    assert "no neighbour can be reached" in str(world.tick(60, beating=()))


# Links ------------------------------------------------------------------------------------------


def test_a_link_that_has_healed_is_used_again_and_later_each_time() -> None:
    waits = []
    for times in (1, 2, 3):
        world = ByHand().begin()
        cut = View(0, 1, (0, 1, 2), left_j=(9e5,) * 3, cut=((0, 1),))
        for number in range(1, times + 1):
            plan = world.planned(replace(cut, number=number)).plan
            assert plan is not None
            world.hear(1, Refused("it is over", (proven(plan.view, 1, 2),)))
        began, found = world.now, list[Effect]()
        while not said(found, Replan):
            found += world.tick(1, view=times)
            assert world.now < 999
        assert {one.reason for one in said(found, Replan)} == {"its link to device 1 works again"}
        waits.append(world.now - began)
    assert waits[0] >= 4 * 8.0  # patiences
    assert waits[1] > 1.5 * waits[0]
    assert waits[2] > 1.5 * waits[1]


def test_a_link_that_carries_beats_one_way_only_stays_cut() -> None:
    world = ByHand().begin()
    cut = View(1, 1, (0, 1, 2), left_j=(9e5,) * 3, cut=((0, 1),))
    plan = world.planned(cut).plan
    assert plan is not None
    world.hear(2, Refused("it is over", (proven(plan.view, 1, 2),)))
    found: list[Effect] = []
    for turn in range(100):
        found += world.tick(1, beating=(2,), view=1)
        found += raw(world, 1, Beat(1, 1, 0, "exchanging", count=10_000 + turn, echo=(1, 1)))
    assert not said(found, Replan)
