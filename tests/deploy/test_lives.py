"""Folders that are lost, restored or cloned: what neighbours remember, and whom they believe."""

from __future__ import annotations

from dataclasses import replace

import pytest

from joulemesh.deploy.effects import Effect, Note, Received, Save, Train
from joulemesh.deploy.messages import (
    Accept,
    Accepted,
    Account,
    Beat,
    Double,
    Flood,
    Join,
    Message,
    Prepare,
    Promise,
    Recall,
    Refused,
    Replan,
    Suspect,
)
from joulemesh.deploy.signing import signed_text
from joulemesh.deploy.view import View, fingerprint
from joulemesh.deploy.virtual.hardware import VirtualSigner
from tests.deploy.by_hand import ByHand, only, proven, said, signed

VIEW = View(1, 1, (0, 1, 2), left_j=(9e5,) * 3, digest="ab" * 32)


def account(spent_j: float = 0.0, iteration: int = 0, *, by: int = 0, **given: object) -> Account:
    """What device 0 has said of itself; signed by another if that one lies."""
    made = Account(0, spent_j, iteration, 1, **given)  # type: ignore[arg-type]
    return replace(made, signature=VirtualSigner(by).sign(signed_text(made)))


def started(*recalls: Recall) -> tuple[ByHand, list[Effect]]:
    """A device whose folder is new, and what its neighbours say when it is started."""
    world = ByHand()
    world.start()
    found: list[Effect] = []
    for other, recall in enumerate(recalls, start=1):
        found += world.hear(other, recall)
        found += world.hear(other, Beat(1, 0, 4, "exchanging"))
    return world, found


# What was lost ----------------------------------------------------------------------------------


def test_joules_that_neighbours_remember_count_as_spent() -> None:
    world, found = started(Recall(account(7.5)), Recall(account(9.25)))
    assert world.meter.spent_j() >= 9.25
    assert [note.figures["spent_j"] for note in only(found, Note)] == [7.5, 9.25]


def test_nobody_can_make_a_device_believe_that_it_has_spent_more() -> None:
    world, found = started(Recall(account(9e5, by=1)), Recall())
    assert world.meter.spent_j() < 100
    assert [note.figures for note in only(found, Note)] == [{"sender": 1, "origin": 0}]
    stolen = replace(account(9e5), device=2)
    assert started(Recall(stolen), Recall())[0].meter.spent_j() < 100


def test_a_member_that_has_lost_what_it_had_becomes_a_newcomer_at_once() -> None:
    world, found = started(Recall(account(3.0, 4)), Recall(account(3.0, 4)))
    assert not only(found, Train)
    (reason,) = {one.reason for one in said(found, Replan)}
    assert reason == "its folder holds iteration 0, and it had committed 4"
    found = world.flood(1, Prepare(1, (1, 1)))
    (promise,) = set(said(found, Promise))
    assert promise.pending


def test_who_has_what_it_had_goes_on() -> None:
    _, found = started(Recall(account(0.0, 0)), Recall())
    assert only(found, Train)
    assert not said(found, Replan)


def votes() -> Recall:
    """A promise and an acceptance of device 0, as neighbours have passed them on."""
    promise = Promise(1, (3, 1), None, 0, 9e5, 1.0)
    accepted = Accepted(1, (3, 1), fingerprint(VIEW))
    floods = (signed(Flood(0, 9, 1, promise)), signed(Flood(0, 9, 2, accepted)))
    return Recall(None, floods, (VIEW,))


@pytest.mark.parametrize(
    "recall", [votes(), Recall(account(promised=(3, 1), accepted=((3, 1), VIEW)))]
)
def test_a_device_does_not_vote_against_what_it_has_forgotten(recall: Recall) -> None:
    world, _ = started(recall, Recall())
    assert world.state.promised == (3, 1)
    assert world.state.accepted == ((3, 1), VIEW)
    assert {one.ballot for one in said(world.flood(2, Prepare(1, (2, 2))), Promise)} == {(3, 1)}
    later = said(world.flood(2, Prepare(1, (4, 2))), Promise)
    assert {one.accepted for one in later} == {((3, 1), VIEW)}


def test_votes_of_another_are_not_its_own() -> None:
    other = signed(Flood(2, 9, 1, Promise(1, (3, 1), None, 0, 9e5, 1.0)))
    world, found = started(Recall(None, (other,)), Recall())
    assert world.state.promised is None
    assert "forged" in {note.kind for note in only(found, Note)}


def test_nobody_votes_before_a_neighbour_has_said_what_it_remembers() -> None:
    world = ByHand()
    world.start()
    assert not said(world.flood(1, Prepare(1, (1, 1))), Promise)
    world.hear(1, Recall())
    assert said(world.flood(1, Prepare(1, (1, 1))), Promise)


def test_what_neighbours_say_of_themselves_is_on_disk_with_the_next_commit_and_given_back() -> None:
    world = ByHand().begin()
    theirs = Account(1, 5.0, 2, 1)
    theirs = replace(theirs, signature=VirtualSigner(1).sign(signed_text(theirs)))
    world.hear(1, Beat(1, 0, 2, "exchanging", account=theirs))
    world.flood(1, Prepare(1, (1, 1)))  # which is saved
    assert theirs in only(world.effects, Save)[-1].state.accounts
    again = ByHand(state=world.state)
    again.start()
    recalls = said(again.hear(1, Beat(7, 0, 0, "starting")), Recall)
    assert [one.account for one in recalls] == [theirs]


def test_a_device_that_was_put_out_and_lost_its_folder_hears_of_the_view_and_asks_to_join() -> None:
    """Its beats say less than they did before, and are heeded all the same."""
    world = ByHand().begin()
    world.hear(2, Beat(5, 0, 4, "exchanging"))
    plan = world.planned(View(1, 1, (0, 1), left_j=(9e5, 9e5))).plan
    assert plan is not None
    world.hear(1, Refused("view 0 is over", (proven(plan.view, 0, 1),)))
    found = world.hear(2, Beat(6, 0, 0, "starting"))
    assert [one.views for one in said(found, Refused)] == [(plan.view,)]
    had = Account(2, 3.0, 4, 1)
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


def test_an_offer_is_not_taken_before_neighbours_have_spoken() -> None:
    world = ByHand()
    world.start()
    plan = world.planned(replace(VIEW, digest="")).plan
    assert plan is not None
    assert not said(world.flood(1, Accept((1, 1), plan.view)), Accepted)


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
