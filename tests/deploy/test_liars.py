"""What one lying member can do, and what it cannot: the lines of SECURITY.md, one by one."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from joulemesh.deploy.effects import Effect, End, Event, Note, Send
from joulemesh.deploy.messages import (
    Accept,
    Accepted,
    FleetRoster,
    Flood,
    Given,
    Join,
    Leave,
    NoPlan,
    Part,
    Prepare,
    Promise,
    Refused,
    Replan,
    Suspect,
    signed_text,
)
from joulemesh.deploy.node import council
from joulemesh.deploy.node.context import Planbook
from joulemesh.deploy.node.council import Council
from joulemesh.deploy.view import FINISHED, UNHELD, Proof, View, Vote, fingerprint
from joulemesh.testing.fleets.hardware import AUTHORITY, VirtualSigner
from joulemesh.testing.fleets.machine import Machine
from joulemesh.testing.fleets.setup import Setup, VirtualPlanner
from tests.deploy.by_hand import TRIANGLE, ByHand, only, proven, said, signed
from tests.deploy.liars import COMPLETE, LIAR, RING, Lie, Lies, fleet_with

HONEST = {0, 2, 3, 4}


def sent(world: ByHand) -> list[tuple[int, object]]:
    """(receiver, message) of all that a device has sent."""
    return [(one.to, one.message) for one in only(world.effects, Send)]


def undisturbed(lies: Lies) -> None:
    """All devices have reached the end, in the view that they began in."""
    assert lies.sent
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    assert set(lies.fleet.audit.views) == {0}
    assert not any(state.promised for state in lies.fleet.audit._disk)


# What it cannot -------------------------------------------------------------------------------

OTHERS: list[Lie] = [
    lambda lies: lies.flood(3, Leave(0, "I am tired")),
    lambda lies: lies.flood(3, Replan(0, "I am short")),
    lambda lies: lies.flood(3, Suspect(0, 2, "not heard")),
    lambda lies: lies.flood(3, Prepare(1, (1, 3))),
    lambda lies: lies.flood(3, Promise(1, (1, 3), None, 7, 1.0, 1.0)),
    lambda lies: lies.flood(3, Join(0, 0, 1e9)),
]


@pytest.mark.parametrize("links", [COMPLETE, RING])
@pytest.mark.parametrize("lie", OTHERS)
def test_it_cannot_speak_for_another(lie: Lie, links: tuple[tuple[int, int], ...]) -> None:
    lies = fleet_with(lie, links=links)
    undisturbed(lies)
    (note,) = lies.noted("forged")
    assert note.figures == {"sender": LIAR, "origin": 3}


def test_it_cannot_change_what_another_has_said() -> None:
    """A flood that it passes on, with another body, bears a signature of something else."""
    lies: list[Lies] = []

    def lie(world: Lies) -> None:
        lies.append(world)
        honest = signed(Flood(3, 5, 1, Leave(0, "truly")))
        world.tell(replace(honest, body=Leave(0, "not at all")))

    undisturbed(fleet_with(lie))
    assert lies[0].noted("forged")


def offered(view: View) -> Lie:
    """The liar offers a view in a ballot of its own, and votes for everybody."""

    def lie(lies: Lies) -> None:
        lies.flood(LIAR, Accept((1, LIAR), view))
        for origin in range(5):
            lies.flood(origin, Accepted(view.number, (1, LIAR), fingerprint(view)))

    return lie


def shown(view: View, voters: tuple[int, ...] = ()) -> Lie:
    """The liar says that a view is decided, with votes that it has signed itself."""

    def vote(origin: int) -> Vote:
        said = Accepted(view.number, (1, LIAR), fingerprint(view))
        text = signed_text(Flood(origin, 7, 1, said))
        return Vote(origin, 7, 1, VirtualSigner(LIAR).sign(text))

    proof = Proof((1, LIAR), tuple(map(vote, voters))) if voters else None
    return lambda lies: lies.tell(Refused("it is over", (replace(view, proof=proof),)))


FULL = (1e4,) * 5
END = View(1, 21, (0, 1, 2, 3, 4), left_j=FULL, digest=FINISHED)  # of 20 iterations, far too early
IMPOSSIBLE = [
    View(1, 2**40, (0, 1, 2, 3, 4), left_j=FULL, digest="ab" * 32),
    View(1, -5, (0, 1, 2, 3, 4), left_j=FULL, digest="ab" * 32),
    View(1, 3, (0, 1, 77), left_j=FULL[:3], digest="ab" * 32),
    View(1, 3, (), digest="ab" * 32),
    View(1, 3, (1, 0, 2), left_j=FULL[:3], digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL, digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL[:3], cut=((0, 3),), digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL[:3], gifts=((0, 3),), digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL[:3], gifts=((0, 1), (1, 2), (2, 0)), digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL[:3], elapsed_s=float("inf"), digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL[:3], pace=(1.0, 2.0), digest="ab" * 32),
    View(1, 3, (0, 1, 2), left_j=FULL[:3], pace=(1.0, 0.0, float("inf")), digest="ab" * 32),
    View(1, 3, (0, 1, 2, 3, 4), left_j=FULL, digest=FINISHED),
    View(1000, 500_000, (0, 1, 2, 3, 4), left_j=FULL, digest=FINISHED),
]
POSSIBLE = [  # but not what an honest device makes of it
    View(1, 3, (0, 1, 2, 3, 4), left_j=FULL, digest="ab" * 32),
    View(1, 3, (0, 1), left_j=FULL[:2], digest="ab" * 32),
    END,
    View(1, 3, (0, 1, 2, 3, 4), left_j=FULL, digest=UNHELD),
]


@pytest.mark.parametrize("view", [*IMPOSSIBLE, *POSSIBLE])
def test_it_cannot_vote_for_the_others(view: View) -> None:
    lies = fleet_with(offered(view), iterations=20)
    undisturbed(lies)
    unsound = {note.figures["sender"] for note in lies.noted("unsound", 0)}
    assert unsound == ({LIAR} if view.number == 1 else set())


@pytest.mark.parametrize("voters", [(), (1,), (0, 1, 2), (1, 1, 1)])
@pytest.mark.parametrize("view", [*IMPOSSIBLE, *POSSIBLE])
def test_it_cannot_have_a_view_installed_that_no_majority_has_signed(
    view: View, voters: tuple[int, ...]
) -> None:
    lies = fleet_with(shown(view, voters), iterations=20)
    undisturbed(lies)
    assert [note.figures["sender"] for note in lies.noted("unsound", 0)] == [LIAR]


@pytest.mark.parametrize("attempt", [2**40, 2**53, 0, -1])
def test_it_cannot_use_up_the_ballots(attempt: int) -> None:
    """Beyond 2^53 no ballot could travel, and nobody could propose a view any more."""

    def lie(lies: Lies) -> None:
        lies.flood(LIAR, Prepare(1, (attempt, LIAR)))
        lies.flood(LIAR, Promise(1, (attempt, 3), None, 1, 1.0, 1.0))
        lies.flood(LIAR, Prepare(1, (1, 3)))

    undisturbed(fleet_with(lie))


# What it can ----------------------------------------------------------------------------------


def test_it_can_say_that_others_have_failed_and_the_fleet_goes_on() -> None:
    lies = fleet_with(lambda lies: lies.flood(LIAR, Suspect(0, 3, "not heard")))
    assert lies.fleet.audit.newest().number >= 1
    assert lies.fleet.complete == {0, 1, 2, 3, 4}


def test_it_can_freeze_the_others_until_one_of_them_takes_over() -> None:
    lies = fleet_with(lambda lies: lies.flood(LIAR, Prepare(1, (1, LIAR))))
    assert lies.fleet.complete == {0, 1, 2, 3, 4}


def led(view: View) -> Lie:
    """The liar leads a whole ballot: honest devices promise."""

    def lie(lies: Lies) -> None:
        lies.flood(LIAR, Prepare(1, (1, LIAR)))
        lies.fleet.clock.after(0.2, lies.flood, LIAR, Accept((1, LIAR), view))

    return lie


@pytest.mark.parametrize("view", [*IMPOSSIBLE[:-1], *POSSIBLE])
def test_it_can_offer_what_it_likes_and_nobody_takes_what_is_not_so(view: View) -> None:
    lies = fleet_with(led(view), iterations=20)
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    assert all(one != view for one in lies.fleet.audit.views.values())


POOR = View(1, 1, (0, 1, 2, 3, 4), left_j=(0.0,) * 5)


def test_it_cannot_stop_the_fleet_for_want_of_joules() -> None:
    """There is no plan for empty batteries: whose own is not empty does not believe it."""

    def lie(lies: Lies) -> None:
        lies.flood(LIAR, Prepare(1, (1, LIAR)))
        for after_s in (0.1, 0.2, 0.3):
            lies.fleet.clock.after(after_s, lies.flood, LIAR, NoPlan(POOR, "nothing is left"))

    lies = fleet_with(lie, iterations=20)
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    assert not lies.noted("infeasible")


LATE_VIEW = View(1, 1, (0, 1, 2), left_j=(9e5,) * 3, elapsed_s=1e6)


def test_it_cannot_stop_the_fleet_for_want_of_time() -> None:
    """All count the same seconds by the plan's clock: nobody believes that it is over."""

    def lie(lies: Lies) -> None:
        late = replace(POOR, left_j=FULL, elapsed_s=1e6)
        lies.flood(LIAR, Replan(0, "I am short"))
        for ballot in ((1, 0), (1, LIAR), (2, 0)):
            lies.flood(LIAR, Promise(1, ballot, None, 0, 1e4, 1e6))
        for after_s in (0.1, 0.2, 0.3):
            lies.fleet.clock.after(after_s, lies.flood, LIAR, NoPlan(late, "time is up"))

    lies = fleet_with(lie, iterations=20, total_s=50.0)
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    assert not lies.noted("infeasible")


