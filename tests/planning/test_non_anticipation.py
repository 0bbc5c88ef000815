"""Nothing that is decided depends on what has not happened yet.

Every planner and every policy decides iterations 1..5 alike, whatever a trace or a fade says of the
time after them: rounds, who takes part, routes, prices, what is stored, gifts and events. So does
every method that is not planned: rounds, who takes part, prices and mixing matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.methods import Contender, build
from joulemesh.methods.base import METHODS
from joulemesh.methods.setting import Setting
from joulemesh.planning.plan import Plan, Timeline
from joulemesh.planning.walk import Remaining, continue_plan
from joulemesh.registries import POLICIES, SCHEMES
from joulemesh.world.channel import Channel
from tests.samples import ALL, sample

COUNT, LAST, KNOWN = 6, 9, 5
POLICY_NAMES = [one.name for one in POLICIES if one.causal]
WORLDS: dict[str, st.SearchStrategy[Any]] = {
    "plan__aggregation": st.sampled_from(["tree", "metropolis", "theorem3", "gossip"]),
    "plan__coordination": st.booleans(),
    "network__topology": st.sampled_from(["geometric", "ring", "complete"]),
    "network__mean_degree": st.sampled_from([2.0, 4.0]),
    "network__fading": st.sampled_from(["none", "rayleigh"]),
    "network__channel_known": st.booleans(),
    "network__shadowing_db": st.sampled_from([0.0, 6.0]),
    "budget__energy_j": st.sampled_from([0.02, 0.3]),
    "devices__capacity_j": st.sampled_from([None, 0.31]),
}

Rows = list[tuple[Any, ...]]


def scenario(**more: Any) -> joulemesh.Scenario:
    fields: dict[str, Any] = {
        "devices.count": COUNT,
        "devices.cycles_per_sample": [1e4, 3e4],
        "devices.trace_end": "hold",
        "network.topology": "complete",
        "network.area_m": 200,
        "budget.energy_j": 0.3,
        "budget.deadline_s": 0.05,
        "plan.iterations": LAST,
        "plan.on_depletion": "leave",
        "plan.gossip_rounds": 2,
    }
    return joulemesh.Scenario.preset("adaptive").override(
        fields | {name.replace("__", "."): value for name, value in more.items()}
    )


# The traces, each with a future drawn from a seed -----------------------------------------------


def _availability(rng: np.random.Generator, times: list[float]) -> Rows:
    return [(t, int(rng.integers(COUNT)), int(rng.integers(2))) for t in times]


def _watts(rng: np.random.Generator, times: list[float]) -> Rows:
    return [(t, i, float(rng.choice([0.0, 1.0, 9.0]))) for t in times for i in range(COUNT)]


def _places(rng: np.random.Generator, times: list[float]) -> Rows:
    return [(t, i, *rng.uniform(0, 200, 2).round(3)) for t in times for i in range(COUNT)]


TRACES: dict[str, tuple[str, Callable[[np.random.Generator, list[float]], Rows]]] = {
    "availability": ("device,available", _availability),
    "harvest_w": ("device,watts", _watts),
    "positions": ("device,x_m,y_m", _places),
}


def write(folder: Path, field: str, column: str, rows: Rows) -> str:
    path = folder / f"{field}.csv"
    lines = [f"{column},{TRACES[field][0]}", *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return str(path)


def plans(
    folder: Path, field: str, seed: int, column: str = "t", **more: Any
) -> tuple[Plan, Plan, int]:
    """Two plans whose trace is the same until some iteration is over, and that iteration."""
    draw = TRACES[field][1]
    times: list[float] = list(range(1, KNOWN + 1))
    if column == "time_s":
        times = [0.011 * k for k in range(KNOWN)]
    past = draw(np.random.default_rng(seed), times)
    future = [t + times[-1] for t in times[1:]]
    one, other = (draw(np.random.default_rng([seed, k]), future) for k in (1, 2))
    extra = {f"devices__{field}": write(folder, field, column, past + one), **more}
    first = joulemesh.plan(scenario(seed=seed, **extra))
    write(folder, field, column, past + other[::-1][: len(other) - 1])
    second = joulemesh.plan(scenario(seed=seed, **extra))
    if column == "t":
        return first, second, KNOWN
    over = int(np.searchsorted(np.cumsum(first.latency_s), future[0]))
    return first, second, over


def decided(timeline: Timeline, rows: int) -> list[Any]:
    """All that a planner decides in the first rows."""
    end = timeline.first + rows
    columns = vars(timeline.exchange[:rows]).values()
    spilled = timeline.spilled_j
    assert timeline.routes is not None
    return [
        timeline.rounds[:rows].tolist(),
        timeline.cap[:rows].tolist(),
        timeline.active[:rows].tolist(),
        timeline.exchanged[:rows].tolist(),
        [column.tolist() for column in columns],
        None if spilled is None else spilled[:rows].tolist(),
        timeline.flooded[:rows].tolist(),
        [None if route is None else list(route.messages()) for route in timeline.routes[:rows]],
        [(since, scheme.name) for since, scheme in timeline.schemes if since < end],
        [event for event in timeline.events if event.iteration <= end],
        [gift for gift in timeline.gifts if gift[0] < end],
    ]


def assert_alike(first: Plan, second: Plan, rows: int) -> None:
    assert rows >= 2
    assert decided(first.timeline, rows) == decided(second.timeline, rows)


@pytest.mark.parametrize("field", TRACES)
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy_with_every_trace(tmp_path: Path, field: str, policy: str) -> None:
    first, second, rows = plans(tmp_path, field, 1, plan__rounds=policy)
    assert_alike(first, second, rows)
    assert decided(first.timeline, LAST) != decided(second.timeline, LAST)  # the future did change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "scheme"),
    sample(product(TRACES, [*(kind.name for kind in SCHEMES), "auto", "theorem3"]), 8),
)
def test_every_scheme_with_every_trace(tmp_path: Path, field: str, scheme: str) -> None:
    assert_alike(*plans(tmp_path, field, 1, plan__aggregation=scheme))


@pytest.mark.slow
@pytest.mark.parametrize("field", TRACES)
@given(
    seed=st.integers(0, 10_000),
    column=st.sampled_from(["t", "time_s"]),
    options=st.fixed_dictionaries(
        {
            "plan__rounds": st.sampled_from(POLICY_NAMES),
            "plan__harvest_forecast": st.sampled_from(["seen", "none"]),
            **WORLDS,
        }
    ),
)
@settings(
    max_examples=40 if ALL else 10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_scenario_with_a_trace(
    tmp_path: Path, field: str, seed: int, column: str, options: dict[str, Any]
) -> None:
    try:
        first, second, rows = plans(tmp_path, field, seed, column, **options)
    except joulemesh.JoulemeshError:  # no plan, no decision
        return
    if rows >= 2:
        assert_alike(first, second, rows)


@pytest.mark.parametrize("wish", ["longest", "auto"])
def test_the_number_of_iterations_is_not_drawn_from_the_future(tmp_path: Path, wish: str) -> None:
    first, second, rows = plans(
        tmp_path, "harvest_w", 0, budget__energy_j=0.02, plan__iterations=wish
    )
    assert first.iterations == second.iterations
    assert_alike(first, second, rows)


def test_the_rest_of_a_plan_does_not_look_ahead_either(tmp_path: Path) -> None:
    first, second, _ = plans(tmp_path, "availability", 2)
    rests = []
    for plan in (first, second):
        left_j = [0.1] * (COUNT - 1)
        rest = Remaining.of(plan.ground, start=3, members=range(COUNT - 1), left_j=left_j)
        rests.append(continue_plan(plan, rest).timeline)
    assert decided(rests[0], KNOWN - 2) == decided(rests[1], KNOWN - 2)


# Methods that are not planned -------------------------------------------------------------------

PLANNED = ("adaptive", "spread", "inverse")  # which plans above speak for
METHOD_NAMES = [one.name for one in METHODS if one.name not in PLANNED]
METHOD_NAMES.append("balanced:compress=topk:0.1")


def contenders(
    folder: Path, field: str, seed: int, method: str, equal: str, **more: Any
) -> tuple[Contender, Contender]:
    """A method twice, with a trace that is the same until iteration `KNOWN` is over."""
    draw, times = TRACES[field][1], [float(t) for t in range(1, KNOWN + 1)]
    past = draw(np.random.default_rng(seed), times)
    future = [t + KNOWN for t in times[:-1]]
    made = []
    for k in (1, 2):
        rows = past + draw(np.random.default_rng([seed, k]), future)
        extra = {f"devices__{field}": write(folder, field, "t", rows), **more}
        made.append(build(method, scenario(seed=seed, budget__total_s=0.3, **extra), equal=equal))
    return made[0], made[1]


def assert_methods_alike(first: Contender, second: Contender) -> None:
    """Rounds, who takes part, joules, seconds, and what own exchanges do with all of that."""
    rows = min(KNOWN, first.schedule.iterations, second.schedule.iterations)
    assert rows == KNOWN
    for one, other in (
        (first.schedule.rounds, second.schedule.rounds),
        (first.schedule.active, second.schedule.active),
        (first.schedule.exchanged, second.schedule.exchanged),
        (first.reserve.compute_j, second.reserve.compute_j),
        (first.reserve.exchange_j, second.reserve.exchange_j),
        (first.reserve.seconds, second.reserve.seconds),
        (first.reserve.bits, second.reserve.bits),
    ):
        np.testing.assert_array_equal(one[:rows], other[:rows])
    kinds = {first.schedule.kind, second.schedule.kind}
    if kinds == {"dense"}:
        one, other = (made.schedule.matrices(0, rows) for made in (first, second))
        np.testing.assert_array_equal(one[:rows], other[:rows])


@pytest.mark.parametrize("field", TRACES)
@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_with_every_trace(
    tmp_path: Path, method: str, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rivals that name no rounds take the adaptive plan's mean: a term of the comparison.
    monkeypatch.setattr(Setting, "rounds", 4)
    first, second = contenders(tmp_path, field, 1, method, "iterations")
    assert_methods_alike(first, second)
    later = [one.reserve.energy_j[KNOWN:].tolist() for one in (first, second)]
    spends = field != "harvest_w"  # methods that take the same rounds spend the same in any sun
    assert not spends or later[0] != later[1]


@pytest.mark.slow
@pytest.mark.parametrize("field", TRACES)
@given(
    method=st.sampled_from(METHOD_NAMES),
    seed=st.integers(0, 10_000),
    options=st.fixed_dictionaries(WORLDS),
)
@settings(
    max_examples=60 if ALL else 10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_method_with_a_trace(
    tmp_path: Path, field: str, method: str, seed: int, options: dict[str, Any]
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Setting, "rounds", 4)
        try:
            made = contenders(tmp_path, field, seed, method, "iterations", **options)
        except joulemesh.JoulemeshError:  # no method, no decision
            return
        assert_methods_alike(*made)


# Fades ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("method", [one.name for one in METHODS])
def test_no_method_knows_the_fades_to_come(
    method: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    faded = scenario(network__fading="rayleigh", network__channel_known=known, budget__energy_j=0.1)
    # Rivals that name no rounds take the adaptive plan's mean: a term of the comparison.
    monkeypatch.setattr(Setting, "rounds", 4)
    first = build(method, faded)
    gain = Channel.gain

    def later(self: Channel, t: int, snapshot: Any = None) -> Any:
        return gain(self, t, snapshot) if t < KNOWN else gain(self, t + 50, snapshot) * 1e-6

    monkeypatch.setattr(Channel, "gain", later)
    second = build(method, faded)
    for one, other in (
        (first.schedule.rounds, second.schedule.rounds),
        (first.schedule.active, second.schedule.active),
        (first.reserve.exchange_j, second.reserve.exchange_j),
    ):
        np.testing.assert_array_equal(one[:KNOWN], other[:KNOWN])
    fades = method != "fedavg"  # the links to its server do not
    assert np.array_equal(first.reserve.exchange_j, second.reserve.exchange_j) != fades
