"""Models for other tools: the very parameters, a card whose lines run, a graph that agrees."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.data import from_arrays, load
from joulemesh.models import build
from joulemesh.study.export import export_model, onnx_graph, onnx_logits, wilson

SCENARIO = joulemesh.Scenario.preset("adaptive").override(
    {
        "devices.count": 5,
        "plan.iterations": 4,
        "plan.aggregation": "metropolis",  # devices' own models differ
        "training.hidden": [6],
    }
)
TORCH = """
import torch

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                         torch.nn.Linear(72, 10))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[joulemesh.Result, Path]:
    folder = tmp_path_factory.mktemp("exported") / "run"
    return joulemesh.run(SCENARIO, seeds=2, out=folder), folder


Run = tuple[joulemesh.Result, Path]


def lines_of(card: str) -> str:
    return re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]  # type: ignore[index]


def logits_by_the_card(folder: Path, x: Any) -> Any:
    """What the card's own lines compute."""
    here = Path.cwd()
    os.chdir(folder)
    try:
        names: dict[str, Any] = {"x": x}
        exec(lines_of(Path("README.md").read_text("utf-8")), names)
        return np.asarray(names["logits"])
    finally:
        os.chdir(here)


def test_the_lines_of_the_card_give_the_runs_accuracy(run: Run, tmp_path: Path) -> None:
    result, folder = run
    made = export_model(folder, tmp_path / "model", seed=1)
    digits = load("digits")
    logits = logits_by_the_card(made, digits.x_test)
    accuracy = float((logits.argmax(axis=1) == digits.y_test).mean())
    assert accuracy == pytest.approx(float(result.accuracy[-1, 1]), abs=1e-6)
    low, high = wilson(round(accuracy * 360), 360)
    card = (made / "README.md").read_text("utf-8")
    assert f"| {accuracy:.4f} (95 % interval {low:.4f} to {high:.4f}, Wilson’s, 360" in card
    assert "seed 1" in card
    for name, value in load_file(made / "model.safetensors").items():
        np.testing.assert_array_equal(value, result.params[name][1])


def test_the_devices_models_average_to_the_mean(run: Run, tmp_path: Path) -> None:
    result, folder = run
    own = [
        load_file(export_model(folder, tmp_path / str(k), device=k) / "model.safetensors")
        for k in range(5)
    ]
    assert not np.array_equal(own[0]["dense0_w"], own[1]["dense0_w"])
    for name in own[0]:
        mean = np.mean([one[name] for one in own], axis=0)
        np.testing.assert_allclose(mean, result.params[name][0], atol=1e-6)
    about = json.loads((tmp_path / "2" / "config.json").read_text("utf-8"))
    assert (about["device"], about["seed"], about["hidden"]) == (2, 0, [6])


def test_refusals_name_the_figure_and_write_nothing(run: Run, tmp_path: Path) -> None:
    _, folder = run
    asked: list[tuple[dict[str, Any], str]] = [
        ({"seed": 9}, r"has no seed 9: use one of 0, 1"),
        ({"device": 5}, r"--device 5: devices are 0..4"),
        ({"format": "pickle"}, r"format 'pickle' is unknown: use safetensors or onnx"),
    ]
    for options, words in asked:
        with pytest.raises(ScenarioError, match=words):
            export_model(folder, tmp_path / "model", **options)
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    content = bytearray((damaged / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (damaged / "model.safetensors").write_bytes(content)
    with pytest.raises(ScenarioError, match=r"model.safetensors is damaged"):
        export_model(damaged, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]


@pytest.mark.slow
def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    class StopError(Exception):
        pass

    def stop(_: Any) -> None:
        raise StopError

    shorter = SCENARIO.override({"training.chunk_iterations": 2})
    with pytest.raises(StopError):
        joulemesh.run(shorter, out=tmp_path / "run", on_progress=stop)
    with pytest.raises(ScenarioError, match=r"is not finished \(2 iterations are done\): go on"):
        export_model(tmp_path / "run", tmp_path / "model")


@pytest.mark.slow
def test_a_model_given_in_memory_has_its_parameters_alone(tmp_path: Path) -> None:
    pair = (lambda key: {"w": jnp.zeros((64, 10))}, lambda p, x: x.reshape(len(x), -1) @ p["w"])
    result = joulemesh.run(SCENARIO, model=pair, out=tmp_path / "run")
    made = export_model(tmp_path / "run", tmp_path / "model")
    np.testing.assert_array_equal(load_file(made / "model.safetensors")["w"], result.params["w"])
    assert (
        f"| {float(result.accuracy[-1]):.4g} (mean model, 360 samples)"
        in (made / "README.md").read_text()
    )
    with pytest.raises(ScenarioError, match=r"custom was given in memory.*use --format safetens"):
        export_model(tmp_path / "run", tmp_path / "graph", format="onnx")


# ONNX ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
@pytest.mark.parametrize("pixels", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_graph_of_every_built_in_model_agrees(name: str, pixels: bool) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    rng = np.random.default_rng(1)
    shape = (23, 26, 3) if name == "cnn" else (4, 5, 2)
    x = rng.random((9, *shape), np.float32)
    x = (x * 255).astype(np.uint8) if pixels else x
    data = from_arrays(x, np.arange(9) % 4, x, np.arange(9) % 4)
    model = build(name, data.shape, 4, hidden=(7, 5))
    params = jax.tree.map(np.asarray, model.init(jax.random.key(3)))
    params = {n: rng.normal(size=p.shape).astype(np.float32) / 8 for n, p in params.items()}
    content = onnx_graph(name, params, data)
    wanted = np.asarray(model.apply(params, data.normalise(x)))
    np.testing.assert_allclose(onnx_logits(content, x), wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("device", [None, 1])
def test_a_graph_in_the_runtime_that_the_card_names(
    run: Run, tmp_path: Path, device: int | None
) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    plain = export_model(run[1], tmp_path / "plain", device=device)
    graph = export_model(run[1], tmp_path / "graph", device=device, format="onnx")
    x = load("digits").x_test
    np.testing.assert_allclose(
        logits_by_the_card(graph, x), logits_by_the_card(plain, x), atol=1e-5
    )


@pytest.mark.slow
def test_a_module_of_pytorch(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(TORCH)
    scenario = SCENARIO.override({"training.model": f"{tmp_path / 'net.py'}:Net"})
    result = joulemesh.run(scenario, out=tmp_path / "run")
    made = export_model(tmp_path / "run", tmp_path / "model")
    for name, value in load_file(made / "model.safetensors").items():
        np.testing.assert_array_equal(value, result.params[name])
    assert f"| {float(result.accuracy[-1]):.4f} (95 %" in (made / "README.md").read_text("utf-8")
    own = export_model(tmp_path / "run", tmp_path / "own", device=1)
    assert set(load_file(own / "model.safetensors")) == set(result.params)
    pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")
    graph = export_model(tmp_path / "run", tmp_path / "graph", format="onnx")
    assert (graph / "model.onnx").stat().st_size > 1000
