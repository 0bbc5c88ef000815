"""The parameters that a finished run left in its folder: the mean model's, or one device's."""

from __future__ import annotations

__all__ = ["Stored", "stored"]

import csv
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import read_json
from joulemesh.files.limits import RECORD as LIMIT
from joulemesh.metrics.losses import reported
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.runs.folder import RunFolder
from joulemesh.scenario import Scenario
from joulemesh.scenario.inputs import RECORD
from joulemesh.setup.prepare import the_dataset, the_model
from joulemesh.training.tensors import read_arrays

_MEAN = "model.safetensors"
_KEY = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


@dataclass(frozen=True, eq=False)
class Stored:
    """A trained model, and what is known of it.

    Attributes:
        folder: of the run.
        scenario: what was carried out.
        params: by name, in the run's precision.
        seed: the repetition seed.
        device: whose model it is; None for the mean of all.
        dataset: what was learned from.
        model: what was trained; None if the user gave it in memory, so that it was not kept.
        start: the record of the run's start.
        result: the figures of the run.
        score: what the run is measured by: ``"accuracy"``, unless the scenario says otherwise.
        scores: the final one of the mean model on the test samples, in each seed.
    """

    folder: Path
    scenario: Scenario
    params: Mapping[str, NDArray[Any]]
    seed: int
    device: int | None
    dataset: Dataset
    model: Model | TorchModel | None
    start: Mapping[str, Any]
    result: Mapping[str, Any]
    score: str
    scores: Mapping[int, float]


def stored(folder: str | Path, *, seed: int | None = None, device: int | None = None) -> Stored:
    """Read a trained model from the folder of a run, verified.

    Args:
        folder: of a finished run.
        seed: one of its repetition seeds; the first unless given.
        device: whose model; that of the mean of all devices unless given.

    Raises:
        ScenarioError: the run is not finished, or has no such seed or device.
    """
    run = RunFolder(folder)
    start = run.start_record()
    result = run.result()
    if result is None:
        raise ScenarioError(
            f"the run in {run.path} is not finished ({run.completed} iterations are done): go on "
            f"with `joulemesh run --out {run.path} --resume`"
        )
    row, seed = _row(run.path, start["seeds"], seed)
    scenario = run.scenario()
    dataset = the_dataset(scenario)
    own, score = _given_in_memory(run.path), reported(scenario.training).score
    return Stored(
        run.path,
        scenario,
        _mean(run, row, len(start["seeds"])) if device is None else _of_device(run, row, device),
        seed,
        device,
        dataset,
        None if own else the_model(scenario, None, dataset),
        start,
        result,
        score,
        _scores(run.metrics_text(), f"test_{score}"),
    )


def _row(path: Path, seeds: list[int], seed: int | None) -> tuple[int, int]:
    if seed is None:
        return 0, seeds[0]
    if seed not in seeds:
        raise ScenarioError(
            f"the run in {path} has no seed {seed}: use one of {', '.join(map(str, seeds))}"
        )
    return seeds.index(seed), seed


def _given_in_memory(path: Path) -> bool:
    """Was the model given in memory, so that the folder has only its parameters?"""
    record = path / RECORD
    return record.is_file() and bool(read_json(record, LIMIT.now).get("own_model"))


def _mean(run: RunFolder, row: int, seeds: int) -> dict[str, NDArray[Any]]:
    from safetensors.numpy import load_file

    run.refuse_damage([_MEAN], remedy="restore it from a copy, or run the scenario again")
    found = load_file(run.path / _MEAN)
    return {name: leaf[row] if seeds > 1 else leaf for name, leaf in found.items()}


def _of_device(run: RunFolder, row: int, device: int) -> dict[str, NDArray[Any]]:
    count = int(run.account().rounds.shape[1])
    if not 0 <= device < count:
        raise ScenarioError(f"--device {device}: devices are 0..{count - 1}; choose one of them")
    name = f"{run.checkpoint.name}/{run.completed}.safetensors"
    if name not in run.manifest.newest.files:
        raise ScenarioError(
            f"{run.path} keeps no checkpoint, so that the devices' own models are not known: leave "
            "--device out, or run with --out"
        )
    run.refuse_damage([name], remedy="leave --device out, or run the scenario again")
    arrays = read_arrays(run.path / name, {}, besides="")
    params = {key: leaf for key, leaf in arrays.items() if key.lstrip(".").startswith("params")}
    # [seeds, devices, ...], or [seeds, 1, ...] where all devices hold the same.
    return {_dotted(key): leaf[row, device % leaf.shape[1]] for key, leaf in params.items()}


def _dotted(name: str) -> str:
    """A checkpoint's name of a parameter as the run's model file has it.

    >>> _dotted(".params['dense0_w']"), _dotted("params.0.weight"), _dotted(".params")
    ('dense0_w', '0.weight', 'params')
    """
    if name.startswith("params."):
        return name.removeprefix("params.")
    keys = [next(filter(None, found)) for found in _KEY.findall(name)]
    return ".".join(keys[1:]) or "params"


def _scores(text: str, column: str) -> dict[int, float]:
    """The last of a column in the text of ``metrics.csv``, by seed."""
    last: dict[int, float] = {}
    for row in csv.DictReader(io.StringIO(text)):
        last[int(row["seed"])] = float(row[column])
    return last
