"""Plans with slower clocks, through a checker of its own; and the bound, against brute force."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import InfeasibleError, Plan, Scenario, ScenarioError
from joulemesh.planning.plan import digest_of
from joulemesh.planning.walk import Remaining, continue_plan
from joulemesh.tolerance import TOLERANCE
from tests.planning.test_zero_overspends import draw, with_measured
from tests.samples import sample
from tests.world.test_clocks import mixed_j

NEAR = 1 + 4 * TOLERANCE


def with_clocks(fields: dict[str, Any], rng: random.Random, folder: Path) -> dict[str, Any]:
    """The fields of a scenario whose processors can run slower."""
    low = rng.uniform(0.1, 1.0)
    if rng.random() < 0.6:
        floor = {"devices.clock_floor": rng.uniform(0.1, 1.0)} if rng.random() < 0.3 else {}
        return {
            **fields,
            **floor,
            "devices.clock_range": [low, rng.choice((1.0, min(1.0, 1.2 * low)))],
        }
    count, path = fields["devices.count"], folder / f"points-{rng.random()}.csv"
    rows = [
        f"{device},{k},{10 ** rng.uniform(-3.5, -2.5):.6g},{10 ** rng.uniform(-3.5, -2.5):.6g}"
        for device in range(count)
        for k in range(rng.randint(1, 4))
    ]
    path.write_text("\n".join(["device,name,step_s,step_j", *rows]), "utf-8")
    made = {
        name: value for name, value in fields.items() if not name.endswith(("step_s", "step_j"))
    }
    return {**made, "devices.operating_points": str(path)}


def with_traces(fields: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The fields with batteries that recharge, or devices that leave."""
    kind = rng.choice(("", "", "harvest", "leave"))
    if kind == "leave":
        return {**fields, "devices.leave": [[0, 2]], "plan.coordination": False}
    if kind == "harvest":
        held = fields["budget.energy_j"]["values"]
        more = {"values": [rng.uniform(1.0, 1.5) * joules for joules in held]}
        return {**fields, "devices.harvest_w": 0.05 * max(held), "devices.capacity_j": more}
    return fields


def scenarios(seeds: Iterator[int] | range, folder: Path) -> Iterator[tuple[int, Scenario]]:
    for seed in seeds:
        rng = random.Random(seed)
        fields = draw(rng, timed=rng.random() < 0.7, shared=rng.random() < 0.3)
        if rng.random() < 0.4:
            fields = with_measured(fields, rng)
        fields = with_traces(with_clocks(fields, rng, folder), rng)
        if rng.random() < 0.3:
            powers = {"devices.power_range_w": [0.01, 0.1]}
            fields |= {**powers, "plan.power": rng.choice(("just-in-time", "auto"))}
        fields["plan.goal"] = rng.choice(("rounds", "rounds", "joules"))
        with contextlib.suppress(ScenarioError):  # some choices contradict each other
            yield seed, Scenario().override({"network.profile": "ideal", **fields})


def planned(scenario: Scenario, clock: str) -> Plan | None:
    try:
        return joulemesh.plan(scenario.override({"plan.clock": clock}))
    except (InfeasibleError, ScenarioError):
        return None


# The checker -------------------------------------------------------------------------------------


def price_j(scenario: Scenario, plan: Plan, device: int, each_s: float) -> float:
    """Joules of a round in so many seconds, from the scenario's figures alone."""
    path, devices = scenario.devices.operating_points, plan.world.devices
    if path is not None:
        rows = [line.split(",") for line in Path(path).read_text("utf-8").splitlines()[1:]]
        points = [(float(s), float(j)) for number, _, s, j in rows if int(number) == device]
        return mixed_j(points, each_s * (1 + 1e-12))  # but for rounding
    assert scenario.devices.clock_range is not None
    low, high = scenario.devices.clock_range
    share = devices.round_latency_s[device] * high / each_s  # of cpu_hz
    floor = max(low, min(scenario.devices.clock_floor or 0.0, high))
    full_j = devices.round_energy_j[device] / high**2
    assert low / NEAR <= share <= high * NEAR
    return float(full_j * max(share, floor) ** 2)


