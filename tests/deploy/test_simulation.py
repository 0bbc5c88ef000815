"""Thousands of small fleets, each with other faults: what must hold, holds.

A seed that fails is replayed by ``python -m joulemesh.deploy.virtual SEED``.
"""

from __future__ import annotations

from dataclasses import replace

from joulemesh.deploy.transport.memory import Weather
from joulemesh.deploy.virtual.cases import Case, Fault, case_of
from joulemesh.deploy.virtual.fleet import simulate
from joulemesh.deploy.virtual.machine import Machine
from tests.deploy.plain_node import PlainNode


def plain(machine: Machine, case: Case) -> PlainNode:
    return PlainNode(machine.device, machine.disk.state, machine.battery)


def quiet(seed: int) -> Case:
    """The fleet of a seed, which nothing befalls."""
    case = case_of(seed)
    return replace(
        case,
        battery_j=tuple(1e6 for _ in case.battery_j),
        on_failure="go-on",
        weather=Weather(),
        faults=(),
        well_s=0.0,
        dead=frozenset(),
        odd=-1,
    )


# The simulation itself, with a node that knows of no failure ----------------------------------


def test_without_faults_a_plain_node_does_what_the_simulation_says() -> None:
    for seed in range(40):
        case = quiet(seed)
        outcome = simulate(case, plain)
        assert not outcome.broken, outcome
        assert outcome.complete == tuple(range(case.setup.devices))


def test_a_seed_has_one_course_of_events() -> None:
    stormy = [replace(quiet(seed), weather=Weather(loss=0.1, twice=0.1)) for seed in range(8)]
    first, again = ([simulate(case, plain) for case in stormy] for _ in range(2))
    assert first == again
    assert len({outcome.digest for outcome in first}) == len(first)


def test_a_fleet_that_waits_for_ever_is_noticed() -> None:
    case = next(one for one in map(quiet, range(99)) if one.setup.devices == 3)
    cut_off = Fault("partition", 0.1, 3.0, links=((0, 1), (1, 0), (1, 2), (2, 1)))
    for_a_while = replace(case, faults=(cut_off,), well_s=3.2)
    assert not simulate(for_a_while, plain).broken  # it sends again until it is heard
    crash = Fault("crash", 0.25, 1.0, 1)
    for_good = replace(case, faults=(crash,), well_s=1.3, dead=frozenset({1}))
    assert "the run ends" in simulate(for_good, plain).broken


def test_a_node_that_overdraws_its_battery_is_noticed() -> None:
    case = replace(quiet(0), battery_j=(3.0, *quiet(0).battery_j[1:]))
    assert "no battery is overdrawn" in simulate(case, plain).broken
