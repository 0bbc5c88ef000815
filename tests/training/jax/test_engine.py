from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, Partition, from_arrays, partition
from joulemesh.models import build
from joulemesh.training import DivergedError, Engine, Exchange, Options, Schedule, run_reference
from joulemesh.training.trace import Trace
from tests.compiled import compiled_programs

DEVICES = 5


def gossip(seed: int, count: int) -> NDArray[np.float64]:
    matrices = np.random.default_rng(seed).random((count, DEVICES, DEVICES)) ** 3
    shares: NDArray[np.float64] = matrices / matrices.sum(axis=2, keepdims=True)
    return shares


def ring() -> sparse.csr_array[Any, Any]:
    eye = np.eye(DEVICES)
    return sparse.csr_array((eye + np.roll(eye, 1, 0) + np.roll(eye, -1, 0)) / 3)


def schedule_of(mixing: Any, *, most: int = 4, seed: int = 0) -> Schedule:
    """Four iterations with unequal rounds, a device that leaves and an exchange that fails."""
    rounds = np.random.default_rng(seed).integers(1, most + 1, (4, DEVICES))
    active = np.ones((4, DEVICES), bool)
    active[2:, 1] = False
    rounds[~active] = 0
    exchanged = np.array([True, True, False, True])
    return Schedule(rounds, active, exchanged, mixing, 2)


def held_by(
    toy: Dataset, seeds: Sequence[int], kind: str = "quantity", devices: int = DEVICES
) -> list[Partition]:
    return [partition(toy.y_train, devices, kind=kind, alpha=1.0, seed=seed) for seed in seeds]


def usual(**changes: Any) -> Options:
    """Settings that tests share, and with them compilations."""
    return Options(**{"batch_size": 4, "chunk_iterations": 3, "eval_every": 2, **changes})


def finish(engine: Engine) -> Any:
    *_, (state, _) = engine.train()
    return engine.params(state)


def assert_equal_to_reference(engine: Engine, atol: float, iterations: int | None = None) -> None:
    slow, fast = run_reference(engine, iterations), finish(engine)
    for seed, devices in enumerate(slow):
        for device, params in enumerate(devices):
            mine = jax.tree.map(lambda leaf: leaf[seed, device], fast)  # noqa: B023
            for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
                np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("machine", "mixing", "local_round", "optimizer", "weights", "eval_every"),
    [
        # Iterations before an evaluation have a program of their own: with 1, it is the only one.
        ("one processor", "mean", "step", "adam", "samples", 1),
        ("one processor", gossip(0, 4), "epoch", "sgd", "uniform", 2),
        ("two processors", "mean", "epoch", "adam", "uniform", 1),
        ("two processors", gossip(1, 1), "step", "sgd", "samples", 2),
        ("two processors", ring(), "step", "sgd", "uniform", 1),
        ("rows together", "mean", "step", "sgd", "samples", 2),
        ("rows together", gossip(0, 4), "epoch", "adam", "uniform", 1),
        ("rows together", ring(), "step", "adam", "uniform", 2),
    ],
    indirect=["machine"],
    ids=[
        "1-mean",
        "1-dense",
        "2-mean",
        "2-dense",
        "2-sparse",
        "all-mean",
        "all-dense",
        "all-sparse",
    ],
)
def test_engine_equals_reference(
    toy: Dataset,
    unevaluated: Callable[[Engine], Engine],
    machine: Machine,
    mixing: Any,
    local_round: str,
    optimizer: str,
    weights: str,
    eval_every: int,
) -> None:
    options = usual(
        precision="float64",
        local_round=local_round,
        optimizer=optimizer,
        weights=weights,
        eval_every=eval_every,
    )
    schedule = schedule_of(mixing, most=2 if local_round == "epoch" else 4)
    model = build("mlp", toy.shape, 3, (6,), l2=0.01)
    engine = unevaluated(
        Engine(model, toy, held_by(toy, (0, 7)), schedule, options, (0, 7), machine=machine)
    )
    assert len(set(engine.partitions[0].sizes.tolist())) > 1
    assert_equal_to_reference(engine, 1e-10)


