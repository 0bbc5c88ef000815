"""Small rules of a fleet, each on a case that can be checked by hand."""

from __future__ import annotations

import datetime as dt
import socket
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.fleet.certificates import bearer_of, check_name, derived_key, key_pem
from joulemesh.deploy.fleet.fleet import Host, hosts_text, numbered_names, task_of
from joulemesh.deploy.fleet.pack import medium_notes, roster_names, sources
from joulemesh.deploy.links.sessions import _both_ways, parse_address, row_of
from joulemesh.deploy.links.transfers import LinkFigures, Rate, Rule, Timed, half_width, rate_of
from joulemesh.deploy.local.emulate import Measured, too_fast
from joulemesh.deploy.local.local import free_ports
from joulemesh.deploy.operator.health import port_is_free
from joulemesh.deploy.record.history import LinkRate, Sent
from joulemesh.deploy.record.receipt import (
    QUANTITIES,
    Costs,
    _figures,
    continued,
    planned,
    simulated,
)
from joulemesh.deploy.record.replay import Done, course_of
from joulemesh.deploy.transport import Address, Reason, Refusal
from joulemesh.deploy.transport.gate import Places, Refusals
from joulemesh.deploy.transport.tcp import bytes_in, packets, size_of
from joulemesh.deploy.view import View
from joulemesh.deploy.wire import Frame
from joulemesh.planning.walk import Continuation
from joulemesh.testing.fleets.network import Clock


def test_names_and_keys() -> None:
    assert bearer_of("farm-07") == ("farm-07", "device")
    assert bearer_of("laptop.operator") == ("laptop", "operator")
    with pytest.raises(joulemesh.JoulemeshError, match="cannot be a device's name"):
        check_name("Farm 07")
    assert key_pem(derived_key(b"s" * 64)) == key_pem(derived_key(b"s" * 64))
    assert numbered_names(11)[9:] == ("device-09", "device-10")
    assert roster_names(joulemesh.plan(Scenario(devices={"count": 12})))[-1] == "device-11"


def test_where_devices_are_reached() -> None:
    assert Host("a", "127.0.0.1").is_here
    assert not Host("b", "192.168.1.17").is_here
    assert str(Host("farm-08", "fe80::8", 7100)) == "[fe80::8]:7100"
    assert str(Address("farm-07.local", 7400)) == "farm-07.local:7400"
    assert hosts_text([Host("a"), Host("b", "10.0.0.2", 7000)]).splitlines()[2:] == [
        "# Missing: the address of a (write it in place of ?).",
        "name,address,port",
        "a,?,7100",
        "b,10.0.0.2,7000",
    ]
    assert parse_address("7200", "10.0.0.1") == Address("10.0.0.1", 7200)
    assert parse_address("[fe80::1]:7200").host == "fe80::1"
    assert len(set(free_ports(3))) == 3
    with socket.create_server(("", 0)) as taken:
        assert not port_is_free(taken.getsockname()[1])


def test_what_devices_with_their_own_samples_share() -> None:
    task = task_of(Scenario())
    assert (task.shape, task.scaled(np.full((1, 8, 8, 1), 0.3052)).max()) == ((8, 8, 1), 0.0)
    assert task_of(Scenario(training={"dataset": "mnist"})).kind == "uint8"
    with pytest.raises(ScenarioError, match="a sample here has the shape"):
        task.check_samples(np.zeros((3, 28, 28, 1), np.float32))
    given = Scenario(training={"data_dir": "published"})
    assert sources(given) == {"training.data_dir": "published"}


def test_an_operator_is_told_what_a_shared_medium_means() -> None:
    assert medium_notes(Scenario()) == ()
    shared = Scenario(network={"medium": "shared", "broadcast": True})
    assert len(medium_notes(shared)) == 2