def check(scenario: Scenario, plan: Plan) -> None:
    """No battery, deadline or total time is exceeded, with every joule of training recomputed."""
    seconds, exchange = plan.training_s, plan.timeline.exchange
    lengths = plan.latency_s
    left_j = plan.energy_budget_j.copy()
    for t, rounds in enumerate(plan.rounds.tolist()):
        assert (seconds[t] + plan.exchange_s[t] <= lengths[t] * NEAR).all()
        for device, count in enumerate(rounds):
            assert (count == 0) == (seconds[t, device] == 0.0)
            joules = count and count * price_j(scenario, plan, device, seconds[t, device] / count)
            assert math.isclose(joules, plan.compute_j[t, device], rel_tol=1e-6)
            left_j[device] -= joules + exchange.exchange_j[t, device]
            left_j[device] -= plan.idle_j(t)[device]
        assert (left_j >= -1e-8 * plan.supplied_j).all()
        left_j += exchange.harvested_j[t]
        capacity_j = plan.world.traces.capacity_j
        assert capacity_j is None or (left_j <= capacity_j * NEAR).all()
    assert np.allclose(left_j, plan.margin_j, rtol=1e-7, atol=1e-7 * float(plan.supplied_j.max()))
    assert plan.deadline_s is None or (lengths <= plan.deadline_s * NEAR).all()
    assert plan.total_s is None or lengths.sum() <= plan.total_s * NEAR
    assert np.isclose(plan.ledger.total_j, plan.spent_j.sum())
    assert np.allclose(plan.iteration_j, plan.ledger.energy_j.sum(axis=1))
    found = plan.certificate
    assert found.rounds == plan.rounds.sum() <= found.most_rounds
    if not plan.harvests:
        assert found.least_j <= found.joules * NEAR


SEEDS = range(200)


@pytest.mark.parametrize("part", range(4))
def test_no_budget_is_exceeded_at_any_clock(part: int, tmp_path: Path) -> None:
    seeds = sample(range(50 * part, 50 * part + 50), 8)
    checked = [check_all(scenario) for _, scenario in scenarios(iter(seeds), tmp_path)]
    assert sum(checked) >= 2


@pytest.mark.slow
def test_no_budget_is_exceeded_in_any_of_many_scenarios(tmp_path: Path) -> None:
    checked = [check_all(scenario) for _, scenario in scenarios(range(1000, 1400), tmp_path)]
    assert sum(checked) > 200


def check_all(scenario: Scenario) -> bool:
    full = planned(scenario, "full")
    auto = planned(scenario, "auto")
    if auto is not None:
        check(scenario, auto)
    if full is None:
        return False
    check(scenario, full)
    paced = planned(scenario, "just-in-time")
    assert paced is not None
    check(scenario, paced)
    assert np.array_equal(full.rounds, paced.rounds)
    assert np.array_equal(full.latency_s, paced.latency_s)
    assert np.array_equal(full.active, paced.active)
    assert (paced.compute_j <= full.compute_j * NEAR).all()
    assert auto is not None
    if scenario.plan.goal == "joules":
        assert np.array_equal(auto.rounds, full.rounds)
        if not full.harvests:
            assert auto.spent_j.sum() <= paced.spent_j.sum() * NEAR
    elif scenario.plan.iterations != "auto":
        assert auto.rounds.sum() >= full.rounds.sum()
    return True


# By hand -----------------------------------------------------------------------------------------


def small(**fields: Any) -> Scenario:
    """Two devices whose rounds take 1 and 2 s, for 8 and 2 J at full clock."""
    return Scenario(
        network={"profile": "ideal", "topology": [[0, 1]], "gains": [1e-9]},
        devices={
            "count": 2,
            "step_s": {"values": [1.0, 2.0]},
            "step_j": {"values": [8.0, 2.0]},
            "clock_range": [0.25, 1.0],
        },
        budget={"energy_j": {"values": [40.0, 9.0]}, "deadline_s": None, "total_s": 9.0},
        plan={"rounds": "uniform", "iterations": 2, "aggregation": "tree", **fields},
    )


def test_just_in_time_by_hand() -> None:
    plan = joulemesh.plan(small(clock="just-in-time"))
    assert plan.rounds.tolist() == [[2, 2], [2, 2]]  # 36 of 40 J... and 8 of 9 J at full clock
    assert np.allclose(plan.training_s, [[4.0, 4.0], [4.0, 4.0]])
    assert np.allclose(plan.compute_j, [[2 * 8 / 4, 4.0], [2 * 8 / 4, 4.0]])
    assert np.allclose(plan.clock_share, [0.5, 1.0])
    bar = plan.gantt(1).bars[0]
    assert (bar.kind, round(bar.end_s, 6), round(bar.joules, 6)) == ("train", 4.0, 4.0)


def test_auto_buys_rounds_with_the_joules_that_slower_clocks_leave() -> None:
    # Alike windows of 4.5 s less an exchange: device 0 pays for 4 rounds of 8 (4/4.5)² J each, in
    # either iteration; device 1 has time for 2 of its 2 s.
    plan = joulemesh.plan(small(clock="auto"))
    assert plan.rounds.sum(axis=0).tolist()[1] == 4
    assert plan.rounds.sum(axis=0).tolist()[0] > 4
    check(small(clock="auto"), plan)