@pytest.mark.parametrize(
    ("machine", "start", "trains"),
    [
        ("one processor", "own", "nobody ever"),
        ("one processor", "shared", "some"),
        ("rows together", "own", "nobody in the first and the last"),
        ("rows together", "shared", "nobody ever"),
    ],
    indirect=["machine"],
)
def test_iterations_without_a_round_average_all_the_same(
    toy: Dataset,
    unevaluated: Callable[[Engine], Engine],
    machine: Machine,
    start: Literal["own", "shared"],
    trains: str,
) -> None:
    rounds = np.random.default_rng(0).integers(0, 2, (4, DEVICES))
    rounds[[0, 3]] *= trains == "some"
    rounds *= trains != "nobody ever"
    engine = unevaluated(
        Engine(
            build("mlp", toy.shape, 3, (6,)),
            toy,
            held_by(toy, (0, 7)),
            Schedule(rounds),
            usual(precision="float64"),
            (0, 7),
            machine=replace(machine, start=start),
        )
    )
    assert_equal_to_reference(engine, 1e-10)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards", "resample"])
def test_engine_equals_reference_on_every_partition(
    toy: Dataset, unevaluated: Callable[[Engine], Engine], kind: str
) -> None:
    options = Options(precision="float64", batch_size=4)
    model = build("logistic", toy.shape, 3, l2=0.1)
    held = held_by(toy, (3,), kind)
    engine = unevaluated(Engine(model, toy, held, schedule_of("mean"), options, (3,)))
    assert_equal_to_reference(engine, 1e-10)


@pytest.mark.parametrize(
    ("precision", "atol"),
    [("float64", 1e-10), pytest.param("float32", 2e-5, marks=pytest.mark.slow)],
)
def test_engine_equals_reference_for_the_cnn(
    unevaluated: Callable[[Engine], Engine], precision: Any, atol: float
) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(24, 22, 22, 1)).astype(np.float32), np.arange(24) % 3
    images = from_arrays(x[:16], y[:16], x[16:], y[16:])
    held = [partition(images.y_train, 2, kind="iid", seed=0)]
    options = Options(precision=precision, batch_size=2, learning_rate=0.01, eval_every=1)
    schedule = Schedule(np.array([[1, 2], [2, 1]]))
    engine = unevaluated(Engine(build("cnn", (22, 22, 1), 3), images, held, schedule, options))
    assert_equal_to_reference(engine, atol)


def test_single_precision_differs_by_rounding_only(
    toy: Dataset, unevaluated: Callable[[Engine], Engine], machine: Machine
) -> None:
    options = usual()
    schedule = Schedule(np.array([[1, 2, 3, 4, 2]]))
    model, held = build("mlp", toy.shape, 3, (6,)), held_by(toy, (0,))
    engine = unevaluated(Engine(model, toy, held, schedule, options, machine=machine))
    assert_equal_to_reference(engine, 5e-7)


def test_the_same_seed_gives_the_same_bits(toy: Dataset, machine: Machine) -> None:
    model = build("mlp", toy.shape, 3, (6,))

    def once() -> tuple[Trace, Any]:
        options = usual(eval_every=1)
        held = held_by(toy, (4,))
        engine = Engine(model, toy, held, schedule_of("mean"), options, (4,), machine=machine)
        return engine.run(), finish(engine)

    (one, mine), (two, yours) = once(), once()
    jax.tree.map(np.testing.assert_array_equal, mine, yours)
    np.testing.assert_array_equal(one.test_loss, two.test_loss)


@pytest.mark.parametrize("machine", ["two processors", "rows together"], indirect=True)
def test_seeds_in_one_program_are_single_runs(toy: Dataset, machine: Machine) -> None:
    model, options = build("mlp", toy.shape, 3, (6,)), usual()
    seeds = (11, 5, 8)
    schedule = schedule_of("mean")
    held = held_by(toy, seeds)
    together = Engine(model, toy, held, schedule, options, seeds, machine=machine)
    all_params, trace = finish(together), together.run()
    for number, seed in enumerate(seeds):
        held = held_by(toy, (seed,))
        alone = Engine(model, toy, held, schedule, options, (seed,), machine=machine)
        params, single = finish(alone), alone.run()
        for name, leaf in params.items():
            np.testing.assert_array_equal(all_params[name][number], leaf[0])
        np.testing.assert_array_equal(trace.test_loss[:, number], single.test_loss[:, 0])
    # Seeds are different runs.
    assert not np.allclose(all_params["dense0_w"][0], all_params["dense0_w"][1], atol=1e-3)


