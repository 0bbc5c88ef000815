"""Planning with traces: who takes part, what batteries hold, and that nothing looks ahead."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import joulemesh
from joulemesh.base.errors import Edit, InfeasibleError
from joulemesh.planning.export import load_plan
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Plan
from joulemesh.tolerance import TOLERANCE
from joulemesh.views.console import show_plan
from tests.samples import sample

COUNT, LAST = 6, 10


def scenario(**more: Any) -> joulemesh.Scenario:
    fields = {
        "devices.count": COUNT,
        "devices.cycles_per_sample": [1e4, 3e4],
        "network.topology": "complete",
        "budget.energy_j": 0.4,
        "budget.deadline_s": 0.05,
        "plan.iterations": LAST,
    }
    return joulemesh.Scenario.preset("adaptive").override(
        fields | {name.replace("__", "."): value for name, value in more.items()}
    )


def made(**more: Any) -> Plan:
    return joulemesh.plan(scenario(**more))


def table(folder: Path, name: str, rows: Sequence[Sequence[Any]], header: str) -> str:
    path = folder / f"{name}.csv"
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def away(folder: Path, *rows: Sequence[Any]) -> str:
    return table(folder, "away", rows, "t,device,available")


# Who takes part ---------------------------------------------------------------------------------


def test_who_is_away_neither_trains_nor_relays_nor_pays(tmp_path: Path) -> None:
    plan = made(devices__availability=away(tmp_path, (3, 1, 0), (6, 1, 1), (4, 2, 0), (5, 2, 1)))
    gone = {3: {1}, 4: {1, 2}, 5: {1}}
    for t in range(1, LAST + 1):
        missing = gone.get(t, set())
        assert set(np.flatnonzero(~plan.active[t - 1]).tolist()) == missing
        route = plan.route(t)
        assert route is not None
        assert not missing & {device for m in route.messages() for device in m[1:3]}
        for device in missing:
            assert plan.rounds[t - 1, device] == plan.exchange_j[t - 1, device] == 0
    told = [(event.iteration, event.kind, event.devices) for event in plan.events]
    assert told == [
        (3, "absent", (1,)),
        (4, "absent", (2,)),
        (5, "returned", (2,)),
        (6, "returned", (1,)),
    ]


def test_who_comes_back_takes_up_the_parameters_of_the_neighbour_with_most_joules(
    tmp_path: Path,
) -> None:
    plan = made(devices__availability=away(tmp_path, (3, 1, 0), (5, 1, 1)))
    ((t, newcomer, giver),) = plan.timeline.gifts
    assert (t, newcomer) == (4, 1)
    spent = plan.compute_j[:4].sum(axis=0) + plan.exchange_j[:4].sum(axis=0)
    left = np.where(np.arange(COUNT) == 1, -1.0, plan.energy_budget_j - spent)
    assert giver == int(np.argmax(left))


def test_a_gift_is_paid_for_by_the_giver(tmp_path: Path) -> None:
    plan = made(devices__availability=away(tmp_path, (3, 1, 0), (5, 1, 1)))
    ((t, newcomer, giver),) = plan.timeline.gifts
    route, costs = plan.route(t + 1), plan.ground.costs(t)
    assert route is not None
    exchange = plan.ground.pricer.route(route, costs)
    more = plan.exchange_j[t] - exchange.energy_j[0]
    (link,) = np.flatnonzero((plan.world.graph.edges == sorted((newcomer, giver))).all(axis=1))
    way = costs.forward_j if giver < newcomer else costs.backward_j
    assert more[giver] == pytest.approx(way[link] * plan.work.model_bits)
    assert np.delete(more, giver) == pytest.approx(0.0)
    assert plan.exchange_s[t] > exchange.seconds[0]


def test_devices_that_only_one_absent_one_joined_sit_out_and_come_back(tmp_path: Path) -> None:
    links = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    plan = made(network__topology=links, devices__availability=away(tmp_path, (4, 4, 0), (6, 4, 1)))
    assert [plan.active[t].tolist() for t in (3, 4)] == [[True] * 4 + [False] * 2] * 2
    assert plan.active[5].all()
    assert {(event.kind, event.devices) for event in plan.events} == {
        ("absent", (4,)),
        ("cut-off", (5,)),
        ("returned", (4, 5)),
    }
    assert plan.timeline.gifts == ((5, 4, 3), (5, 5, 3))  # 5 has it from 4, which has it from 3


def test_those_go_on_who_hold_what_was_learned(tmp_path: Path) -> None:
    """A larger part of newcomers waits for the smaller one that has trained meanwhile."""
    links = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]]
    rows = [(2, 2, 0), (2, 3, 0), (2, 4, 0), (2, 5, 0), (4, 3, 1), (4, 4, 1), (4, 5, 1), (6, 2, 1)]
    plan = made(network__topology=links, devices__availability=away(tmp_path, *rows))
    active = [set(np.flatnonzero(row).tolist()) for row in plan.active]
    assert active[1:6] == [{0, 1}, {0, 1}, {0, 1}, {0, 1}, {0, 1, 2, 3, 4, 5}]


def test_an_iteration_passes_where_fewer_than_two_are_there(tmp_path: Path) -> None:
    rows = [(4, device, 0) for device in range(1, COUNT)]
    rows += [(6, device, 1) for device in range(1, COUNT)]
    plan = made(devices__availability=away(tmp_path, *rows))
    assert plan.iterations == LAST
    assert not plan.rounds[3:5].any()
    assert not plan.active[3:5].any()
    assert not plan.exchanged[3:5].any()
    assert plan.latency_s[3:5].tolist() == [0.05, 0.05]  # as long as the deadline allows
    assert plan.active[5].all()
    assert not plan.timeline.gifts  # nobody has learned anything meanwhile


def test_a_plan_in_which_nobody_ever_meets_is_refused(tmp_path: Path) -> None:
    rows = [(1, device, 0) for device in range(1, COUNT)]
    with pytest.raises(InfeasibleError, match="fewer than two devices can take part in each of"):
        made(devices__availability=away(tmp_path, *rows))


def test_waiting_counts_towards_the_total_time(tmp_path: Path) -> None:
    rows = [(4, device, 0) for device in range(1, COUNT)]
    rows += [(6, device, 1) for device in range(1, COUNT)]
    path = away(tmp_path, *rows)
    plan = made(devices__availability=path, budget__total_s=0.2, budget__deadline_s=None)
    assert 0 < plan.latency_s[3] <= 0.2 / 7
    assert plan.time_s <= 0.2


# What batteries hold ----------------------------------------------------------------------------


def charges(plan: Plan) -> list[list[Fraction]]:
    """What every battery holds after each iteration; checked on the way."""
    timeline, capacity = plan.timeline, plan.world.traces.capacity_j
    stored_j = timeline.exchange.harvested_j
    held = [Fraction(float(one)) for one in plan.energy_budget_j]
    found = []
    for t in range(plan.iterations):
        for i in range(len(held)):
            round_j = Fraction(float(plan.world.devices.round_energy_j[i]))
            held[i] -= int(plan.rounds[t, i]) * round_j + Fraction(float(plan.exchange_j[t, i]))
            held[i] -= Fraction(float(plan.idle_j(t)[i]))
            assert held[i] >= -TOLERANCE * plan.supplied_j[i], (t, i)
            held[i] += Fraction(float(stored_j[t, i]))
            if capacity is not None:
                assert held[i] <= capacity[i] * (1 + TOLERANCE), (t, i)
        found.append(list(held))
    return found


@pytest.mark.parametrize("rounds", ["theorem4", "spread", "backfill", "uniform"])
@pytest.mark.parametrize("seed", range(4))
def test_no_battery_is_ever_overdrawn_or_overfull(tmp_path: Path, rounds: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        (t, device, rng.choice([0.0, 0.5, 6.0]))
        for t in range(1, LAST + 1)
        for device in range(COUNT)
    ]
    out = away(tmp_path, *((t, int(rng.integers(COUNT)), t % 2) for t in range(2, LAST)))
    plan = made(
        seed=seed,
        devices__harvest_w=table(tmp_path, "sun", rows, "t,device,watts"),
        devices__capacity_j=0.11,
        devices__availability=out,
        devices__idle_w=(0.0, 1.5)[seed % 2],
        budget__energy_j=0.1,
        plan__rounds=rounds,
        plan__on_depletion="leave",
        plan__harvest_forecast=("seen", "none")[seed % 2],
        network__fading=("none", "rayleigh")[seed // 2],
    )
    held = charges(plan)
    assert plan.rounds.any()
    gathered = plan.harvested_j
    watts = np.array([[row[2] for row in rows[t * COUNT : (t + 1) * COUNT]] for t in range(LAST)])
    assert gathered == pytest.approx(watts * plan.latency_s[:, None], abs=1e-15)
    assert np.array([[float(one) for one in row] for row in held])[-1] == pytest.approx(
        plan.margin_j, abs=1e-12
    )


def tried(folder: Path, seed: int) -> bool:
    """Plan a random scenario that harvests, and check its batteries; False if it is refused."""
    rng = np.random.default_rng(seed)
    sun = [
        (t, device, rng.choice([0.0, 0.5, 6.0, 20.0]))
        for t in range(1, LAST + 1)
        for device in range(COUNT)
    ]
    out = [(t, int(rng.integers(COUNT)), int(rng.integers(2))) for t in range(2, LAST)]
    choices: dict[str, tuple[Any, ...]] = {
        "devices__capacity_j": (0.011, 0.11),
        "devices__idle_w": (0.0, 0.3, 3.0),
        "budget__energy_j": (0.002, 0.01),
        "budget__total_s": (None, 0.2),
        "plan__rounds": ("theorem4", "spread", "backfill", "uniform", "fixed", "inverse"),
        "plan__harvest_forecast": ("seen", "none"),
        "plan__aggregation": ("tree", "metropolis", "theorem3"),
        "network__fading": ("none", "rayleigh"),
        "network__channel_known": (True, False),
        "network__topology": ("complete", "ring", "geometric"),
    }
    drawn = {name: values[int(rng.integers(len(values)))] for name, values in choices.items()}
    try:
        plan = made(
            seed=seed,
            devices__harvest_w=table(folder, "sun", sun, "t,device,watts"),
            devices__availability=away(folder, *out),
            plan__on_depletion="leave",
            **drawn,
        )
    except InfeasibleError:
        return False
    charges(plan)
    assert (plan.margin_j >= 0).all(), seed
    return True


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(4), 1))
def test_any_scenario_keeps_its_batteries(tmp_path: Path, piece: int) -> None:
    planned = [tried(tmp_path, seed) for seed in range(50 * piece, 50 * (piece + 1))]
    assert sum(planned) > 20


def test_what_is_harvested_is_spent_from_the_next_iteration_on() -> None:
    poor = {"budget__energy_j": 0.05, "plan__on_depletion": "leave"}
    alone, sunny = made(**poor), made(**poor, devices__harvest_w=1.0)
    assert sunny.rounds.sum() > alone.rounds.sum()
    assert (sunny.margin_j >= 0).all()
    charges(sunny)


def test_a_device_sits_out_until_it_can_pay_again(tmp_path: Path) -> None:
    sun = table(tmp_path, "sun", [(1, 0), (4, 5.0)], "t,watts")
    plan = made(
        devices__harvest_w=sun,
        devices__trace_end="hold",
        budget__energy_j={"values": [0.4] * (COUNT - 1) + [1.5e-3]},
        plan__on_depletion="leave",
        plan__rounds="fixed",
        plan__fixed_rounds=1,
    )
    last = plan.active[:, -1].tolist()
    assert False in last[:4]
    assert last[-1]
    kinds = [event.kind for event in plan.events if COUNT - 1 in event.devices]
    assert kinds == ["depleted", "returned"]


def test_without_leave_to_sit_out_the_plan_is_refused() -> None:
    with pytest.raises(InfeasibleError) as no:
        made(devices__harvest_w=1e-6, budget__energy_j=4e-3)
    assert no.value.figures["needs_j"] > no.value.figures["has_j"]
    assert (Edit("plan.on_depletion", "leave"),) in no.value.remedies


def test_a_full_battery_spills() -> None:
    plan = made(devices__harvest_w=50.0, devices__capacity_j=0.4)
    assert plan.timeline.spilled_j is not None
    assert plan.timeline.spilled_j.sum() > 0
    charges(plan)


# Places -----------------------------------------------------------------------------------------


def test_routes_use_the_links_that_exist_now(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [(t, device, *rng.uniform(0, 100, 2)) for t in (1, 5, 8) for device in range(COUNT)]
    plan = made(
        devices__positions=table(tmp_path, "places", rows, "t,device,x_m,y_m"),
        network__topology="geometric",
        network__area_m=100,
        network__mean_degree=2,
    )
    motion = plan.world.motion
    assert motion is not None
    assert motion.rewires
    used = set()
    for t in range(1, LAST + 1):
        route = plan.route(t)
        assert route is not None
        exists = motion.exists(plan.world.traces.snapshot(t - 1, 0.0))
        assert exists[route.link_index].all()
        used.add(tuple(route.link_index.tolist()))
    assert len(used) >= 2


def test_packets_are_drawn_where_devices_are_then(tmp_path: Path) -> None:
    rows = [(1, i, 10 * i, 0) for i in range(COUNT)] + [(5, i, 400 * i, 0) for i in range(COUNT)]
    plan = made(
        devices__positions=table(tmp_path, "places", rows, "t,device,x_m,y_m"),
        devices__trace_end="hold",
        network__packet_error=0.2,
        budget__energy_j=50.0,
        budget__deadline_s=5.0,
    )
    assert plan.exchange_j[4].sum() > 2 * plan.exchange_j[3].sum()
    out = carried_out(plan)
    share = out.exchange_j.sum(axis=1) / plan.exchange_j.sum(axis=1)
    assert share == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [
        (((8, 1, 0),), {}, "Feasible (1 of 6 devices is away at the end): "),
        (((8, 1, 0), (9, 2, 0)), {}, "Feasible (2 of 6 devices are away at the end): "),
        (((3, 1, 0), (6, 1, 1)), {}, "Feasible: "),
        (
            ((8, 1, 0),),
            {"budget__energy_j": [0.02] + [0.4] * 5, "plan__on_depletion": "leave"},
            "Not feasible as asked, because 1 of 6 devices leaves before the end (1 of 6 devices "
            "is away at the end): ",
        ),
    ],
)
def test_who_is_merely_away_at_the_end_makes_no_plan_infeasible(
    tmp_path: Path, rows: Sequence[Sequence[Any]], more: dict[str, Any], said: str
) -> None:
    plan = made(devices__availability=away(tmp_path, *rows), **more)
    answer = plan.answer
    assert answer.text.startswith(said)
    assert answer.feasible == said.startswith("Feasible")
    unpaid = int(not answer.feasible)
    assert answer.binding["left"] == unpaid  # who is away is kept from more by what binds others


def test_devices_that_leave_by_the_scenario_make_no_plan_infeasible() -> None:
    plan = made(devices__leave=[[3, 5]])
    assert plan.answer.feasible
    assert plan.answer.text.startswith("Feasible (1 of 6 devices is away at the end): ")
    assert plan.answer.binding["left"] == 1


def test_a_plan_that_is_recharged_competes_to_its_end() -> None:
    from joulemesh.methods import build

    poor = scenario(
        devices__harvest_w=2.0,
        budget__energy_j=0.05,
        plan__on_depletion="leave",
        budget__total_s=1.0,
    )
    contender = build("adaptive", poor, equal="budget")
    assert contender.plan is not None
    assert (contender.reserve.spent_j > contender.plan.energy_budget_j).any()
    assert not [note for note in contender.notes if "overdraws" in note]


def test_what_is_harvested_stands_in_the_files_of_a_plan(tmp_path: Path) -> None:
    plan = made(devices__harvest_w=50.0, devices__capacity_j=0.4)
    plan.save(tmp_path / "plan.csv")
    header, *rows = (tmp_path / "plan.csv").read_text("utf-8").splitlines()
    assert header.endswith(",active,harvested_j,spilled_j")
    cells = np.array([row.split(",") for row in rows], float)
    assert cells[:, -2].sum() == pytest.approx(plan.harvested_total_j.sum())
    assert cells[:, -1].sum() == pytest.approx(plan.spilled_total_j.sum())
    plan.save(tmp_path / "plan.npz")
    again = load_plan(tmp_path / "plan.npz", plan.scenario)
    assert again.margin_j == pytest.approx(plan.margin_j)
    assert "harvested_j" not in made().to_json()
    assert "spilled_total_j" not in made().frame()
    assert plan.frame()["spilled_total_j"].sum() == pytest.approx(plan.spilled_total_j.sum())


def test_the_console_says_what_is_harvested_and_who_is_away(tmp_path: Path) -> None:
    path = away(tmp_path, (3, 1, 0), (5, 1, 1))
    plan = made(devices__harvest_w=50.0, devices__capacity_j=0.4, devices__availability=path)
    text = io.StringIO()
    show_plan(plan, Console(file=text, width=120))
    shown = " ".join(text.getvalue().split())
    assert "of which full batteries spill" in shown
    assert "absent iteration 3: 1 (not there by devices.availability)" in shown
    assert "returned iteration 5: 1 (takes part again)" in shown
