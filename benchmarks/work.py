"""The work that is timed, and its data as plain files that every contender can read.

Contenders run in environments of their own, so this module needs NumPy only; Joulemesh itself is
loaded where the files are made.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import BENCH

PARTS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Work:
    """Devices that train, then take their mean; one block is ``iterations`` of that."""

    dataset: str
    model: str
    hidden: tuple[int, ...] = ()
    devices: int = 20
    batch: int = 32
    rounds: int = 5
    iterations: int = 20
    learning_rate: float = 0.05
    precision: str = "float32"
    samples: int = 0  # that each device draws; equal shares of all if 0
    folder: str = ""

    @property
    def device_steps(self) -> int:
        """SGD steps of all devices in one block."""
        return self.devices * self.rounds * self.iterations

    def dump(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Work:
        fields = json.loads(text)
        return cls(**{**fields, "hidden": tuple(fields["hidden"])})


MLP = Work("mnist", "mlp", (200,))
# Five iterations: an evaluation every five is part of what is measured.
CNN = Work("cifar-10", "cnn", iterations=5)
SMALL = Work("mnist", "mlp", (32,))


def with_data(work: Work) -> Work:
    """The work with the folder of its data, made if it is not there."""
    folder, _ = prepare(work.dataset)
    return replace(work, folder=str(folder))


def prepare(dataset: str) -> tuple[Path, bool]:
    """Write a data set's arrays as files.

    Real samples where Joulemesh finds them without downloading (JOULEMESH_DATA, or its cache);
    otherwise noise of the same shapes: speed does not depend on the values.

    Returns:
        The folder, and whether the samples are noise.
    """
    from joulemesh.base.errors import ScenarioError
    from joulemesh.data import load, spec

    arrays: list[Any]
    try:
        real = load(dataset, download=False, progress=False)
    except ScenarioError:
        made, sizes, rng = True, spec(dataset), np.random.default_rng(0)
        arrays = []
        for count in (sizes.train, sizes.test):
            arrays.append(rng.integers(0, 256, (count, *sizes.shape), np.uint8))
            arrays.append(rng.integers(0, sizes.classes, count, np.int32))
        moments = {"mean": [127.5] * sizes.shape[-1], "std": [73.9] * sizes.shape[-1]}
    else:
        made, arrays = False, [getattr(real, part) for part in PARTS]
        moments = {
            name: np.atleast_1d(getattr(real, name)).astype(float).tolist()
            for name in ("mean", "std")
        }
    folder = BENCH / "data" / (f"{dataset}-made" if made else dataset)
    if not (folder / "moments.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part, array in zip(PARTS, arrays, strict=True):
            np.save(folder / f"{part}.npy", array)
        (folder / "moments.json").write_text(json.dumps(moments))
    return folder, made


def raw(work: Work) -> tuple[dict[str, Any], Any, Any]:
    """The arrays as stored (uint8, [n, height, width, channels]), mean and standard deviation."""
    folder = Path(work.folder)
    moments = json.loads((folder / "moments.json").read_text())
    arrays = {part: np.load(folder / f"{part}.npy") for part in PARTS}
    return arrays, np.array(moments["mean"], np.float32), np.array(moments["std"], np.float32)


def training_set(work: Work) -> tuple[Any, Any]:
    """Normalised float32 training samples, and int64 labels."""
    arrays, mean, std = raw(work)
    x = (arrays["x_train"].astype(np.float32) - mean) / std
    if work.model == "mlp":
        x = x.reshape(len(x), -1)
    return x, arrays["y_train"].astype(np.int64)


def shares(samples: int, devices: int) -> list[Any]:
    """Sample indices of every device, in equal parts."""
    return np.array_split(np.random.default_rng(0).permutation(samples), devices)