@pytest.mark.parametrize("machine", ["rows together"], indirect=True)
def test_chunks_do_not_change_a_bit(toy: Dataset, machine: Machine) -> None:
    model = build("mlp", toy.shape, 3, (6,))
    found = []
    for chunk in (10, 3):  # the second because so many devices may have no longer ones
        options = usual(chunk_iterations=10, eval_every=3)
        small = replace(machine, chunk_rounds=chunk * DEVICES + 1, segments_per_call=2)
        held = held_by(toy, (0,))
        engine = Engine(model, toy, held, schedule_of("mean"), options, machine=small)
        assert engine.key.chunk == chunk
        trace = engine.run()
        assert trace.iteration.tolist() == [3, 4]
        found.append((finish(engine), trace.test_loss))
    jax.tree.map(np.testing.assert_array_equal, found[0], found[1])


def test_one_compilation_serves_every_schedule_of_a_shape(toy: Dataset) -> None:
    model = build("mlp", toy.shape, 3, (9,))
    for iterations, most, rate in ((4, 4, 0.1), (7, 2, 0.05), (23, 5, 0.2)):
        rounds = np.random.default_rng(most).integers(1, most + 1, (iterations, DEVICES))
        options = Options(batch_size=4, learning_rate=rate, chunk_iterations=6, eval_every=4)
        engine = Engine(model, toy, held_by(toy, (most,)), Schedule(rounds), options, (most,))
        engine.run()
    for program in (engine.programs.advance, engine.programs.watched):
        assert compiled_programs(program) == 1


def test_a_state_can_be_taken_up_again(toy: Dataset) -> None:
    model = build("mlp", toy.shape, 3, (6,))
    options = usual(optimizer="adam", chunk_iterations=2, eval_every=1)
    engine = Engine(model, toy, held_by(toy, (0,)), schedule_of("mean"), options)
    whole, expected = engine.run(), finish(engine)
    state, first = next(engine.train())
    kept = jax.device_get(state)
    state = jax.tree.map(lambda leaf, like: jax.device_put(leaf, like.sharding), kept, state)
    rest = list(engine.train(state))
    jax.tree.map(np.testing.assert_array_equal, engine.params(rest[-1][0]), expected)
    joined = Trace.join([first, *(trace for _, trace in rest)])
    np.testing.assert_array_equal(joined.test_loss, whole.test_loss)


@pytest.mark.parametrize("eval_every", [1, 100])
def test_divergence_is_reported_with_its_iteration(
    toy: Dataset, machine: Machine, eval_every: int
) -> None:
    rounds = np.full((12, DEVICES), 3)
    options = usual(learning_rate=1e30, eval_every=eval_every)
    model = build("mlp", toy.shape, 3, (6,))
    held = held_by(toy, (5,))
    engine = Engine(model, toy, held, Schedule(rounds), options, (5,), machine=machine)
    with pytest.raises(DivergedError, match=r"diverged in iteration \d+ \(seed 5\)") as stopped:
        engine.run()
    assert stopped.value.iteration <= 2
    assert "learning_rate (now 1e+30)" in str(stopped.value)


def test_chunks_before_the_divergence_are_handed_out(toy: Dataset) -> None:
    """A rate that is fine for the mean but not for a device that trains long and late."""
    rounds = np.array([[1], [1], [1], [1], [400], [1]])
    options = Options(batch_size=4, learning_rate=3.0, chunk_iterations=2, eval_every=2)
    model = build("logistic", toy.shape, 3, l2=2.0)  # |1 - 3·2| = 5: each step grows fivefold
    engine = Engine(model, toy, held_by(toy, (0,), devices=1), Schedule(rounds), options)
    good: list[int] = []
    with pytest.raises(DivergedError) as stopped:
        good.extend(int(state.iteration) for state, _ in engine.train())
    assert good == [2, 4]
    assert stopped.value.iteration == 5


