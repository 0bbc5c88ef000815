"""The exported Flower app: the scenario's own shards, rounds, batches and model, with a server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.data import load_for
from joulemesh.study.flower import export_flower, server_rounds
from joulemesh.training.prepare import partitions
from joulemesh.training.tensors import named_leaves

FLOWER = "JOULEMESH_FLWR_PYTHON"  # an interpreter that has flwr[simulation], JAX and optax

SCENARIO = joulemesh.Scenario.preset("adaptive").override(
    {"devices.count": 4, "plan.iterations": 5, "training.hidden": [8], "training.eval_every": 2}
)

FLAX = """
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(6)(x.reshape((len(x), -1)))
        return nn.Dense(10)(nn.relu(x))
"""
TORCH = """
import torch

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                         torch.nn.Linear(72, 10))
"""


@contextmanager
def imported(app: Path) -> Iterator[Any]:
    """The app's own code, without Flower's."""
    sys.path.insert(0, str(app))
    try:
        from joulemesh_app import task  # type: ignore[import-not-found]

        yield task
    finally:
        sys.path.remove(str(app))
        for name in [name for name in sys.modules if name.split(".")[0] == "joulemesh_app"]:
            del sys.modules[name]


def played(app: Path) -> tuple[dict[str, Any], dict[str, float]]:
    """The mean model after all rounds of the server, and its figures, without Flower."""
    config = tomllib.loads((app / "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"]
    config = config["config"]
    with imported(app) as task:
        settings = task.Settings.of(config)
        shards = [task.load_shard(settings, device) for device in range(config["devices"])]
        arrays = task.load_arrays(app / "data" / "initial.npz")
        memories: list[list[Any]] = [[] for _ in shards]
        for number in range(1, config["num-server-rounds"] + 1):
            sent = []
            for k, shard in enumerate(shards):
                made, memories[k] = task.train(settings, shard, number, arrays, memories[k])
                sent.append(made)
            weights = np.array([shard.weight(number, settings.weights) for shard in shards])
            shares = weights / weights.sum()
            arrays = {
                name: sum(w * one[name] for w, one in zip(shares, sent, strict=True))
                for name in arrays
            }
        tested = task.Samples.of(task.load_arrays(app / "data" / "test.npz"), "test", "float32")
        return arrays, task.test(settings, arrays, tested)


def test_shards_and_rounds_are_the_plans(tmp_path: Path) -> None:
    app = export_flower(SCENARIO, tmp_path / "app")
    plan, data = joulemesh.plan(SCENARIO), load_for(SCENARIO)
    (held,) = partitions(SCENARIO, data, (SCENARIO.seed,), plan.work.round_samples)
    assert len(set(plan.rounds[0])) > 1  # devices differ, or the test would not see a mix-up
    for device in range(4):
        with np.load(app / "data" / f"device-{device:03d}.npz", allow_pickle=False) as file:
            own = held.indices(device)
            np.testing.assert_array_equal(file["x_train"], data.x_train[own])
            np.testing.assert_array_equal(file["y_train"], data.y_train[own])
            np.testing.assert_array_equal(file["rounds"], plan.rounds[:, device])
            np.testing.assert_array_equal(file["ends"], [1, 2, 3, 4, 5])
    assert len(list((app / "data").iterdir())) == 6
    assert joulemesh.Scenario.load(app / "scenario.toml").to_toml() == SCENARIO.to_toml()


def require_same(app: Path, scenario: joulemesh.Scenario) -> None:
    """The app and the simulation end with the same parameters, up to rounding."""
    arrays, figures = played(app)
    result = joulemesh.run(scenario)
    wanted = named_leaves(result.params)
    assert set(arrays) == set(wanted)
    for name, value in wanted.items():
        np.testing.assert_allclose(arrays[name], value, atol=2e-5, err_msg=name)
    assert figures["accuracy"] == pytest.approx(float(result.accuracy[-1]), abs=2e-3)
    assert figures["loss"] == pytest.approx(float(result.loss[-1]), rel=1e-3)


@pytest.mark.slow
def test_the_app_ends_with_the_simulations_parameters(tmp_path: Path) -> None:
    require_same(export_flower(SCENARIO, tmp_path / "app"), SCENARIO)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"training.model": "logistic", "training.l2": 0.01, "training.weights": "samples"},
        {"training.local_round": "epoch", "training.batch_size": 100, "budget.deadline_s": 0.5},
        {"training.optimizer": "adam", "training.learning_rate": 0.01},
        {"training.precision": "float64"},
        {"plan.exchange": {"between": "none", "every": 3, "final": True}, "plan.iterations": 7},
    ],
    ids=["logistic", "epoch", "adam", "float64", "skipped exchanges"],
)
def test_it_does_so_in_every_setting(tmp_path: Path, changes: dict[str, Any]) -> None:
    scenario = SCENARIO.override(changes)
    require_same(export_flower(scenario, tmp_path / "app"), scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "needs"), [(FLAX, "flax"), (TORCH, "torch")])
def test_a_model_of_ones_own_travels(tmp_path: Path, text: str, needs: str) -> None:
    pytest.importorskip(needs)
    (tmp_path / "mine.py").write_text(text)
    scenario = SCENARIO.override({"training.model": f"{tmp_path / 'mine.py'}:Net"})
    app = export_flower(scenario, tmp_path / "app")
    (tmp_path / "mine.py").rename(tmp_path / "gone.py")
    arrays, _ = played(app)
    (tmp_path / "gone.py").rename(tmp_path / "mine.py")
    wanted = named_leaves(joulemesh.run(scenario).params)
    for name, value in wanted.items():
        np.testing.assert_allclose(arrays[name], value, atol=2e-5, err_msg=name)


def test_an_absent_device_weighs_nothing(tmp_path: Path) -> None:
    app = export_flower(SCENARIO, tmp_path / "app")
    with imported(app) as task:
        shard = task.Shard(
            task.Samples(np.zeros((7, 1)), np.zeros(7), 1, 0), 0,
            np.array([1, 0, 2]), np.array([True, False, True]), np.array([1, 2, 3]),
        )  # fmt: skip
        assert [shard.weight(k, "samples") for k in (1, 2, 3)] == [7.0, 0.0, 7.0]
        longer = task.Shard(shard.samples, 0, shard.rounds, shard.active, np.array([2, 3]))
        assert [list(longer.iterations(k)) for k in (1, 2)] == [[0, 1], [2]]


def test_nothing_is_written_where_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine.txt").write_text("mine")
    with pytest.raises(ScenarioError, match=r"kept is not empty \(it has mine.txt\); name a new"):
        export_flower(SCENARIO, tmp_path / "kept")
    other = SCENARIO.override({"training.dataset": "diabetes", "training.loss": "mse"})
    with pytest.raises(ScenarioError, match=r"training.loss = 'mse' on diabetes is not exported"):
        export_flower(other, tmp_path / "numbers")
    with pytest.raises(JoulemeshError):
        export_flower(SCENARIO.override({"budget.energy_j": 1e-9}), tmp_path / "poor")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


# In Flower itself ------------------------------------------------------------------------------


def _free_port() -> int:
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def superlink(python: Path, home: Path) -> Iterator[dict[str, str]]:
    """Flower's local server, with a home of its own; the environment to use it in."""
    port, home = _free_port(), home / "flower"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "own"\n\n[superlink.own]\naddress = "127.0.0.1:{port}"\n'
        "insecure = true\n"
    )
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    command = [
        str(python.with_name("flower-superlink")), "--insecure", "--simulation", "--isolation",
        "subprocess", "--disable-runtime-dependency-installation", "--host", "127.0.0.1", "--port",
        str(port),
    ]  # fmt: skip
    with (home / "log.txt").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        for _ in range(300):
            with closing(socket.socket()) as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, (home / "log.txt").read_text()
            time.sleep(0.1)
        yield environment
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.skipif(
    not os.environ.get(FLOWER),
    reason=f"{FLOWER} names no interpreter with flwr[simulation], jax and optax",
)
def test_the_rounds_run_in_flowers_simulation(tmp_path: Path) -> None:
    app = export_flower(SCENARIO, tmp_path / "app")
    python = Path(os.environ[FLOWER])
    with superlink(python, tmp_path) as environment:
        command = [str(python.with_name("flwr")), "run", ".", "--stream"]
        asked = "num-supernodes=4 client-resources-num-cpus=1"
        done = subprocess.run(
            [*command, "--federation-config", asked],
            cwd=app, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    record = json.loads((app / "results" / "history.json").read_text("utf-8"))
    plan, result = joulemesh.plan(SCENARIO), joulemesh.run(SCENARIO)
    assert record["rounds"] == plan.rounds.tolist()
    assert len(record["rounds"]) == len(server_rounds(plan))
    with np.load(app / "results" / "final.npz") as file:
        for name, value in named_leaves(result.params).items():
            np.testing.assert_allclose(file[name], value, atol=2e-5, err_msg=name)
    last = record["history"][-1]
    assert last["round"] == 5
    assert last["accuracy"] == pytest.approx(float(result.accuracy[-1]), abs=2e-3)