def test_least_joules_fill_the_time_with_the_rounds_of_full_clock() -> None:
    full = joulemesh.plan(small(clock="full"))
    least = joulemesh.plan(small(clock="auto", goal="joules"))
    assert np.array_equal(least.rounds, full.rounds)
    window_s = (9.0 - least.exchange_s.sum()) / 2
    assert np.allclose(least.training_s, window_s)
    assert np.allclose(least.compute_j, [[16 / window_s**2 * 4, 4 * 16 / window_s**2]] * 2)
    assert math.isclose(least.certificate.saved, 0.0, abs_tol=1e-9)


def test_without_a_range_nothing_changes_and_clocks_are_unset() -> None:
    plan = joulemesh.plan(Scenario.preset("adaptive"))
    same = joulemesh.plan(Scenario.preset("adaptive").override({"plan.clock": "full"}))
    assert plan.timeline.window_s is None
    assert np.allclose(plan.clock_share, 1.0)
    assert np.array_equal(plan.training_s, plan.rounds * plan.world.devices.round_latency_s)
    assert np.array_equal(plan.spent_j, same.spent_j)
    assert "training_s" not in plan.to_json()


def test_a_range_alone_plans_with_clocks() -> None:
    ranged = Scenario.preset("adaptive").override({"devices.clock_range": [0.5, 1.0]})
    plan = joulemesh.plan(ranged)
    assert plan.ground.clock == "auto"
    assert digest_of(plan) == digest_of(joulemesh.plan(ranged))
    back = Plan.from_json(plan.to_json())
    assert np.array_equal(back.training_s, plan.training_s)


def test_saved_plans_keep_their_clocks(tmp_path: Path) -> None:
    from joulemesh.planning.export import load_plan

    ranged = Scenario.preset("adaptive").override({"devices.clock_range": [0.5, 1.0]})
    plan = joulemesh.plan(ranged)
    plan.save(tmp_path / "plan.npz")
    back = load_plan(tmp_path / "plan.npz", ranged)
    assert np.allclose(back.training_s, plan.training_s, rtol=1e-12)
    assert np.allclose(back.compute_j, plan.compute_j, rtol=1e-9)
    plan.save(tmp_path / "plan.csv")
    head, first = (tmp_path / "plan.csv").read_text("utf-8").splitlines()[:2]
    assert head.split(",")[-1] == "training_s"
    assert float(first.split(",")[-1]) == plan.training_s[0, 0]


@pytest.mark.parametrize("clock", ["just-in-time", "auto"])
def test_the_rest_of_a_plan_keeps_its_clocks_or_gets_new_ones(clock: str) -> None:
    fields = {"devices.clock_range": [0.3, 1.0], "plan.clock": clock}
    plan = joulemesh.plan(Scenario.preset("adaptive").override(fields))
    spent_j, row = plan.ledger[:40].spent_j, 40
    left_j = (plan.energy_budget_j - spent_j).tolist()
    elapsed_s = float(plan.latency_s[:row].sum())
    everybody = list(range(20))
    whole = continue_plan(
        plan,
        Remaining.of(
            plan.ground, members=everybody, start=row + 1, left_j=left_j, elapsed_s=elapsed_s
        ),
    )
    assert np.array_equal(whole.timeline.rounds, plan.rounds[row:])
    assert np.allclose(whole.trained(row + 1)[0], plan.training_s[row])
    fewer = continue_plan(
        plan,
        Remaining.of(
            plan.ground,
            members=everybody[1:],
            start=row + 1,
            left_j=left_j[1:],
            elapsed_s=elapsed_s,
        ),
    )
    timeline, ground = fewer.timeline, fewer.ground
    seconds = [fewer.training_s(t) + fewer.exchange_s(t) for t in range(row + 1, fewer.last + 1)]
    assert max(seconds) <= (plan.deadline_s or math.inf) * NEAR
    trained = sum(fewer.trained(t)[1] for t in range(row + 1, fewer.last + 1))
    used_j = np.asarray(trained) + timeline.exchange.exchange_j.sum(axis=0)
    assert (used_j[1:] <= np.array(left_j)[1:] * NEAR).all()
    full_j = (timeline.rounds.sum(axis=0) * ground.world.devices.round_energy_j)[1:]
    assert (np.asarray(trained)[1:] < full_j).any()