def test_a_device_believes_no_seconds_that_its_plan_has_not() -> None:
    world = ByHand(setup=Setup(3, TRIANGLE, "tree", total_s=60.0)).begin()
    world.flood(1, Replan(0, "short"))
    found = world.flood(LIAR, Promise(1, (1, 0), None, 0, 9e5, 1e6))
    assert [note.kind for note in only(found, Note)] == ["unsound"]
    found = world.flood(2, Promise(1, (1, 0), None, 0, 9e5, 0.0))
    assert {one.view.elapsed_s for one in said([*found, *world.tick(8)], Accept)} == {0.0}
    other = ByHand(2, setup=world.setup).begin()
    other.flood(LIAR, Prepare(1, (1, LIAR)))
    found = other.flood(LIAR, Accept((1, LIAR), replace(LATE_VIEW, digest="ab" * 32)))
    assert not said(found, Accepted)
    assert not only(other.flood(LIAR, NoPlan(LATE_VIEW, "time is up")), End)


def test_a_device_accepts_no_view_that_makes_it_poorer() -> None:
    world = ByHand().begin()
    (promise,) = set(said(world.flood(LIAR, Prepare(1, (1, LIAR))), Promise))
    for left_j, accepts in ((0.5 * promise.left_j, False), (promise.left_j, True)):
        plan = world.planned(View(1, 1, (0, 1, 2), left_j=(left_j, 9e5, 9e5))).plan
        assert plan is not None
        found = world.flood(LIAR, Accept((1, LIAR), plan.view))
        assert bool(said(found, Accepted)) is accepts


