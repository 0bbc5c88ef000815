"""The next view, worked out by hand on small graphs."""

from __future__ import annotations

from dataclasses import replace

from joulemesh.deploy.messages import Join, Promise
from joulemesh.deploy.node.council import next_view
from joulemesh.deploy.view import View

#  0 - 1
#  |   |
#  3 - 2 - 4
LINKS = ((0, 1), (0, 3), (1, 2), (2, 3), (2, 4))
ALL = View(3, 5, (0, 1, 2, 3, 4))


def promise(iteration: int, left_j: float = 1.0, cut: tuple[int, ...] = ()) -> Promise:
    return Promise(4, (1, 0), None, iteration, left_j, elapsed_s=iteration * 2.0, cut=cut)


def join(iteration: int) -> Join:
    return Join(3, iteration, left_j=7.0)


def test_it_begins_after_the_last_iteration_that_anybody_has_committed() -> None:
    said = {0: promise(7, 3.0), 1: promise(6, 2.0), 3: promise(5, 1.0)}
    assert next_view(ALL, said, {}, (), LINKS) == View(
        4, 8, (0, 1, 3), left_j=(3.0, 2.0, 1.0), elapsed_s=14.0
    )


def test_the_commit_of_a_device_that_leaves_counts() -> None:
    said = {0: promise(6), 1: promise(7), 2: promise(6), 3: promise(6), 4: promise(6)}
    view = next_view(ALL, said, {}, (1,), LINKS)
    assert view is not None
    assert (view.start, view.members) == (8, (0, 2, 3, 4))


def test_those_that_are_cut_off_are_left_out_and_the_larger_part_goes_on() -> None:
    said = {0: promise(6), 1: promise(6), 3: promise(6), 4: promise(9)}
    view = next_view(ALL, said, {}, (), LINKS)
    assert view is not None
    assert view.members == (0, 1, 3)
    assert view.start == 10  # what device 4 has done is not forgotten


def test_a_link_that_one_end_does_not_hear_is_cut() -> None:
    said = {one: promise(6) for one in range(5)} | {2: promise(6, cut=(1,))}
    view = next_view(ALL, said, {}, (), LINKS)
    assert view is not None
    assert view.members == (0, 1, 2, 3, 4)
    assert view.cut == ((1, 2),)


def test_silence_of_a_device_that_is_gone_cuts_nothing() -> None:
    said = {0: promise(6), 1: promise(6, cut=(2,)), 3: promise(6, cut=(2,))}
    view = next_view(ALL, said, {}, (), LINKS)
    assert view is not None
    assert view.cut == ()


def test_a_newcomer_takes_the_parameters_of_a_neighbour() -> None:
    small = View(3, 5, (0, 1, 3))
    said = {0: promise(6), 1: promise(6), 3: promise(6)}
    view = next_view(small, said, {2: join(4)}, (), LINKS)
    assert view is not None
    assert view.members == (0, 1, 2, 3)
    assert view.gifts == ((2, 1),)
    assert view.left_j == (1.0, 1.0, 7.0, 1.0)


def test_the_neighbour_with_the_most_joules_gives() -> None:
    small = View(3, 5, (0, 1, 3))
    said = {0: promise(6), 1: promise(6, 1.0), 3: promise(6, 2.0)}
    view = next_view(small, said, {2: join(4)}, (), LINKS)
    assert view is not None
    assert view.gifts == ((2, 3),)


def test_a_newcomer_behind_a_newcomer_is_served_after_it() -> None:
    small = View(3, 5, (0, 1, 3))
    said = {0: promise(6), 1: promise(6), 3: promise(6)}
    view = next_view(small, said, {4: join(0), 2: join(4)}, (), LINKS)
    assert view is not None
    assert view.gifts == ((2, 1), (4, 2))


def test_a_newcomer_that_is_ahead_has_to_wait() -> None:
    small = View(3, 5, (0, 1, 3))
    said = {0: promise(6), 1: promise(6), 3: promise(6)}
    view = next_view(small, said, {2: join(7)}, (), LINKS)
    assert view is not None
    assert view.members == (0, 1, 3)
    assert view.start == 7


def test_who_waits_for_its_parameters_does_not_say_where_the_others_are() -> None:
    said = {0: promise(6), 1: promise(6), 2: replace(promise(3), pending=True), 3: promise(6)}
    view = next_view(ALL, said, {}, (), LINKS)
    assert view is not None
    assert (view.start, view.gifts) == (7, ((2, 1),))
    ahead = said | {2: replace(promise(8), pending=True)}
    view = next_view(ALL, ahead, {}, (), LINKS)
    assert view is not None
    assert (view.start, view.members) == (7, (0, 1, 3))


def test_without_anybody_who_holds_the_parameters_there_is_no_view() -> None:
    waiting = {one: replace(promise(3), pending=True) for one in (0, 1, 3)}
    assert next_view(ALL, waiting, {}, (), LINKS) is None
    said = {0: promise(6), 1: promise(6), 3: promise(6)}
    assert next_view(ALL, said, {}, (0, 1, 3), LINKS) is None


# Who cannot pay for giving ----------------------------------------------------------------------

TRIO = View(3, 5, (0, 1, 2))
TRIANGLE = ((0, 1), (0, 2), (1, 2))


def poor(iteration: int) -> Promise:
    return replace(promise(iteration), gives=False)


def test_what_nobody_can_pay_for_giving_is_done_again_without_those_who_have_it() -> None:
    said = {0: poor(7), 1: promise(6), 2: promise(6)}
    view = next_view(TRIO, said, {}, (), TRIANGLE)
    assert view is not None
    assert (view.start, view.members) == (7, (1, 2))


def test_not_if_a_majority_may_have_it() -> None:
    """Device 2 is silent: with device 0 it may be the majority that has done iteration 7."""
    view = next_view(TRIO, {0: poor(7), 1: promise(6)}, {}, (), TRIANGLE)
    assert view is not None
    assert (view.start, view.members) == (8, (0, 1))
    view = next_view(TRIO, {0: poor(7), 1: poor(7), 2: promise(6)}, {}, (), TRIANGLE)
    assert view is not None
    assert (view.start, view.members) == (8, (0, 1, 2))


def test_not_if_one_of_them_can_pay() -> None:
    said = {one: promise(6) for one in range(5)} | {0: poor(7), 1: promise(7)}
    view = next_view(ALL, said, {}, (), LINKS)
    assert view is not None
    assert (view.start, view.members) == (8, (0, 1, 2, 3, 4))


def test_who_can_be_given_nothing_is_left_out_and_the_rich_give() -> None:
    small = View(3, 5, (0, 1, 3))
    said = {0: promise(6), 1: poor(6), 3: promise(6)}
    view = next_view(small, said, {2: join(4), 4: join(4)}, (), LINKS)
    assert view is not None
    assert view.gifts == ((2, 3), (4, 2))
    said[3] = poor(6)
    view = next_view(small, said, {2: join(4), 4: join(4)}, (), LINKS)
    assert view is not None
    assert (view.members, view.gifts) == ((0, 1, 3), ())


# Whose folder is lost ---------------------------------------------------------------------------


def test_a_member_that_asks_to_join_is_a_newcomer_and_its_run_is_named() -> None:
    said = {0: promise(6), 1: promise(6), 3: promise(6), 4: promise(6)}
    view = next_view(ALL, said, {2: replace(join(6), epoch=77)}, (), LINKS)
    assert view is not None
    assert view.members == (0, 1, 2, 3, 4)
    assert view.gifts == ((2, 1),)
    assert view.lives == ((2, 77),)
