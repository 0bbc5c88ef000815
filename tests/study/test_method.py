"""Any method as a run of its own."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Result, Scenario, ScenarioError
from joulemesh.base.files import verified
from joulemesh.cli.main import main
from joulemesh.methods.setting import MethodAccount

FIELDS = {
    "devices.count": 4,
    "plan.iterations": 8,
    "training.model": "logistic",
    "training.chunk_iterations": 2,
    "training.eval_every": 2,
}
PENS = "pens:phase1=2"
SAME = ("metrics.csv", "ledger.csv", "model.safetensors", "scenario.toml", "plan.npz")


class StopError(Exception):
    """Stands for whatever kills a run."""


@pytest.fixture(scope="module")
def tiny() -> Scenario:
    return Scenario.preset("adaptive").override(FIELDS)


@pytest.fixture(scope="module")
def pens(tiny: Scenario, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("pens") / "run"
    options: dict[str, Any] = {"method": PENS, "equal": "iterations", "seeds": 2}
    return joulemesh.run(tiny, out=folder, **options), folder


def test_a_method_alone_is_what_it_is_in_a_comparison(tiny: Scenario, tmp_path: Path) -> None:
    result = joulemesh.run(tiny, method="fixed:2", seeds=2)
    entry = joulemesh.compare(tiny, ["fixed:2"], seeds=2, cache=tmp_path).entries[0]
    assert isinstance(result.account, MethodAccount)
    assert (result.account.rounds == 2).all()
    assert result.iteration[-1] == entry.iteration[-1]
    np.testing.assert_array_equal(result.final.test_loss[0], entry.final["test_loss"])
    np.testing.assert_allclose(result.account.spent_j, entry.spent_j[0], rtol=1e-12)
    np.testing.assert_allclose(result.energy_j[-1], entry.energy_j[-1, 0], rtol=1e-12)
    assert (result.account.margin_j >= 0).all()
    with pytest.raises(ScenarioError, match=r"a run of fixed:2 has no plan"):
        _ = result.plan


def test_what_training_decides_is_priced_by_what_was_sent(
    tiny: Scenario, pens: tuple[Result, Path], tmp_path: Path
) -> None:
    result, folder = pens
    terms: dict[str, Any] = {"equal": "iterations", "seeds": 2, "cache": tmp_path}
    entry = joulemesh.compare(tiny, [PENS], **terms).entries[0]
    np.testing.assert_allclose(result.energy_j[-1], entry.energy_j[-1], rtol=1e-12)
    np.testing.assert_allclose(result.account.spent_j, entry.spent_j.mean(axis=0), rtol=1e-12)
    assert result.energy_j[-1, 0] != result.energy_j[-1, 1]  # each seed asked others
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    for s in (0, 1):
        mine = [float(row["energy_j"]) for row in rows if row["seed"] == str(s)]
        np.testing.assert_allclose(mine, result.energy_j[:, s], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(4, 6), pytest.param((2,), marks=pytest.mark.slow)])
def test_a_stopped_run_of_a_method_goes_on_to_the_same_bits(
    tiny: Scenario,
    pens: tuple[Result, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stops: tuple[int, ...],
) -> None:
    monkeypatch.setattr("joulemesh.study.run.SAVE_EVERY_S", 0.0)
    _, whole = pens
    folder = tmp_path / "run"
    told: list[dict[str, Any]] = []
    start: dict[str, Any] = {"method": PENS, "equal": "iterations"}
    for at in stops:

        def stop(step: Any, at: int = at) -> None:
            if step.completed == at:
                raise StopError

        listening: dict[str, Any] = {"on_progress": stop, "on_metrics": told.append}
        with pytest.raises(StopError):
            joulemesh.run(tiny, out=folder, resume=True, seeds=2, **start, **listening)
        start = {}  # the folder knows
    result = joulemesh.run(tiny, out=folder, resume=True, seeds=2, on_metrics=told.append)
    assert result.method == PENS
    for name in SAME:
        assert (folder / name).read_bytes() == (whole / name).read_bytes(), name
    rows = [
        {k: float(v) for k, v in row.items()}
        for row in csv.DictReader((folder / "metrics.csv").open())
    ]
    assert [{k: float(v) for k, v in row.items()} for row in told] == rows
    assert verified(folder).intact
    again = joulemesh.run(tiny, out=folder, resume=True, seeds=2)
    np.testing.assert_array_equal(again.energy_j, result.energy_j)
    np.testing.assert_array_equal(again.account.spent_j, result.account.spent_j)


@pytest.mark.slow
def test_a_folder_keeps_to_its_method(tiny: Scenario, pens: tuple[Result, Path]) -> None:
    _, folder = pens
    with pytest.raises(ScenarioError, match="method was 'pens:phase1=2' and is 'fixed:2'"):
        joulemesh.run(tiny, out=folder, resume=True, seeds=2, method="fixed:2")
    with pytest.raises(ScenarioError, match="method was 'pens:phase1=2' and is None"):
        joulemesh.run(tiny, out=folder, resume=True, seeds=2, method="adaptive")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "fixd:2"}, "unknown"),
        ({"equal": "time"}, "needs a method"),
        ({"method": "fixed:2", "equal": "money"}, "unknown"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    tiny: Scenario, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        joulemesh.run(tiny, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_command_takes_a_method_and_resumes_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def order(*words: str) -> str:
        monkeypatch.setattr(
            "sys.argv",
            ["joulemesh", "run", "--preset", "adaptive", "--out", str(tmp_path / "run"), *words],
        )
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code, capsys.readouterr().err
        return capsys.readouterr().out

    changes = [word for name, value in FIELDS.items() for word in ("--set", f"{name}={value}")]
    found = json.loads(order("--method", "d-psgd", "--json", *changes))
    assert (found["method"], found["equal"]) == ("d-psgd", "batteries")
    assert "is finished; nothing to do" in order("--resume")