def test_it_can_send_wrong_parameters() -> None:
    world = ByHand(2).begin()
    world.train()
    for other in (0, 1):
        world.hear(other, Part(0, 1, 0, np.full(6, 1e6)))
    assert world.state.commit.vector.min() > 1e5


CLAIMS = [
    Promise(1, (1, 0), None, 0, 1e12, 0.0),  # more joules than any battery holds
    Promise(1, (1, 0), None, 0, 0.0, 0.0),
    Promise(1, (1, 0), None, 0, 1e4, 0.0, pace=1e6),
    Promise(1, (1, 0), None, 3, 1e4, 0.0),  # iterations that it has not done
]


@pytest.mark.parametrize("claim", CLAIMS)
def test_it_can_claim_a_battery_a_pace_and_iterations_of_its_own(claim: Promise) -> None:
    """The view has what it claims, and no other figure of the view is another for it."""
    world = ByHand(0).begin()
    world.flood(1, Replan(0, "short"))
    honest = Promise(1, (1, 0), None, 0, 9e5, 0.0)
    world.flood(LIAR, claim)
    found = [*world.flood(2, honest), *world.tick(8)]
    (view,) = {one.view for one in said(found, Accept)}
    assert view.left_j[1:] == (claim.left_j, 9e5)
    assert view.pace_of(LIAR) == claim.pace
    assert view.pace_of(2) == 1.0
    assert view.start == claim.iteration + 1


