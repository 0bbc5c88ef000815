"""Arrays have the shapes and types that the documentation states, wherever they pass a seam."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.aggregation.scheme import Scheme
from joulemesh.data import Dataset, load, partition
from joulemesh.ledger import Ledger
from joulemesh.methods import build as build_method
from joulemesh.methods import names
from joulemesh.models import build
from joulemesh.planning.policy import allocate
from joulemesh.registries import POLICIES, SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.trace import Trace
from tests.shapes import ShapeError, Stated, called, check, read, stated_by, watch

SMALL = joulemesh.Scenario.preset("adaptive").override(
    {"devices.count": 6, "network.topology": "complete", "plan.iterations": 5}
)
GONE = {"plan.on_depletion": "leave", "budget.energy_j": [0.02, 2.0]}
FADING = {"network.fading": "rayleigh", "network.channel_known": False, "plan.fade_quantile": 0.3}
PLANS: dict[str, dict[str, Any]] = {
    **{f"scheme {name}": {"plan.aggregation": name} for name in SCHEMES.names()},
    **{f"policy {p.name}": {"plan.rounds": p.name} for p in POLICIES if not p.zeros},
    "departures": GONE,
    "fading": FADING,
    "one iteration": {"plan.iterations": 1},
}


@pytest.fixture(scope="module")
def plan() -> joulemesh.Plan:
    return joulemesh.plan(SMALL)


@pytest.mark.parametrize("name", PLANS)
def test_plans(name: str) -> None:
    made = joulemesh.plan(SMALL.override({"budget.deadline_s": 0.5, **PLANS[name]}))
    sizes = {"n": made.iterations, "N": 6, "E": len(made.world.graph.edges)}
    assert check(made, sizes)["n"] == made.iterations
    check(made.timeline, sizes)
    check(made.world.graph, sizes)
    check(made.world.devices, sizes)
    check(made.timeline.route)


def ready(name: str) -> Scheme:
    made = joulemesh.plan(SMALL.override({"plan.aggregation": name, "budget.deadline_s": 0.5}))
    return made.scheme_at(1)


@pytest.mark.parametrize("name", SCHEMES.names())
def test_schemes(name: str) -> None:
    scheme, sizes = ready(name), {"A": 6}
    called(scheme.mixing, 1, 4, sizes=sizes)
    if scheme.pairs(1, 4) is not None:
        called(scheme.pairs, 1, 4, sizes=sizes)


@pytest.mark.parametrize("name", POLICIES.names())
@pytest.mark.parametrize("cap", [9, np.full(3, 9), np.full((4, 3), 9)], ids=["one", "N", "n N"])
def test_policies(name: str, cap: Any) -> None:
    options, total = PlanOptions(zeta=9.0, fixed_rounds=1), np.array([8, 9, 12])
    called(allocate, POLICIES[name], 6, total, cap, options=options, start=3, sizes={"n": 6})


@pytest.mark.parametrize("name", names())
def test_ledgers_of_methods(name: str) -> None:
    made = build_method(name if name != "fixed" else "fixed:1", SMALL)
    schedule = made.schedule
    sizes = {"n": schedule.iterations, "N": schedule.devices}
    check(schedule, sizes)
    check(made.reserve, sizes)
    check(made, sizes)
    if schedule.kind == "dense":
        called(schedule.matrices, 0, min(2, schedule.iterations))


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits")


def test_data_and_partitions(digits: Dataset) -> None:
    check(digits, {"n": len(digits.y_train), "m": len(digits.y_test)})
    held = partition(digits.y_train, 4, kind="dirichlet", seed=0)
    assert check(held)["N"] == 4
    assert called(held.histogram, digits.y_train, 10, sizes={"D": 4, "K": 10}).sum()


@pytest.fixture(scope="module")
def trained(digits: Dataset) -> tuple[Engine, Any, Trace]:
    held = [partition(digits.y_train, 4, kind="iid", seed=seed) for seed in (0, 1)]
    ring = 0.5 * (np.eye(4) + np.roll(np.eye(4), 1, axis=1))
    schedule = Schedule(np.full((4, 4), 2), mixing=ring[None])
    options = Options(batch_size=8, chunk_iterations=4, eval_every=2)
    engine = Engine(build("logistic", digits.shape, 10), digits, held, schedule, options, (0, 1))
    *_, (state, trace) = engine.train()
    return engine, state, trace


def test_what_training_gives(trained: tuple[Engine, Any, Trace]) -> None:
    engine, state, trace = trained
    assert check(trace, {"seeds": 2})["evaluations"] == 2
    found = engine.evaluator.evaluate(engine.programs.evaluate, state.params, 3)
    check(found, {"S": 2})
    called(engine.params, state, sizes={"seeds": 2, "devices": 4})


def test_what_is_saved_and_loaded(trained: tuple[Engine, Any, Trace]) -> None:
    engine, state, _ = trained
    arrays = engine.save(state)
    shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    assert shapes == dict(engine.saved_shapes())
    own = read("float [2, 4, ...]")
    assert own is not None
    assert any(own.bind(array, {}) is not None for array in arrays.values())
    for name, array in arrays.items():
        if array.ndim > 1:
            with pytest.raises(ValueError, match="not those of this run"):
                engine.load({**arrays, name: array[:, :-1]})


# A wrong shape does not pass ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rounds", "cap", "total", "active", "exchanged", "flooded"])
def test_a_timeline_with_a_wrong_shape_is_noticed(plan: joulemesh.Plan, name: str) -> None:
    array = getattr(plan.timeline, name)
    wrong: Any = np.concatenate([array, array[:1]]) if len(array) > 1 else array[:, :-1]
    watch()  # the plan, made for this test perhaps, does not count
    with pytest.raises(ShapeError, match=r"^Timeline\.\w+ is \w+ \[.*\], not "):
        replace(plan.timeline, **{name: wrong})


def ledger() -> Ledger:
    return Ledger.of((2, 3), compute_j=1.0, seconds=1.0)


@pytest.mark.parametrize("name", [field.name for field in fields(Ledger)])
def test_a_ledger_with_a_wrong_shape_is_noticed(name: str) -> None:
    good = ledger()
    with pytest.raises(ShapeError):
        replace(good, **{name: getattr(good, name)[:1]})
    with pytest.raises(ShapeError, match=f"{name} is int64"):
        replace(good, **{name: getattr(good, name).astype(int)})


def test_partitions_and_traces_with_wrong_shapes_are_noticed() -> None:
    with pytest.raises(ShapeError, match="offsets"):
        joulemesh.data.Partition(np.arange(3), np.array([[0, 3]]))
    others: list[Any] = [np.zeros((1, 2))] * 9
    with pytest.raises(ShapeError, match="test_loss"):
        Trace(np.array([5]), np.zeros((1, 2)), np.zeros((1, 3)), *others)


def test_a_method_that_gives_a_wrong_shape_is_noticed() -> None:
    class Tree(type(ready("tree"))):  # type: ignore[misc]
        def mixing(self, start: int, stop: int) -> Any:
            """float64 [stop−start, A, A], or [1, A, A] if all are alike: what the exchanges do."""
            return np.full((2, 6, 6), 1 / 6)

    own: Any = ready("tree")
    broken = Tree(**{one.name: getattr(own, one.name) for one in fields(own) if one.init})
    with pytest.raises(ShapeError, match="mixing"):
        called(broken.mixing, 0, 3, sizes={"A": 6})


# The reader ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        ("int64 [n, N]: rounds", Stated(("int64",), (("n", "N"),))),
        ("float64 [n, N] or [1, N].", Stated(("float64",), (("n", "N"), ("1", "N")))),
        ("uint8 or float32 [m, ...]; images", Stated(("uint8", "float32"), (("m", "..."),))),
        ("scalar, [N] or [n−start+1, N]: caps", Stated((), ((), ("N",), ("n−start+1", "N")))),
        ("Integers [n, N]: local rounds.", Stated(("integer",), (("n", "N"),))),
        ("joules of a round", None),
        ("a pytree of [n, ...]", None),
    ],
)
def test_descriptions_are_read(text: str, stated: Stated | None) -> None:
    assert read(text) == stated


def test_sizes_are_bound_once() -> None:
    offsets = Stated((), (("N + 1",),))
    assert offsets.bind(np.zeros(5), {}) == {"N": 4}
    assert offsets.bind(np.zeros(5), {"N": 5}) is None
    assert Stated((), (("n−start+1",),)).bind(np.zeros(3), {"n": 5, "start": 3}) is not None
    assert Stated((), (("n", "n"),)).bind(np.zeros((2, 3)), {}) is None
    assert Stated((), (("n", "..."),)).bind(np.zeros((2, 3)), {"n": 2}) == {"n": 2}
    assert Stated((), (("n", "..."),)).bind(np.float64(1), {}) is None


@pytest.mark.parametrize(
    ("seam", "least"),
    [
        (joulemesh.Plan, {"rounds", "compute_j", "exchange_j", "latency_s", "spent_j", "binding"}),
        (Schedule, {"rounds", "active", "exchanged", "exact"}),
        (Ledger, {field.name for field in fields(Ledger)}),
        (Dataset, {"x_train", "y_train", "x_test", "y_test"}),
        (joulemesh.data.Partition, {"order", "offsets", "sizes"}),
        (Trace, {"iteration", "train_loss", "test_score", "drift", "test_samples"}),
    ],
)
def test_seams_state_their_shapes(seam: type, least: set[str]) -> None:
    assert least <= stated_by(seam).keys()
