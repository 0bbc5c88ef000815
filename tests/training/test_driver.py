"""The one loop that drives a learner: chunks to sinks, divergence, interruption."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax
import numpy as np
import pytest

import joulemesh
from joulemesh.data import partition
from joulemesh.models import build
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.learner import (
    DivergedError,
    Learner,
    TrainedChunk,
    interrupts,
    train,
    train_seeds,
)
from joulemesh.training.trace import Trace

HOME = Path(joulemesh.__file__).parent


@dataclass
class Counter:
    """A learner that counts."""

    seeds: tuple[int, ...] = (0,)
    schedule: Schedule = field(default_factory=lambda: Schedule(np.ones((7, 2), int)))

    def begin(self) -> Any:
        return SimpleNamespace(iteration=0)

    def advance(self, state: Any) -> Any:
        done = min(state.iteration + 3, self.schedule.iterations)
        curves: list[Any] = [np.zeros((1, 1))] * 11
        return SimpleNamespace(iteration=done), Trace(np.array([done]), *curves)


def driven(counter: Counter) -> Learner[Any]:
    """All of a learner that the loop needs."""
    return cast(Learner[Any], counter)


def test_every_chunk_goes_to_every_sink_in_order() -> None:
    heard: list[tuple[str, int, int, bool]] = []

    def sink(name: str) -> Any:
        return lambda c: heard.append((name, c.start, c.completed, c.last))

    state, traces = train(driven(Counter()), [sink("a"), sink("b")])
    assert heard[::2] == [("a", 0, 3, False), ("a", 3, 6, False), ("a", 6, 7, True)]
    assert [name for name, *_ in heard] == ["a", "b"] * 3
    assert (state.iteration, [int(t.iteration[0]) for t in traces]) == (7, [3, 6, 7])


def test_training_goes_on_from_a_state() -> None:
    _, traces = train(driven(Counter()), state=SimpleNamespace(iteration=6))
    assert [int(trace.iteration[0]) for trace in traces] == [7]
    assert train(driven(Counter()), state=SimpleNamespace(iteration=7))[1] == []


def test_an_interrupt_stops_after_the_chunk_that_is_under_way() -> None:
    class Stopped(Counter):
        def advance(self, state: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            return super().advance(state)

    seen: list[TrainedChunk[Any]] = []
    with interrupts() as interrupt, pytest.raises(KeyboardInterrupt):
        train(driven(Stopped()), [seen.append], interrupt=interrupt)
    assert [(chunk.completed, chunk.stopping, chunk.last) for chunk in seen] == [(3, True, True)]


def test_an_interrupt_in_the_last_chunk_loses_nothing() -> None:
    class Stopped(Counter):
        def advance(self, state: Any) -> Any:
            if state.iteration == 6:
                os.kill(os.getpid(), signal.SIGINT)
            return super().advance(state)

    with interrupts() as interrupt:
        state, _ = train(driven(Stopped()), interrupt=interrupt)
    assert interrupt.asked
    assert state.iteration == 7


def lineups_of(bad: set[int], seeds: tuple[int, ...], **how: bool) -> tuple[list[Any], Any]:
    lineups = []

    def once(lineup: tuple[int, ...]) -> list[str]:
        lineups.append(lineup)
        lost = [seed for seed in lineup if seed in bad or (seed >= 10**6 and -1 in bad)]
        if lost:
            raise DivergedError(5, lost[0], 0.1)
        return [f"run {seed}" for seed in lineup]

    found = train_seeds(once, seeds, **how)
    return lineups, [(s, r if isinstance(r, str) else r.iteration) for s, r in found]


def test_seeds_that_diverge_are_left_out() -> None:
    lineups, found = lineups_of({7, 9}, (7, 8, 9))
    assert lineups == [(7, 8, 9), (8, 9), (8,)]
    assert found == [(7, 5), (9, 5), (8, "run 8")]
    assert lineups_of({1, 2}, (1, 2))[1] == [(1, 5), (2, 5)]


def test_stand_ins_keep_the_number_of_seeds() -> None:
    lineups, found = lineups_of({7, 9}, (7, 8, 9), stand_ins=True)
    assert [len(lineup) for lineup in lineups] == [3, 3, 3]
    assert found == [(7, 5), (9, 5), (8, "run 8")]


def test_stand_ins_that_diverge_as_well_are_given_up() -> None:
    lineups, found = lineups_of({7, -1}, (7, 8), stand_ins=True)
    assert lineups[-1] == (8,)
    assert found == [(7, 5), (8, "run 8")]


def test_nothing_else_drives_a_learner() -> None:
    """Only `learner.chunks` advances a learner, and only `train` loops over its chunks."""
    calls = re.compile(r"\.advance\(|\bchunks\(|\.train\(\)|engine\.train\(")
    found = {
        path.relative_to(HOME).as_posix()
        for path in HOME.rglob("*.py")
        if "deploy" not in path.relative_to(HOME).parts  # its nodes drive devices, not engines
        and calls.search(re.sub(r">>> .*", "", path.read_text("utf-8")))
    }
    assert {Path(name).name for name in found} <= {
        "engine.py", "local.py", "programs.py", "learner.py",
        "sweep.py",  # times one chunk, and throws it away
    }, found  # fmt: skip


SIZES = [[5, 10, 25], [20, 20, 20]]  # samples of the devices, for each seed


@pytest.fixture(scope="module")
def trained() -> tuple[Engine, Any, Trace]:
    rng = np.random.default_rng(0)
    from joulemesh.data import from_arrays

    x, y = rng.normal(size=(90, 4)), np.tile(np.arange(3), 30)
    data = from_arrays(x[:60], y[:60], x[60:], y[60:])
    ring = 0.5 * (np.eye(3) + np.roll(np.eye(3), 1, axis=1))
    schedule = Schedule(np.full((4, 3), 2), mixing=ring[None])
    engine = Engine(
        build("logistic", data.shape, 3),
        data,
        [
            partition(data.y_train, 3, kind="iid", seed=seed, sizes=sizes)
            for seed, sizes in enumerate(SIZES)
        ],
        schedule,
        Options(chunk_iterations=2, eval_every=2, weights="samples"),
        (0, 1),
    )
    state, traces = train(engine)
    return engine, state, Trace.join(traces)


def test_a_state_is_evaluated_as_training_evaluates_it(trained: Any) -> None:
    engine, state, trace = trained
    found = engine.evaluate(state)
    for name in ("iteration", "train_loss", "test_loss", "test_accuracy", "consensus"):
        np.testing.assert_array_equal(getattr(found, name), getattr(trace.last, name))
    np.testing.assert_array_equal(found.device_accuracy_min, trace.last.device_accuracy_min)
    assert np.isnan(found.drift).all()


def test_the_mean_model_is_weighed_by_each_seeds_samples(trained: Any) -> None:
    engine, state, _ = trained
    params, mean = engine.params(state), engine.mean_params(state)
    for name, leaf in params.items():
        for seed, sizes in enumerate(SIZES):
            expected = np.average(leaf[seed], axis=0, weights=sizes)
            np.testing.assert_allclose(mean[name][seed], expected, rtol=1e-5, atol=1e-7)


def test_a_saved_state_is_loaded_with_the_same_bits(trained: Any) -> None:
    engine, state, _ = trained
    arrays = engine.save(state)
    shapes = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    assert shapes == dict(engine.saved_shapes())
    again = engine.load(arrays)
    assert int(again.iteration) == int(state.iteration)
    for a, b in zip(*(jax.tree.leaves(engine.params(s)) for s in (state, again)), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(ValueError, match="not those of this run"):
        engine.load({name: arrays[name] for name in list(arrays)[1:]})


@pytest.mark.parametrize("at", [0, 6])
def test_training_ends_its_chunk_before_it_is_interrupted(at: int) -> None:
    """Nothing is being computed any more when a program is left, whoever trains."""
    ended = []

    class Stopped(Counter):
        def advance(self, state: Any) -> Any:
            if state.iteration == at:
                os.kill(os.getpid(), signal.SIGINT)
            found = super().advance(state)
            ended.append(found)
            return found

    seen: list[TrainedChunk[Any]] = []
    with pytest.raises(KeyboardInterrupt):
        train(driven(Stopped()), [seen.append])
    assert len(ended) == len(seen) == at // 3 + 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