def test_nobody_waits_for_ever_for_iterations_that_a_liar_only_claims() -> None:
    """Asked for what it says that it has, it gives nothing: after some views they go on or stop."""

    def lie(lies: Lies) -> None:
        runner = lies.fleet.machines[LIAR].runner
        assert runner is not None
        node: Any = runner._node
        handle = node.handle

        def silent(event: Event, now: float) -> list[Effect]:
            found = handle(event, now)
            return [one for one in found if not isinstance(getattr(one, "message", 0), Given)]

        node.handle = silent
        lies.flood(LIAR, Prepare(1, (1, LIAR)))
        lies.flood(LIAR, Promise(1, (1, LIAR), None, 2, 1e4, 0.1))

    lies = fleet_with(lie, ends=False)
    for device in HONEST:
        assert lies.fleet.audit.committed(device).iteration == 8 or lies.fleet.machines[device].end


def test_it_can_ask_for_another_plan_again_and_again() -> None:
    def lie(lies: Lies) -> None:
        for number in range(6):
            after_s = 1.5 * number
            lies.fleet.clock.after(after_s, lies.flood, LIAR, Replan(number, "I am short"))

    lies = fleet_with(lie, iterations=20)
    assert 2 <= lies.fleet.audit.newest().number <= 7
    assert lies.fleet.complete == {0, 1, 2, 3, 4}


def test_whose_training_it_says_to_hang_is_out_and_comes_back_later_each_time() -> None:
    """Device 3 is put out again and again, and each time it asks after a longer wait."""
    out: list[tuple[float, float]] = []  # when it was put out, and taken in again

    def lie(lies: Lies) -> None:
        newest, now = lies.fleet.audit.newest(), lies.fleet.clock.now
        if 3 in newest.members:
            if out and not out[-1][1]:
                out[-1] = (out[-1][0], now)
            if len(out) == 3:
                return
            lies.flood(LIAR, Suspect(newest.number, 3, "its training hangs", hung=True))
        elif not out or out[-1][1]:
            out.append((now, 0.0))
        lies.fleet.clock.after(0.05, lie, lies)

    lies = fleet_with(lie, iterations=60)
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    away_s = [back - gone for gone, back in out]
    assert len(away_s) == 3
    assert away_s[0] < away_s[1] < away_s[2]


def test_it_can_propose_again_and_again_until_another_takes_over() -> None:
    """The longest time without a commit is bounded, however many ballots it uses."""
    commits: list[float] = []

    def lie(lies: Lies) -> None:
        at = iter(range(1, 40))

        def propose() -> None:
            done = max(lies.fleet.audit.committed(one).iteration for one in HONEST)
            commits.append(done)
            attempt = next(at, 0)
            if attempt:
                number = lies.fleet.audit.newest().number + 1
                lies.flood(LIAR, Prepare(number, (attempt, LIAR)))
                lies.fleet.clock.after(0.3, propose)

        propose()

    lies = fleet_with(lie, iterations=60)
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    still = max(commits.count(one) for one in set(commits) - {commits[-1]} or {commits[0]})
    assert still >= 2
    assert 0.3 * still <= 16 * 1.5


