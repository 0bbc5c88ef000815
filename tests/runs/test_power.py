"""A power cut at any moment of a run: resumed, it ends with the same bits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import joulemesh
from joulemesh.files import using
from joulemesh.files.verify import verified
from tests.power import RecordingDisk, after_a_cut

TINY = {
    "devices.count": 4,
    "plan.iterations": 8,
    "training.model": "logistic",
    "training.chunk_iterations": 2,
    "training.eval_every": 1,
}
SAME = ("model.safetensors", "metrics.csv", "ledger.csv", "scenario.toml")


@pytest.fixture(scope="module")
def scenario() -> joulemesh.Scenario:
    return joulemesh.Scenario.preset("default").override(TINY)


@pytest.fixture(scope="module")
def recorded(scenario, tmp_path_factory):
    """A run with a checkpoint after every chunk, and every step of its writing."""
    folder = tmp_path_factory.mktemp("power") / "run"
    patch = pytest.MonkeyPatch()
    patch.setattr("joulemesh.runs.run._SAVE_EVERY_S", 0.0)
    with using(RecordingDisk(folder)) as disk:
        joulemesh.run(scenario, out=folder)
    patch.undo()
    return folder, disk.steps


def cut_and_resume(scenario, recorded, at: int, how: str, seed: int, place: Path) -> None:
    folder, steps = recorded
    place.mkdir()
    after_a_cut(steps, at, random.Random(seed), place, how)
    joulemesh.run(scenario, out=place, resume=True)
    for name in SAME:
        assert (place / name).read_bytes() == (folder / name).read_bytes(), (at, how, seed, name)
    found = verified(place)
    assert found.intact, found.lines()
    assert not found.strangers


def test_the_recording_is_whole(recorded, tmp_path) -> None:
    folder, steps = recorded
    after_a_cut(steps, len(steps), random.Random(0), tmp_path, "none")
    kept = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    there = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    there.pop(Path(".lock"))
    assert kept == there  # nothing that was written waits for a sync at the end


@pytest.mark.parametrize("case", range(24))
def test_a_power_cut_loses_nothing(scenario, recorded, case, tmp_path) -> None:
    rng = random.Random(case)
    at = rng.randint(0, len(recorded[1]))
    how = ("none", "some", "all")[case % 3]
    cut_and_resume(scenario, recorded, at, how, case, tmp_path / "cut")


@pytest.mark.slow
@pytest.mark.parametrize("portion", range(10))
def test_a_thousand_power_cuts(scenario, recorded, portion, tmp_path) -> None:
    steps = len(recorded[1])
    for case in range(100 * portion, 100 * portion + 100):
        how = ("none", "some", "some", "all")[case % 4]
        cut_and_resume(scenario, recorded, case * 7 % (steps + 1), how, case, tmp_path / str(case))
