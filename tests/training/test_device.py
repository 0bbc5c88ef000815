"""One device's trainer: a fleet of them that exchanges by messages is the engine's run."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import joulemesh
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition, from_arrays, partition
from joulemesh.models import build
from joulemesh.planning.orders import Orders, orders
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES
from joulemesh.training import DeviceTrainer, DivergedError, Engine, Options, Schedule
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.prepare import partitions

DEVICES, ITERATIONS = 5, 3


def _data() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    return from_arrays(x[:90], np.arange(90) % 3, x[90:], np.arange(30) % 3)


def _close(one: Any, other: Any, atol: float) -> None:
    for mine, engines in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(mine, engines, rtol=0, atol=atol)


def _apart(one: Any, other: Any) -> int:
    """The largest distance of two sets of parameters, in units in the last place of 1."""
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    worst = max(float(np.abs(mine - engines).max()) for mine, engines in leaves)
    return int(np.ceil(worst / np.finfo(jax.tree.leaves(one)[0].dtype).eps))


@pytest.mark.parametrize(
    ("local_round", "optimizer", "kind"), [("step", "sgd", "mlp"), ("epoch", "adam", "logistic")]
)
def test_without_exchanges_each_device_has_the_engines_bits(
    unevaluated: Any, machine_of: Any, local_round: str, optimizer: str, kind: str
) -> None:
    """Same draws, same step, one row at a time: on one processor nothing is left to differ."""
    data, count = _data(), 3
    held = partition(data.y_train, count, kind="quantity", alpha=1.0, seed=3)
    rounds = np.array([[1, 0, 2], [2, 1, 4], [1, 1, 1]])
    options = Options(batch_size=4, local_round=local_round, optimizer=optimizer)  # type: ignore[arg-type]
    model = build(kind, data.shape, 3, (7,))
    apart = Schedule(rounds, exchanged=np.zeros(3, bool))
    engine = unevaluated(
        Engine(model, data, [held], apart, options, (5,), machine=machine_of(1, loop=True))
    )
    *_, (state, _) = engine.train()
    fleet = engine.params(state)
    for device in range(count):
        trainer = DeviceTrainer.of(model, data, held, options, seed=5, device=device)
        params = trainer.begin()
        for t in range(3):
            params = trainer.train(params, t + 1, int(rounds[t, device]))
        engines = jax.tree.map(lambda leaf, i=device: leaf[0, i], fleet)
        assert jax.tree.all(jax.tree.map(np.array_equal, params, engines))


class Node:
    """One device of a fleet: its orders, its trainer, and its peer of the exchange under way."""

    def __init__(self, given: Orders, trainer: DeviceTrainer) -> None:
        self.orders, self.trainer, self.params = given, trainer, trainer.begin()

    def train(self, iteration: int) -> None:
        rounds = self.orders.rounds_of(iteration)
        self.params = self.trainer.train(self.params, iteration, rounds)

    def meet(self, plan: Plan, route: Route, iteration: int) -> bool:
        """Begin an exchange, if the orders name one; whether they do."""
        part = self.orders.exchange_of(iteration)
        if part is None:
            return False
        self.peer = plan.scheme_at(iteration).peer(self.orders.device, route)
        self.peer.start(self.trainer.vector(self.params))
        self.steps = part.steps * part.repeats + part.chunks - 1
        self.due = {(step, to) for step, to, _ in part.sent()}
        return True

    def send(self, step: int) -> list[tuple[int, Any]]:
        sent = self.peer.send(step)
        assert {(step, to) for to, _ in sent} == {one for one in self.due if one[0] == step}
        return sent

    def end(self) -> None:
        self.params = self.trainer.params_of(self.peer.finish())


def play(plan: Plan, nodes: list[Node]) -> None:
    """Carry out a plan, message by message; nothing but messages passes between nodes."""
    for iteration in range(1, plan.iterations + 1):
        for node in nodes:
            node.train(iteration)
        route = plan.route(iteration)
        if route is None:
            continue
        here = [node for node in nodes if node.meet(plan, route, iteration)]
        for step in range(here[0].steps):
            messages = [
                (node.orders.device, to, payload)
                for node in here
                for to, payload in node.send(step)
            ]
            for sender, to, payload in messages:
                nodes[to].peer.receive(step, sender, payload)
        for node in here:
            node.end()


def fleet_and_engine(unevaluated: Any, scheme: str, precision: str) -> tuple[list[Node], Any]:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": DEVICES,
            "plan.aggregation": scheme,
            "plan.iterations": ITERATIONS,
            "plan.epsilon": 0.3,
            "budget.energy_j": [1.0, 2.0],
            "budget.deadline_s": 0.3,
            "training.partition": "iid",
            "training.batch_size": 4,
            "training.precision": precision,
        }
    )
    data = _data()
    model = build("mlp", data.shape, 3, (7,))
    plan = joulemesh.plan(scenario, parameters=model.parameters)
    assert len(np.unique(plan.rounds)) > 1  # unequal rounds, or the test would show less
    held = partitions(scenario, data, (0,), plan.work.round_samples)
    options = Options.from_scenario(scenario.training)
    engine = unevaluated(Engine(model, data, held, schedule_of(plan), options, (0,)))
    *_, (state, _) = engine.train()
    nodes = [
        Node(orders(plan, i), trainer(model, data, held[0], options, i)) for i in range(DEVICES)
    ]
    play(plan, nodes)
    return nodes, engine.params(state)


def trainer(
    model: Any, data: Dataset, held: Partition, options: Options, device: int
) -> DeviceTrainer:
    return DeviceTrainer.of(model, data, held, options, seed=0, device=device)


# A sum of N numbers in another order differs by some units in the last place in each iteration,
# and training carries that on: the engine adds all devices at once (or updates to a shared start),
# messages add one at a time along the route.
ULPS = 16  # 4 at most when measured


@pytest.mark.parametrize(
    ("scheme", "precision"),
    [("tree", "float32"), *((scheme, "float64") for scheme in SCHEMES.built_in)],
)
def test_a_fleet_that_plays_the_plan_message_by_message_is_the_engine(
    unevaluated: Any, scheme: str, precision: str
) -> None:
    nodes, fast = fleet_and_engine(unevaluated, scheme, precision)
    for device, node in enumerate(nodes):
        engines = jax.tree.map(lambda leaf, i=device: leaf[0, i], fast)
        assert _apart(node.params, engines) <= ULPS
    started = nodes[0].trainer.begin()
    assert _apart(started, nodes[0].params) > 1e6 * (precision == "float64") + 1000


def test_a_trainer_that_was_stopped_goes_on_to_the_same_bits() -> None:
    data = _data()
    held = partition(data.y_train, 2, kind="iid")
    model, options = build("mlp", data.shape, 3, (4,)), Options(batch_size=4, optimizer="adam")
    whole = trainer(model, data, held, options, 1)
    first = whole.train(whole.begin(), 1, 3)
    kept = whole.save()
    again = trainer(model, data, held, options, 1)
    again.load(kept)
    one, other = whole.train(first, 2, 2), again.train(first, 2, 2)
    assert jax.tree.all(jax.tree.map(np.array_equal, one, other))
    forgetful = trainer(model, data, held, options, 1).train(first, 2, 2)
    assert _apart(one, forgetful) > 0
    with pytest.raises(ScenarioError, match="start again without it"):
        again.load({})


def test_a_device_that_diverges_says_so_and_one_without_samples_is_refused() -> None:
    data = _data()
    held = partition(data.y_train, 2, kind="iid")
    model = build("mlp", data.shape, 3, (4,))
    wild = trainer(model, data, held, Options(learning_rate=1e30), 0)
    with pytest.raises(DivergedError, match="iteration 4"):
        wild.train(wild.begin(), 4, 20)
    empty = Partition(np.arange(90, dtype=np.int32), np.array([0, 90, 90]))
    with pytest.raises(ScenarioError, match="no samples"):
        trainer(model, data, empty, Options(), 1)


def test_parameters_travel_as_one_vector_and_back() -> None:
    data = _data()
    held = partition(data.y_train, 2, kind="iid")
    made = trainer(build("mlp", data.shape, 3, (4,)), data, held, Options(precision="float64"), 0)
    params = made.train(made.begin(), 1, 1)
    vector = made.vector(params)
    assert vector.shape == (made.model.parameters,)
    assert vector.dtype == np.float64
    _close(made.params_of(vector), params, 0)


def test_preparing_compiles_and_changes_nothing() -> None:
    data = _data()
    held = partition(data.y_train, 3, kind="iid", seed=3)
    model = build("logistic", data.shape, 3)
    options = Options(batch_size=4, optimizer="adam")
    plain, prepared = (
        DeviceTrainer.of(model, data, held, options, seed=5, device=1) for _ in range(2)
    )
    prepared.prepare()
    before: Any = prepared._train
    compiled = before._cache_size()
    mine = prepared.train(prepared.begin(), 1, 3)
    assert before._cache_size() == compiled
    assert _apart(mine, plain.train(plain.begin(), 1, 3)) == 0
    for name, array in plain.save().items():
        np.testing.assert_array_equal(prepared.save()[name], array)