def test_a_liar_that_proposes_takes_a_retired_device_in_and_the_next_view_puts_it_out() -> None:
    world = ByHand().begin()
    text = FleetRoster(1, (), (2,), "")
    signature = VirtualSigner(AUTHORITY).sign(signed_text(text))
    plan = world.planned(View(1, 1, (0, 1, 2), left_j=(9e5,) * 3)).plan
    assert plan is not None
    world.hear(1, Refused("it is over", (proven(plan.view, 1, 2),)))
    found = world.hear(1, replace(text, signature=signature))
    assert said(found, Prepare)
    asked = said([*found, *world.tick(4, view=1)], Prepare)[-1].ballot
    found = world.flood(1, Promise(2, asked, None, 0, 9e5, 0.0))
    found += world.flood(2, Promise(2, asked, None, 0, 9e5, 0.0))
    assert {one.view.members for one in said([*found, *world.tick(8, view=1)], Accept)} == {(0, 1)}


def test_a_roster_that_a_liar_keeps_to_itself_comes_by_another_way() -> None:
    world = ByHand(2).begin()
    text = FleetRoster(1, (), (0,), "")
    signature = VirtualSigner(AUTHORITY).sign(signed_text(text))
    world.hear(0, replace(text, signature=signature))
    assert [to for to, one in sent(world) if isinstance(one, FleetRoster)] == [0, LIAR]


def test_two_that_lie_together_are_a_majority_of_three() -> None:
    """Any view that all devices plan alike, whatever it leaves of device 0; no other."""
    for digest, takes in (("", True), ("ab" * 32, False)):
        world = ByHand().begin()
        poor = View(1, 1, (0, 1, 2), left_j=(1e3, 9e5, 9e5))
        plan = world.planned(poor).plan
        assert plan is not None
        view = replace(plan.view, digest=digest or plan.view.digest)
        found = world.hear(1, Refused("it is over", (proven(view, 1, 2),)))
        assert world.state.views[-1] == view
        assert bool(only(found, End)) is not takes


def test_as_the_one_that_proposes_it_can_leave_others_out_and_they_come_back() -> None:
    planner = VirtualPlanner(Setup(5, COMPLETE, "tree", iterations=20), FULL)
    plan = planner.plan(View(1, 6, (0, 1, 2, 4), left_j=(1e4,) * 4), 0)
    assert not isinstance(plan, str)
    lies = fleet_with(led(plan.view), iterations=20)
    views = lies.fleet.audit.views
    assert views[1] == plan.view
    assert 3 in views[max(views)].members
    assert lies.fleet.complete == {0, 1, 2, 3, 4}


def test_it_can_pass_nothing_on_and_part_a_fleet_that_it_holds_together() -> None:
    """On a star it is between all others: they stop, and may be started again."""
    star = tuple((min(LIAR, one), max(LIAR, one)) for one in sorted(HONEST))

    def deaf(lies: Lies) -> None:
        lies.sent += 1
        lies.fleet.machines[LIAR].crash()
        lies.fleet.network.attach(LIAR, lambda sender, message, taken: taken())

    lies = fleet_with(deaf, links=star, iterations=20, at_s=2.0, ends=False)
    assert not lies.fleet.complete
    for device in HONEST:
        commit = lies.fleet.audit.committed(device)
        assert 0 < commit.iteration < 20
    assert len(lies.fleet.audit.views) == 1


def test_it_can_run_a_copy_of_its_folder_elsewhere_which_is_named() -> None:
    copies: list[Machine] = []

    def lie(lies: Lies) -> None:
        lies.sent += 1
        copies.append(lies.fleet._clone_of(lies.fleet.machines[LIAR]))
        copies[0].start()

    lies = fleet_with(lie, iterations=40)
    assert lies.fleet.complete == {0, 1, 2, 3, 4}
    assert {device for device in HONEST if lies.noted("double", device)} == HONEST
    assert set(lies.fleet.audit.views) == {0}


