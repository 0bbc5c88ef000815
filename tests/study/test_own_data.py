"""Runs and comparisons on the user's own tables, from a file or a data frame to the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.data import load_for
from joulemesh.methods import Setting

TINY = {
    "devices.count": 3,
    "plan.iterations": 6,
    "training.model": "logistic",
    "training.eval_every": 3,
    "training.batch_size": 8,
}


def table(folder: Path, scale: float = 1.0) -> str:
    rng = np.random.default_rng(0)
    lines = ["a,b,site,label"]
    for k in range(120):
        kind = k % 2
        a, b = scale * (rng.normal() + kind), rng.normal()
        lines.append(f"{a!r},{b!r},{('east', 'north', 'west')[k % 3]},{('kelp', 'sand')[kind]}")
    path = folder / "mine.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def scenario(dataset: str, **more: Any) -> joulemesh.Scenario:
    own = {"training.dataset": dataset, "training.partition": "column:site"}
    return joulemesh.Scenario.preset("adaptive").override({**TINY, **own, **more})


@pytest.mark.slow
def test_a_frame_a_path_and_the_scenario_give_the_same_bits(tmp_path: Path) -> None:
    import pandas as pd

    path = table(tmp_path)
    asked = scenario(path)
    plain = asked.override({"training.dataset": "digits"})
    from_scenario = joulemesh.run(asked)
    from_path = joulemesh.run(plain, data=path)
    from_frame = joulemesh.run(plain, data=pd.read_csv(path))
    for other in (from_path, from_frame):
        np.testing.assert_array_equal(other.loss, from_scenario.loss)
        np.testing.assert_array_equal(other.params["w"], from_scenario.params["w"])


@pytest.mark.slow
def test_rounds_of_an_epoch_are_priced_by_what_each_device_holds(tmp_path: Path) -> None:
    path = Path(table(tmp_path))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines, *(line for line in lines[1:] if ",west," in line)]) + "\n")
    epochs = {"training.local_round": "epoch", "budget.energy_j": 50.0, "budget.deadline_s": 5.0}
    asked = scenario(str(path), **epochs)
    assert joulemesh.plan(asked).work.round_samples.tolist() == [32, 32, 64]
    result = joulemesh.run(asked)
    assert result.partitions[0].sizes.tolist() == [32, 32, 64]
    own = joulemesh.run(asked.override({"training.dataset": "digits"}), data=str(path))
    assert own.plan.work.round_samples.tolist() == [32, 32, 64]


def test_kept_runs_know_who_held_what(tmp_path: Path) -> None:
    path = table(tmp_path)
    devices = tmp_path / "devices.csv"
    devices.write_text("name,cpu_hz\neast,2e9\nnorth,2e9\nwest,2e9\n")
    asked = scenario(path)
    asked = joulemesh.Scenario(
        devices={"table": str(devices)}, training=asked.training, plan={"iterations": 6}
    )
    cache = tmp_path / "kept"

    def computed() -> int:
        return joulemesh.compare(asked, ["adaptive"], seeds=1, cache=cache).computed

    assert (computed(), computed()) == (1, 0)
    devices.write_text("name,cpu_hz\nnorth,2e9\neast,2e9\nwest,2e9\n")
    assert (computed(), computed()) == (1, 0)
    text = Path(path).read_text()
    Path(path).write_text(
        text.replace("east", "up").replace("north", "east").replace("up", "north")
    )
    assert (computed(), computed()) == (1, 0)


def test_methods_are_priced_by_the_data_that_are_given(tmp_path: Path) -> None:
    asked = scenario(table(tmp_path))
    setting = Setting(asked.override({"training.dataset": "digits"}), data=load_for(asked))
    assert setting.train_samples == 96  # not the 1437 of digits
    assert setting.model.parameters == 2 * 2 + 2