def test_methods_run_just_in_time(tmp_path: Path) -> None:
    from joulemesh.methods import build

    fields = {"devices.clock_range": [0.3, 1.0], "plan.clock": "just-in-time"}
    slower = Scenario.preset("adaptive").override(fields)
    for name in ("fixed:3", "adaptive", "d-psgd", "skiptrain", "fedavg"):
        full = build(name, Scenario.preset("adaptive"))
        paced = build(name, slower)
        assert np.array_equal(full.schedule.rounds, paced.schedule.rounds)
        assert np.array_equal(full.reserve.seconds, paced.reserve.seconds)
        assert np.array_equal(full.reserve.exchange_j, paced.reserve.exchange_j)
        assert (paced.reserve.compute_j <= full.reserve.compute_j).all()
        assert paced.reserve.compute_j.sum() < 0.9 * full.reserve.compute_j.sum()


# The bound ---------------------------------------------------------------------------------------


def best_by_hand(plan: Plan, levels: list[tuple[float, float]], most: int) -> int:
    """The most rounds of any plan with the same exchanges: every choice of rounds and clocks.

    Each round of a device has one of a few clocks (relative seconds, relative joules).
    """
    devices, n = plan.world.devices, plan.iterations
    left_j = plan.energy_budget_j - plan.exchange_total_j
    idle_w = np.zeros(len(left_j)) if devices.idle_w is None else devices.idle_w
    ways: list[list[tuple[int, float, float]]] = []  # of a device in an iteration
    for i in range(len(left_j)):
        least: dict[tuple[int, float], float] = {}
        for count in range(most + 1):
            for chosen in itertools.combinations_with_replacement(levels, count):
                seconds = devices.round_latency_s[i] * sum(s for s, _ in chosen)
                joules = devices.round_energy_j[i] * sum(j for _, j in chosen)
                least[count, seconds] = min(least.get((count, seconds), math.inf), joules)
        ways.append([(count, seconds, joules) for (count, seconds), joules in least.items()])
    lengths = sorted({seconds for own in ways for _, seconds, _ in own})
    best = 0
    for windows in itertools.combinations_with_replacement(lengths, n):
        taken_s = sum(windows) + float(plan.exchange_s.sum())
        if plan.total_s is not None and taken_s > plan.total_s:
            continue
        late = plan.deadline_s is not None and any(
            window + exchange_s > plan.deadline_s
            for window, exchange_s in zip(windows, plan.exchange_s, strict=True)
        )
        if late:
            continue
        total = 0
        for i, own in enumerate(ways):
            held = left_j[i] - idle_w[i] * taken_s
            if held < 0:
                break
            paid = {0: 0.0}  # rounds: the least joules
            for window in windows:
                fits = [(count, joules) for count, s, joules in own if s <= window]
                paid = {
                    whole: min(
                        paid[before] + joules
                        for before in paid
                        for count, joules in fits
                        if before + count == whole
                    )
                    for whole in {before + count for before in paid for count, _ in fits}
                }
            total += max(count for count, joules in paid.items() if joules <= held)
        else:
            best = max(best, total)
    return best


@pytest.mark.parametrize("seed", range(12))
def test_no_plan_exceeds_the_bound(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    count, n = rng.choice(((2, 2), (2, 3), (3, 2)))
    levels = [(1.0, 1.0), (1.5, rng.uniform(0.3, 0.7)), (2.5, rng.uniform(0.1, 0.3))]
    step_s = [rng.uniform(0.5, 1.5) for _ in range(count)]
    step_j = [rng.uniform(1.0, 4.0) for _ in range(count)]
    rows = [f"{i},{step_s[i] * s!r},{step_j[i] * j!r}" for i in range(count) for s, j in levels]
    path = tmp_path / "points.csv"
    path.write_text("\n".join(["device,step_s,step_j", *rows]), "utf-8")
    timed = rng.random() < 0.6
    limit_s = rng.uniform(1.0, 4.0)
    scenario = Scenario(
        network={"profile": "ideal", "topology": [[i, i + 1] for i in range(count - 1)]},
        devices={
            "count": count,
            "operating_points": str(path),
            **({"idle_w": rng.uniform(0.0, 0.5)} if rng.random() < 0.5 else {}),
        },
        budget={
            "energy_j": {"values": [rng.uniform(2.0, 12.0) for _ in range(count)]},
            "deadline_s": None if timed else limit_s,
            "total_s": n * limit_s if timed else None,
        },
        plan={"iterations": n, "aggregation": "tree", "clock": "auto"},
    )
    try:
        plan = joulemesh.plan(scenario)
    except InfeasibleError:
        pytest.skip("nobody can train")
    best = best_by_hand(plan, levels, 3)
    assert plan.rounds.sum() <= plan.certificate.most_rounds
    assert best <= plan.certificate.most_rounds


def test_a_bound_in_words() -> None:
    text = joulemesh.plan(Scenario()).certificate.text()
    assert text.startswith("at most ")
    assert " % more rounds are possible with these exchanges" in text