def test_it_cannot_claim_iterations_that_nobody_can_have_done() -> None:
    """A view begins after the last iteration that any of those who promise has committed."""
    world = ByHand().begin()
    world.flood(1, Replan(0, "short"))
    found = world.flood(LIAR, Promise(1, (1, 0), None, 4, 9e5, 1.0))
    assert [note.kind for note in only(found, Note)] == ["unsound"]
    found = world.flood(2, Promise(1, (1, 0), None, 0, 9e5, 0.0))
    assert {accept.view.start for accept in said([*found, *world.tick(8)], Accept)} == {1}


def test_it_can_vote_twice_and_is_named() -> None:
    """Two views of one number: whoever is in both proofs has signed both."""
    world = ByHand().begin()
    plans = (
        world.planned(View(1, 1, members, left_j=(9e5, 9e5))).plan for members in ((0, 1), (1, 2))
    )
    one, other = (plan.view for plan in plans if plan is not None)
    world.hear(1, Refused("it is over", (proven(one, 0, 1),)))
    assert world.state.views[-1] == one
    found = world.hear(2, Refused("it is over", (proven(other, 1, 2),)))
    assert world.state.views[-1] == one
    notes = [note.figures for note in only(found, Note)]
    assert [(note["sender"], note["view"]) for note in notes] == [(LIAR, 1)]


# Numbers that are none --------------------------------------------------------------------------


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("scheme", ["tree", "metropolis", "ring"])
def test_parameters_that_are_not_finite_are_not_averaged(scheme: str, number: float) -> None:
    """Whoever sends them is named and left out, and the others go on to the end."""

    def spoil(part: Part) -> Part:
        payload = part.payload.copy()
        payload[-1] = number
        return replace(part, payload=payload)

    lies = fleet_with(lambda lies: None, scheme=scheme, iterations=20, spoil=spoil)
    assert {note.figures["sender"] for note in lies.noted("not-finite")} == {LIAR}
    for device in HONEST:
        commit = lies.fleet.audit.committed(device)
        assert np.isfinite(commit.vector).all()
        assert commit.iteration == 20


def test_an_average_that_overflows_is_not_committed() -> None:
    """Parts that are finite, each by itself, may have a sum that is not."""
    world = ByHand(2, setup=Setup(3, TRIANGLE, "tree")).begin()
    world.train()
    with np.errstate(over="ignore"):
        for other in (0, 1):
            found = world.hear(other, Part(0, 1, 0, np.full(6, 1.7e308)))
    (end,) = only(found, End)
    assert end.resumable
    assert "iteration 1 is not finite" in end.reason
    assert world.state.commit.iteration == 0


# Broken rules: each lets one of the lies above through -------------------------------------------


def anything(*_: object) -> bool:
    return True


def no_objection(*_: object) -> None:
    return None


BROKEN: dict[str, tuple[Lie, list[tuple[object, str, object]]]] = {
    "a signature that is not verified": (OTHERS[0], [(VirtualSigner, "verify", anything)]),
    "a proof that is not looked at": (shown(POSSIBLE[1]), [(council, "is_proven", anything)]),
    "a plan that is not compared": (led(POSSIBLE[0]), [(Planbook, "agrees", anything)]),
    "an end that is not doubted": (led(END), [(Council, "_objection", no_objection)]),
    "a view that is not looked at": (
        led(IMPOSSIBLE[2]),
        [(Council, "_fault", no_objection), (Planbook, "agrees", anything)],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_noticed(name: str) -> None:
    lie, rules = BROKEN[name]
    assert not harm(lie)
    with ExitStack() as stack:
        for rule in rules:
            stack.enter_context(patch.object(*rule))
        assert harm(lie)


def harm(lie: Lie) -> str:
    """What a lie has done to a fleet; empty if it has been put right."""
    try:
        lies = fleet_with(lie, iterations=20)
    except Exception as error:
        return str(error)
    left = [one for one in HONEST if lies.fleet.audit.committed(one).iteration < 20]
    views = lies.fleet.audit.views.values()
    out = [view for view in views if 3 not in view.members or view == END]
    return f"{left or ''} {out or ''}".strip()
