"""The torch learner computes what the engine of JAX and the obvious loop compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Partition, load, partition
from joulemesh.models import build, from_torch
from joulemesh.models.torch_model import is_torch
from joulemesh.training import DivergedError, Engine, Options, Schedule, Trace
from joulemesh.training.schedule import Members

torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.training.torch import steps  # noqa: E402
from joulemesh.training.torch.learner import TorchLearner  # noqa: E402
from tests.training.torch.modules import (  # noqa: E402
    Branching,
    Cnn,
    Dropping,
    Mlp,
    Transformer,
    loop,
)

DIGITS = load("digits")
DEVICES = 4
RING = np.array([[2, 1, 0, 1], [1, 2, 1, 0], [0, 1, 2, 1], [1, 0, 1, 2]]) / 4


def parts(seeds: int) -> list[Partition]:
    return [partition(DIGITS.y_train, DEVICES, kind="dirichlet", seed=s) for s in range(seeds)]


def settings(**changes: Any) -> Options:
    usual: dict[str, Any] = {"precision": "float64", "eval_every": 3, "chunk_iterations": 4}
    return Options(**{**usual, **changes})


def schedules() -> dict[str, Schedule]:
    rounds = np.random.default_rng(0).integers(0, 5, (7, DEVICES))
    active = np.ones((7, DEVICES), bool)
    active[4:, 2] = False
    away = np.ones((7, DEVICES), bool)
    away[3:5, 2] = False
    some = np.arange(7) % 3 != 1
    return {
        "mean": Schedule(rounds),
        "skipped": Schedule(rounds, exchanged=some),
        "departed": Schedule(rounds * active, active),
        "dense": Schedule(rounds * active, active, mixing=RING[None]),
        "sparse": Schedule(rounds * active, active, mixing=sparse.csr_array(RING), mixing_rounds=2),
        "patterned": Schedule(rounds, mixing=sparse.csr_array(RING), exact=some),
        "returned": Schedule(rounds * away, away, gifts=((5, 2, 0),)),
        "drawn": Schedule(rounds, mixing=lambda t: RING if t % 2 else np.eye(DEVICES)),
    }


class Same:
    """An MLP of PyTorch that begins with the parameters of the built-in one."""

    def __init__(self, engine: Engine) -> None:
        self.model = from_torch(Mlp)
        object.__setattr__(self.model, "initial", lambda seed: _moved(engine.initial(seed)))


def _moved(params: Any) -> dict[str, Any]:
    pairs = {"a": "dense0", "b": "dense1"}
    made = {}
    for mine, theirs in pairs.items():
        made[f"{mine}.weight"] = torch.as_tensor(np.array(params[f"{theirs}_w"]).T.copy())
        made[f"{mine}.bias"] = torch.as_tensor(np.array(params[f"{theirs}_b"]))
    return made


def both(schedule: Schedule, options: Options, seeds: int = 2) -> tuple[Engine, TorchLearner]:
    model, held = build("mlp", DIGITS.shape, 10, (16,)), parts(seeds)
    engine = Engine(model, DIGITS, held, schedule, options, range(seeds))
    same = Same(engine).model
    return engine, TorchLearner(same, DIGITS, held, schedule, options, range(seeds))


def agree(engine: Engine, learner: TorchLearner) -> None:
    states, traces = zip(*engine.train(), strict=True)
    mine, found = zip(*learner.train(), strict=True)
    wanted, given = engine.params(states[-1]), learner.params(mine[-1])
    for name, part in (("a", "dense0"), ("b", "dense1")):
        swapped = np.swapaxes(given[f"{name}.weight"], 2, 3)
        np.testing.assert_allclose(swapped, wanted[f"{part}_w"], atol=1e-10, rtol=0)
    one, other = Trace.join(traces), Trace.join(found)
    for name in (*one._columns(), *one.own):
        np.testing.assert_allclose(other.curve(name), one.curve(name), atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", schedules())
def test_every_kind_of_mixing_gives_the_engines_numbers(name: str) -> None:
    agree(*both(schedules()[name], settings(metrics=("brier",))))


@pytest.mark.parametrize("size", [1, 3 * 8 * 2410])
def test_devices_that_are_trained_in_groups_give_the_engines_numbers(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "_GROUP_BYTES", size)  # one row at a time, or a few
    for schedule in (schedules()["mean"], Schedule(np.full((4, DEVICES), 2))):
        agree(*both(schedule, settings(optimizer="adam")))


@pytest.mark.parametrize("local_round", ["step", "epoch"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_optimisers_and_rounds_give_the_engines_numbers(local_round: Any, optimizer: str) -> None:
    rounds = np.array([[1, 0, 2, 1], [2, 1, 1, 0], [0, 0, 1, 1]])
    options = settings(local_round=local_round, optimizer=optimizer, weights="samples")
    agree(*both(Schedule(rounds), options))


@pytest.mark.parametrize("kind", [Mlp, Cnn, Transformer])
@pytest.mark.parametrize("name", ["mean", "dense", "parts"])
def test_modules_give_the_numbers_of_the_obvious_loop(kind: Any, name: str) -> None:
    rounds, halves = schedules()["mean"].rounds[:3], np.stack([RING, np.eye(DEVICES)])
    mean = np.full((DEVICES, DEVICES), 1 / DEVICES)
    mixing: dict[str, Any] = {"mean": "mean", "dense": RING[None], "parts": halves[None]}
    schedule = Schedule(rounds, mixing=mixing[name], parts=2 if name == "parts" else 1)
    learner = TorchLearner(from_torch(kind), DIGITS, parts(1), schedule, settings(), (3,))
    matrices = {"mean": mean[None], "dense": RING[None], "parts": halves}[name]

    def mixed(t: int, before: Any) -> Any:
        cuts = np.array_split(before, len(matrices), axis=1)
        return np.hstack([one @ part for one, part in zip(matrices, cuts, strict=True)])

    wanted = loop(learner, mixed)
    *_, (state, _) = learner.train()
    given = learner.params(state)
    for i, params in enumerate(wanted):
        for leaf, value in params.items():
            np.testing.assert_allclose(given[leaf][0, i], value, atol=1e-10, rtol=0)


def test_members_train_with_their_own_rounds_and_rates() -> None:
    one, two = Schedule(np.full((2, DEVICES), 3)), Schedule(np.full((4, DEVICES), 1))
    members = Members.of([one, two], [0.1, 0.3], seeds=1)
    held = parts(1)
    together = TorchLearner(from_torch(Mlp), DIGITS, held * 2, members, settings(), (0, 0))
    *_, (state, _) = together.train()
    for number, (schedule, rate) in enumerate(((one, 0.1), (two, 0.3))):
        options = settings(learning_rate=rate)
        alone = TorchLearner(from_torch(Mlp), DIGITS, held, schedule, options, (0,))
        *_, (own, _) = alone.train()
        for name, leaf in alone.mean_params(own).items():
            np.testing.assert_allclose(together.mean_params(state)[name][number], leaf, atol=1e-12)


def test_saved_in_the_middle_and_loaded_it_ends_with_the_same_bits() -> None:
    def learner() -> TorchLearner:
        options = settings(optimizer="adam", precision="float32")
        return TorchLearner(
            from_torch(Mlp), DIGITS, parts(2), schedules()["dense"], options, (0, 1)
        )

    *_, (wanted, _) = learner().train()
    first = learner()
    state, _ = first.advance(first.begin())
    saved = first.save(state)
    assert {name: (one.shape, one.dtype) for name, one in saved.items()} == first.saved_shapes()
    again = learner()
    *_, (given, _) = again.train(again.load(saved))
    for name, leaf in learner().params(wanted).items():
        np.testing.assert_array_equal(again.params(given)[name], leaf)


@pytest.mark.parametrize("kind", [Dropping, Branching])
def test_what_vmap_cannot_trace_is_trained_one_by_one_and_said(kind: Any, caplog: Any) -> None:
    def trained() -> dict[str, Any]:
        learner = TorchLearner(
            from_torch(kind), DIGITS, parts(1), Schedule(np.full((2, DEVICES), 2)), settings(), (0,)
        )
        assert not learner.together
        *_, (state, _) = learner.train()
        return learner.params(state)

    one, other = trained(), trained()
    assert f"cannot trace {kind.__name__}" in caplog.text
    assert "one by one" in caplog.text
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_running_statistics_are_refused_with_what_to_use() -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64))
    with pytest.raises(ScenarioError, match=r"Sequential\.1 is a BatchNorm1d .* use GroupNorm"):
        from_torch(module)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (torch.nn.Linear(64, 10), r"gives \(2, 1, 8, 10\)|does not accept samples"),
        (torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 7)), r"not \(2, 10\)"),
        (torch.nn.Flatten(), "no parameters"),
    ],
)
def test_a_module_that_does_not_fit_the_data_is_refused(module: Any, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        TorchLearner(from_torch(module), DIGITS, parts(1), schedules()["mean"], settings(), (0,))


def test_an_optimiser_that_torch_has_not_here_is_refused() -> None:
    with pytest.raises(ScenarioError, match="use sgd, adam, adamw"):
        TorchLearner(
            from_torch(Mlp), DIGITS, parts(1), schedules()["mean"], settings(optimizer="lion"), (0,)
        )


# Through the front door -------------------------------------------------------------------------

SMALL = joulemesh.Scenario.preset("adaptive").override(
    {"plan.iterations": 8, "devices.count": 4, "training.chunk_iterations": 2}
)


def test_a_module_is_run_killed_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    whole = joulemesh.run(SMALL, model=Mlp, seeds=2)

    def stop(progress: Any) -> None:
        if progress.completed >= 4:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        joulemesh.run(SMALL, model=Mlp, seeds=2, out=tmp_path / "run", on_progress=stop)
    again = joulemesh.run(SMALL, model=Mlp, seeds=2, out=tmp_path / "run", resume=True)
    for name, leaf in whole.params.items():
        np.testing.assert_array_equal(again.params[name], leaf)
    np.testing.assert_array_equal(again.accuracy, whole.accuracy)


def test_another_module_does_not_resume_a_run(tmp_path: Path) -> None:
    joulemesh.run(SMALL, model=Mlp, out=tmp_path / "run")
    with pytest.raises(ScenarioError, match="the model"):
        joulemesh.run(SMALL, model=Transformer, out=tmp_path / "run", resume=True)


def test_modules_are_compared() -> None:
    few = SMALL.override({"plan.iterations": 3, "budget.energy_j": 2.0})
    study = joulemesh.compare(few, ["adaptive", "fixed:2", "pens"], model=Mlp, equal="iterations")
    assert [entry.name for entry in study.entries] == ["adaptive", "fixed:2", "pens"]


def test_a_module_is_named_by_file_on_the_command_line(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from joulemesh.cli.main import app

    source = Path(__file__).with_name("modules.py").read_text()
    (tmp_path / "mine.py").write_text(source)
    (tmp_path / "fleet.toml").write_text('[training]\nmodel = "mine.py:Mlp"\n')
    made = joulemesh.plan(joulemesh.Scenario.load(tmp_path / "fleet.toml"))
    assert made.work.parameters == 64 * 16 + 16 + 16 * 10 + 10
    small = ["--set", "plan.iterations=3", "--set", "devices.count=3"]
    done = CliRunner().invoke(
        app, ["run", str(tmp_path / "fleet.toml"), *small, "--out", str(tmp_path / "run")]
    )
    assert done.exit_code == 0, done.output
    gone = joulemesh.Scenario().override({"training.model": str(tmp_path / "mine.py:Nothing")})
    with pytest.raises(ScenarioError, match=r"has no Nothing; it has .*Mlp"):
        joulemesh.plan(gone)


def test_a_function_without_arguments_that_makes_a_module_is_taken() -> None:
    assert is_torch(lambda: Mlp())
    assert not is_torch(lambda key: Mlp())


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_seed_whose_parameters_are_no_longer_finite_is_named(wrong: float) -> None:
    schedule = Schedule(np.zeros((2, DEVICES), np.int64), exchanged=np.zeros(2, bool))
    seeds = (4, 9)
    learner = TorchLearner(from_torch(Mlp), DIGITS, parts(2), schedule, settings(), seeds)
    state = learner.begin()
    next(iter(state.params.values()))[DEVICES + 1].view(-1)[-1] = wrong  # of the second seed
    with pytest.raises(DivergedError) as found:
        learner.advance(state)
    assert (found.value.seed, found.value.iteration) == (9, 1)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_rounding_equals_that_of_numpy_for_every_exponent_and_at_ties(precision: str) -> None:
    from joulemesh.training.arrays import half

    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = np.sort(every[np.isfinite(every)]).astype(precision)
    ties = (every[1:] + every[:-1]) / 2
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=100_000) * 10.0 ** rng.uniform(-9, 6, 100_000)
    near = np.concatenate([np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)])
    values = np.concatenate([every, ties, near, drawn, [65519.0, 65520.0]]).astype(precision)
    found = half(torch.as_tensor(values)).numpy()
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, values.astype(np.float16).astype(precision))
