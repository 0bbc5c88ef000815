"""A PyTorch module trained on samples on disk: as on those in memory, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.data import Dataset, from_arrays, partition
from joulemesh.data.own import read_disk
from joulemesh.data.reading import Reading
from joulemesh.metrics import loss_named, reported
from joulemesh.models import from_torch
from joulemesh.models.curves import COUNTS, column_names
from joulemesh.training import Options, Schedule
from tests.training.jax.test_pools import DEVICES, LOSSES, NAMES, both, same

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.training.torch.learner import TorchLearner  # noqa: E402

ROUNDS = np.array([[2, 1, 0, 3], [1, 2, 2, 0], [0, 1, 3, 1]])


class Classifies(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Convolves images as the user's own arrays are: channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.d = torch.nn.Conv2d(1, 3, 3), torch.nn.Linear(12, 3)

    def forward(self, x: Any) -> Any:
        return self.d(torch.relu(self.c(x.movedim(3, 1))).flatten(1))


class Predicts(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(5, 4), torch.nn.Linear(4, 1)

    def forward(self, x: Any) -> Any:
        return self.b(torch.tanh(self.a(x)))


class Writes(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.place, self.out = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 6)

    def forward(self, x: Any) -> Any:
        return self.out(self.place(x))


KINDS = {"classes": Classifies, "numbers": Predicts, "tokens": Writes}


def trained(data: Dataset, **changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters and evaluations."""
    loss = LOSSES[data.targets]
    model = from_torch(KINDS[data.targets])
    object.__setattr__(model, "minimised", loss_named(loss))
    usual: dict[str, Any] = {"batch_size": 4, "eval_every": 1, "chunk_iterations": 2, "loss": loss}
    held = [partition(data.strata(), DEVICES, kind="quantity", seed=s) for s in range(2)]
    schedule = Schedule(ROUNDS, mixing=(np.eye(4) / 2 + np.full((4, 4), 1 / 8))[None])
    learner = TorchLearner(model, data, held, schedule, Options(**{**usual, **changes}), (0, 1))
    found = list(learner.train())
    names = (*column_names(*reported(learner.options)), *COUNTS)
    curves = {n: np.concatenate([trace.curve(n) for _, trace in found]) for n in names}
    return learner.params(found[-1][0]), curves


def check_same(memory: Dataset, disk: Dataset, **changes: Any) -> None:
    assert disk.on_disk
    assert not memory.on_disk
    for wanted, given in zip(trained(memory, **changes), trained(disk, **changes), strict=True):
        same(wanted, given)


@pytest.mark.parametrize("kind", ["classes", "numbers", "tokens"])
def test_mapped_arrays_give_the_same_bits(tmp_path: Path, kind: str) -> None:
    check_same(*both(tmp_path, kind))


@pytest.mark.parametrize("changes", [{"local_round": "epoch"}, {"precision": "float64"}])
def test_epochs_and_float64_give_the_same_bits(tmp_path: Path, changes: dict[str, Any]) -> None:
    check_same(*both(tmp_path, "classes"), **changes)


class Sees(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Convolves images whose channels are first."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.d = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(36, 3)

    def forward(self, x: Any) -> Any:
        return self.d(torch.relu(self.c(x)).flatten(1))


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_images_lie_the_same_from_memory_and_from_disk(
    tmp_path: Path, precision: str, monkeypatch: Any
) -> None:
    draw = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for part, count in (("train", 60), ("test", 30)):
        made[f"x_{part}"] = draw.normal(size=(count, 3, 5, 5)).astype(np.float32)
        made[f"y_{part}"] = draw.integers(0, 3, count)
    for name, array in made.items():
        np.save(tmp_path / f"{name}.npy", array)
    monkeypatch.setitem(KINDS, "classes", Sees)
    memory = from_arrays(*(made[name] for name in NAMES))
    check_same(memory, read_disk(tmp_path / "x_train.npy"), precision=precision)


def test_arrow_files_give_the_same_bits(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (the extra parquet)")
    memory, _ = both(tmp_path, "numbers")
    for part in ("train", "test"):
        x, y = (np.load(tmp_path / f"{axis}_{part}.npy") for axis in "xy")
        lists = arrow.FixedSizeListArray.from_arrays(arrow.array(x.reshape(-1)), x.shape[1])
        table = arrow.table({"x": lists, "y": arrow.array(y)})
        with arrow.ipc.new_file(str(tmp_path / f"{part}.arrow"), table.schema) as file:
            file.write_table(table, max_chunksize=13)
    reading = Reading(targets="numbers", loss="mse")
    check_same(memory, read_disk(tmp_path / "train.arrow", reading))