def test_when_a_link_is_measured_well_enough() -> None:
    assert Rule(100).enough([1.0] * 5, 5.0)
    assert not Rule(100).enough([1.0, 2.0] * 3, 9.0)
    assert not Rule(100, together=True).enough([1.0] * 5, 5.0)
    assert not Rate(100.0, 95.0, 104.0).wide
    assert Rate(100.0, 88.0, 114.0).wide
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(2.484, abs=5e-4)
    assert [round(one) for one in rate_of(1000.0, [0.9, 1.0, 1.1])] == [1000, 801, 1331]
    assert Timed("a", "b", segments=200, resent=3).retransmitted == 0.015
    fast, slow = (Timed("a", "b", 125, (s, s)) for s in (0.1, 0.2))
    link = LinkFigures(0, 1, fast, slow)
    assert (link.chosen().rate.bps, link.chosen("alone").rate.bps) == (5000.0, 10000.0)
    assert _both_ways([(1, 0), (0, 1), (1, 2)]) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def test_a_row_of_links() -> None:
    timed = Timed("farm-01", "farm-02", 125_000, (0.5, 0.5), 0.004, 90, 0)
    row = row_of(LinkFigures(0, 1, timed), now=dt.datetime(2026, 11, 16))
    assert (row["rate_bps"], row["together_bps"], row["retransmitted"]) == ("2e+06", "", "0")
    assert row["rate_bps_source"] == "measured 2026-11-16: 2 transfers of 125 kB, alone"


def test_an_emulation_that_would_measure_the_machine() -> None:
    plan = joulemesh.plan(Scenario.preset("adaptive"))
    assert "add --slow-down 54 to measure the links" in too_fast(plan)
    assert too_fast(plan, 60.0) == ""
    assert Measured({1: (1.1, 1.0), 2: (1.2, 1.0), 3: (9.0, 1.0)}, {}).ratio == 1.2


def test_costs_of_a_plan_and_of_the_views_after_it() -> None:
    made = joulemesh.plan(Scenario.preset("adaptive"))
    costs = planned(made)
    assert costs.joules.sum(axis=0) == pytest.approx(made.spent_j)
    assert costs.seconds[:, 7] == pytest.approx(made.latency_s)
    whole = continued(Continuation.of_plan(made), made.iterations)
    assert np.array_equal(whole.joules, costs.joules)
    one, two = (Costs("", *(np.full((3, 2), value) for _ in QUANTITIES)) for value in (1.0, 5.0))
    after = simulated(one, [(View(1, 3, (0,)), two)])
    expected = np.array([[1.0, 1.0], [1.0, 1.0], [5.0, np.nan]])
    assert np.array_equal(after.train_j, expected, equal_nan=True)


def test_figures_of_a_receipt_have_nine_digits() -> None:
    given = np.array([1 / 3, np.nan, 0.0, 12345.678901234])
    assert _figures(given) == [0.333333333, None, 0.0, 12345.6789]


def test_rates_by_a_journal() -> None:
    assert Sent(1e6, 0.8, 3).rate_bps == 1e7
    assert Sent().rate_bps is None
    assert LinkRate(0, 1, 1e7, Sent(1e6, 1.0, 2)).share == 0.8


def test_what_was_given_to_a_device_it_never_computed() -> None:
    views = (View(0, 1, (0, 1)), View(1, 3, (0, 1), gifts=((1, 0),)))
    done = {(1, 0): Done(0, 5), (2, 0): Done(0, 5), (1, 1): Done(0, 4), (2, 1): Done(1, 0)}
    assert course_of(views, done).lost == {(2, 1)}


def test_refusals_of_a_kind_are_reported_every_ten_seconds() -> None:
    seen: list[Refusal] = []
    times = iter((0.0, 1.0, 2.0, 11.0))
    refusals = Refusals(seen.append, clock=lambda: next(times))
    for _ in range(4):
        refusals.add(Refusal(Reason.NO_CERTIFICATE, "none", address="10.0.0.9:4711"))
    assert [refusal.count for refusal in seen] == [1, 3]
    assert refusals.counts[Reason.NO_CERTIFICATE] == 4


def test_whoever_fills_places_with_silence_loses_them_first() -> None:
    class Coming:
        gave_way = False

        def give_way(self, error: Any) -> None:
            self.gave_way = True

    places, operator = Places(), Coming()
    places.kept = {"10.0.0.1"}
    places.take("10.0.0.99", operator)
    for turn in range(1000):
        places.take(f"10.0.9.{turn % 8}", Coming())
    assert (operator.gave_way, places.total) == (False, 96)


def test_packets() -> None:
    assert bytes_in(0.1, 10e6, 2**20) == 125_000
    assert size_of(Frame(b"{}", ())) == 7
    made = list(packets([Frame(b"{}", ()), Frame(b"{}", ())]))
    assert [(len(packet), whole) for packet, whole in made] == [(14, 2)]


def test_virtual_time_moves_to_what_is_due_next() -> None:
    clock, said = Clock(), list[str]()
    clock.after(2.0, said.append, "second")
    clock.after(1.0, said.append, "first")
    while clock.step():
        pass
    assert (said, clock.now) == (["first", "second"], 2.0)
