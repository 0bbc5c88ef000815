"""What a device has spent: by the plan's prices, by sensors, and after a crash."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.meter import Measured, Modelled, Tariff, make_meter
from joulemesh.deploy.device.store import SPENDING, SPENT, Ceiling
from joulemesh.meters import MeterError, MeterOptions
from joulemesh.planning.ground import Ground
from joulemesh.planning.static import plan_of
from joulemesh.scenario import Scenario

TOY = Tariff(2.0, lambda to, t, bits: 0.5, lambda sender, t, bits: 0.25)


MESSAGES: dict[str, object] = {
    "network.packet_bits": 8000,
    "network.header_bits": 720,
    "network.packet_s": 2e-6,
    "plan.message_s": 1e-5,
    "devices.message_j": 1e-5,
    "devices.receive_power_w": 0.2,
}
POWER: dict[str, object] = {
    "plan.power": "just-in-time",
    "devices.power_range_w": [0.01, 1.0],
    "devices.circuit_w": 0.1,
}
CAST: dict[str, object] = {"network.broadcast": True, "network.topology": "complete"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan.physics": "paper"},
        {"network.fading": "rayleigh"},
        {"plan.aggregation": "ring"},
        {"devices.receive_j_per_bit": 1e-8, "devices.idle_w": [0.001, 0.002]},
        {"network.broadcast": True},
        {**CAST, "plan.aggregation": "metropolis", "plan.gossip_rounds": 3},
        {**CAST, "plan.aggregation": "metropolis", "network.packet_error": 0.1},
        {**CAST, "plan.aggregation": "metropolis", "plan.accounting": "both-ends"},
        {**CAST, "plan.aggregation": "metropolis", "network.fading": "rayleigh"},
        {**CAST, "plan.aggregation": "tree-chunked", "devices.receive_j_per_bit": 1e-8},
        MESSAGES,
        {**MESSAGES, "plan.aggregation": "ring-chunked"},
        {**MESSAGES, "plan.aggregation": "tree-chunked"},
        {**MESSAGES, "plan.aggregation": "gossip", "plan.gossip_rounds": 3},
        {**MESSAGES, **CAST, "plan.aggregation": "metropolis", "plan.gossip_rounds": 3},
        {**MESSAGES, **CAST, "plan.aggregation": "tree-chunked", "network.packet_error": 0.1},
        {**MESSAGES, **POWER, "plan.aggregation": "tree-chunked"},
        {**MESSAGES, **POWER, **CAST, "plan.aggregation": "metropolis", "plan.gossip_rounds": 2},
        {**POWER, "plan.aggregation": "gossip", "plan.gossip_rounds": 9},
    ],
)
def test_modelled_joules_of_a_plan_are_the_plan_s(changes: dict[str, object]) -> None:
    """Every message of three iterations at the tariff: what the plan says, for each device."""
    scenario = Scenario.preset("adaptive").override({"devices.count": 6, **changes})
    ground = Ground.of(scenario)
    plan = plan_of(ground)
    bytes_per_bit = 8 / scenario.network.bits_per_parameter  # of float64 parameters
    for device in range(6):
        meter = Modelled(1e9, Tariff.of(ground, device, 8))
        for t in range(1, 4):
            meter.iteration = t
            meter.rest(t, float(plan.latency_s[t - 1]))
            meter.train(int(plan.rounds[t - 1, device]))
            route = plan.route(t)
            if route is None:
                continue
            meter.exchange(route, t)
            for step, sender, receiver, bits in route.messages():
                size = round(bits * bytes_per_bit)
                if sender == device:
                    meter.send(receiver, size, step)
                if receiver == device:
                    meter.receive(sender, size, step)
        exchange_j = np.broadcast_to(plan.exchange_j, plan.rounds.shape)[:3, device].sum()
        flooded = np.count_nonzero(plan.timeline.flooded[:3])
        idle_j = sum(float(plan.idle_j(t)[device]) for t in range(3))
        planned = plan.compute_j[:3, device].sum() + exchange_j + idle_j
        if flooded:  # link costs are flooded on paper only
            assert meter.spent_j() < planned
        else:
            assert meter.spent_j() == pytest.approx(planned, rel=1e-3)


def test_a_broadcast_is_charged_once_and_what_is_sent_again_by_itself() -> None:
    fields = {"devices.count": 6, "plan.aggregation": "metropolis", **CAST}
    ground = Ground.of(Scenario.preset("adaptive").override(fields))
    tariff, route = Tariff.of(ground, 0, 8), plan_of(ground).route(1)
    assert route is not None
    assert "by unicast" in tariff.source
    near = [int(to) for to in route.receiver[route.sender == 0]]
    each_j = [tariff.send_j(to, 1, 6400.0) for to in near]
    assert len(near) == 5
    meter = Modelled(1e9, tariff)
    meter.exchange(route, 1)
    for to in near:
        meter.send(to, 100, 0)
    assert meter.spent_j() == pytest.approx(100 * max(each_j))
    meter.send(near[2], 100)  # it did not come through
    assert meter.spent_j() == pytest.approx(100 * (max(each_j) + each_j[2]))


def test_a_price_is_what_is_then_spent() -> None:
    meter = Modelled(100.0, TOY, spent_j=1.0)
    asked = meter.train_j(3) + meter.send_j(1, 8)
    meter.train(3)
    meter.send(1, 8)
    assert meter.spent_j() == 1.0 + asked
    assert meter.left_j() == 99.0 - asked


class Toy:
    """A meter that gives readings one after another; it cannot be read where there is None."""

    name, source, closed = "toy", "measured by a toy", False

    def __init__(self, *readings: float | None) -> None:
        self.readings = list(readings)

    def joules(self) -> float:
        found = self.readings.pop(0)
        if found is None:
            raise MeterError("the toy is gone; look under the sofa")
        return found

    def close(self) -> None:
        self.closed = True


def test_a_meter_counts_and_the_model_fills_its_gaps() -> None:
    now = iter(range(100))
    toy = Toy(100.0, 103.0, None, None, 500.0, 501.5)
    meter, said = Measured(50.0, TOY, toy, 7.0, lambda: next(now)), list[str]()
    meter.when_unread = said.append
    meter.train(10)  # the meter sees that
    assert meter.spent_j() == 7.0 + 3.0
    assert meter.spent_j() == 10.0  # cannot be read
    meter.train(2)
    assert meter.spent_j() == 10.0 + 4.0
    assert meter.spent_j() == 14.0  # it is back, and may have counted from elsewhere
    assert meter.spent_j() == 15.5
    assert said == ["the toy is gone; look under the sofa"]  # once for each gap
    meter.close()
    assert toy.closed


def test_a_meter_that_counts_backwards_gives_nothing_back() -> None:
    now = iter(range(100))
    meter = Measured(50.0, TOY, Toy(100.0, 50.0, 51.0), 0.0, lambda: next(now))
    assert meter.spent_j() == 0.0
    assert meter.spent_j() == 1.0


def test_budgets_hold_by_what_is_metered() -> None:
    now = iter(range(100))
    meter = Measured(10.0, TOY, Toy(0.0, 8.5), 0.0, lambda: next(now))
    assert meter.train_j(1) == 2.0  # what a round is expected to take
    assert meter.left_j() == 1.5  # so that it is not begun


def battery(root: Path, status: str = "Discharging") -> Path:
    folder = root / "sys" / "class" / "power_supply" / "BAT0"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"type": "Battery", "status": status, "energy_now": "50000000"}.items():
        (folder / name).write_text(f"{text}\n")
    return folder


def test_which_meter(tmp_path: Path) -> None:
    bare, options = MeterOptions(root=tmp_path / "bare"), MeterOptions(root=tmp_path)
    assert make_meter("auto", 5.0, TOY, options=bare).source == "modelled"
    for kind in ("battery", "powercap"):
        with pytest.raises(MeterError):
            make_meter(kind, 5.0, TOY, options=bare)
    with pytest.raises(ScenarioError, match="solar"):
        make_meter("solar", 5.0, TOY)
    folder = battery(tmp_path)
    metered = make_meter("auto", 500.0, TOY, options=options)
    assert metered.measures
    assert metered.source == "recorded from battery BAT0"  # a copy of sensors is not measured
    (folder / "energy_now").write_text("49999000\n")  # 1 mWh less
    assert make_meter("battery", 5.0, TOY, options=options).spent_j() == 0.0
    assert make_meter("modelled", 5.0, TOY, options=options).source == "modelled"


def test_declared_watts_are_a_meter_that_nobody_has_to_name() -> None:
    meter = make_meter("auto", 5.0, TOY, options=MeterOptions(watts=6.5))
    assert (meter.source, meter.measures) == ("declared 6.5 W", True)
    with pytest.raises(ScenarioError, match=r"leave out --watts 6\.5"):
        make_meter("modelled", 5.0, TOY, options=MeterOptions(watts=6.5))


def test_the_ceiling_survives_a_torn_write(tmp_path: Path) -> None:
    ceiling = Ceiling(tmp_path)
    for joules in (1.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308):
        ceiling.settle(joules)
        assert Ceiling(tmp_path).joules == joules
    content = (tmp_path / SPENT).read_bytes()
    (tmp_path / SPENDING).unlink()
    for line in range(2):
        torn = bytearray(content)
        torn[64 * line + 20 : 64 * line + 40] = b"\0" * 20
        (tmp_path / SPENT).write_bytes(torn)
        assert Ceiling(tmp_path).joules in (5e-324, 1.7976931348623157e308)
    (tmp_path / SPENT).write_bytes(b"\0" * 128)
    with pytest.raises(ScenarioError, match=r"spent\.txt is damaged; restore it"):
        Ceiling(tmp_path)


@pytest.mark.parametrize("cut", ["killed", "power cut", "torn"])
def test_after_a_crash_nothing_that_was_spent_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    ceiling, spent, most = Ceiling(tmp_path, stride_j=5.0), 0.0, 0.0
    draw = np.random.default_rng(3)
    for number in range(60):
        spent += float(draw.uniform(0, 0.5))
        ceiling.raise_over(spent, ahead_j=0.25)
        if cut == "power cut":
            monkeypatch.setattr("joulemesh.deploy.device.store._boot", lambda now=number: f"b{now}")
        if cut == "torn":
            (tmp_path / SPENDING).write_bytes(b"\0" * 64)
        found = Ceiling(tmp_path).joules
        assert found >= spent
        most = max(most, found - spent)
    assert most <= (0.25 + 0.5 if cut == "killed" else 5.25 + 0.5)


def test_the_disk_is_asked_rarely_and_its_file_never_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    ceiling = Ceiling(tmp_path, stride_j=10.0)
    for number in range(1000):
        ceiling.raise_over(number * 0.1, ahead_j=0.05)
    assert len(synced) <= 10
    assert (tmp_path / SPENT).stat().st_size == 128
    assert (tmp_path / SPENDING).stat().st_size == 64