@pytest.mark.parametrize("machine", ["two processors", "rows together"], indirect=True)
def test_a_method_has_its_own_exchange(
    toy: Dataset, unevaluated: Callable[[Engine], Engine], machine: Machine
) -> None:
    """Each device takes the parameters of the next; the memory counts, the report tells."""

    def apply(params: Any, state: Any, key: jax.Array, context: Any) -> tuple[Any, Any, Any]:
        shifted = jax.tree.map(lambda leaf: jnp.roll(leaf, -1, axis=0), params)
        sent = {"age": state + 1, "draw": jax.random.uniform(key, (DEVICES,))}
        return shifted, state + 1, sent

    ring_shift = Exchange(lambda params: jnp.zeros(DEVICES, jnp.int32), apply)
    exchanged = np.array([True, False, True, True, True])
    schedule = Schedule(np.zeros((5, DEVICES), int), exchanged=exchanged)
    options = Options(chunk_iterations=3, eval_every=2)
    model = build("mlp", toy.shape, 3, (6,))
    held = held_by(toy, (0, 1))
    own: dict[str, Any] = {"own_exchange": ring_shift, "machine": machine}
    engine = unevaluated(Engine(model, toy, held, schedule, options, (0, 1), **own))
    start = engine.begin()

    def mark(leaf: NDArray[Any]) -> Any:
        places = np.repeat(np.arange(len(leaf) // 2), 2)
        return leaf + places.reshape(-1, *[1] * (leaf.ndim - 1)).astype(leaf.dtype)

    marked = jax.tree.map(mark, jax.device_get(start.params))
    state = start._replace(
        params=jax.tree.map(lambda a, b: jax.device_put(a, b.sharding), marked, start.params)
    )
    before = engine.params(state)["dense0_b"]
    chunks = list(engine.train(state))
    after = engine.params(chunks[-1][0])["dense0_b"]
    np.testing.assert_array_equal(after, np.roll(before, -4, axis=1))  # four of five exchanges
    sent = Trace.join([trace for _, trace in chunks]).sent
    assert sent["age"][:, 0, 0].tolist() == [1, 0, 2, 3, 4]
    assert sent["draw"].shape == (5, 2, DEVICES)
    assert not np.array_equal(sent["draw"][0, 0], sent["draw"][0, 1])  # seeds draw apart
    assert not np.array_equal(sent["draw"][0, 0], sent["draw"][2, 0])  # and iterations


def test_bfloat16_computes_coarsely_on_single_precision_parameters(
    toy: Dataset, unevaluated: Callable[[Engine], Engine]
) -> None:
    model, found = build("mlp", toy.shape, 3, (6,)), {}
    for precision in ("float32", "bfloat16"):
        options = usual(precision=precision, eval_every=1)
        engine = unevaluated(Engine(model, toy, held_by(toy, (0,)), schedule_of("mean"), options))
        found[precision] = finish(engine)["dense0_w"]
    assert found["bfloat16"].dtype == np.float32
    gap = np.abs(found["bfloat16"] - found["float32"]).max()
    assert 0 < gap < 0.02


def test_a_departed_device_keeps_its_parameters(
    toy: Dataset, unevaluated: Callable[[Engine], Engine], machine: Machine
) -> None:
    model = build("mlp", toy.shape, 3, (6,))
    held, schedule = held_by(toy, (0,)), schedule_of("mean")
    engine = unevaluated(Engine(model, toy, held, schedule, usual(), machine=machine))
    steps = engine.train()
    left = engine.params(next(steps)[0])["dense0_w"][0, 1]  # departed after two iterations
    late = finish(engine)["dense0_w"][0]
    np.testing.assert_array_equal(late[1], left)
    np.testing.assert_array_equal(late[0], late[2])
    assert not np.array_equal(late[0], left)


def test_parts_that_do_not_fit_are_refused(toy: Dataset) -> None:
    model, schedule = build("logistic", toy.shape, 3), Schedule(np.ones((1, 5), int))
    for held, seeds, words in (
        (held_by(toy, (0,)), (0, 1), "1 partitions for 2 seeds"),
        (held_by(toy, (0,), devices=4), (0,), "4 devices but the schedule 5"),
        (held_by(toy, (0, 0)), (0, 0), "different numbers"),
        ([partition(np.zeros(200, int), 5, kind="iid")], (0,), "refers to sample 199 of 90"),
    ):
        with pytest.raises(ScenarioError, match=words):
            Engine(model, toy, held, schedule, seeds=seeds)


def test_a_fingerprint_tells_runs_apart(toy: Dataset) -> None:
    model, held = build("logistic", toy.shape, 3), held_by(toy, (0,))

    def mark(options: Options | None = None, rounds: int = 1, seed: int = 0) -> Any:
        schedule = Schedule(np.full((2, DEVICES), rounds))
        return Engine(model, toy, held, schedule, options or Options(), (seed,)).digest()

    marks = [mark(), mark(Options(batch_size=4)), mark(rounds=2), mark(seed=1)]
    assert len(set(marks)) == 4
    assert mark() == marks[0]
