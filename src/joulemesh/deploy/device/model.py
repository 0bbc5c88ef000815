"""The model that a device ends with: its parameters by name, and a card that describes it.

A device writes the folder ``model`` beside ``run`` whenever its node ends, and when the operator
asks for it; the operator's machine gathers those of all devices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import (
    NODE_STATE,
    make_folder,
    read_bounded,
    read_json,
    write_bytes,
    write_text,
)
from joulemesh.base.optional import in_file_parts
from joulemesh.deploy.effects import Commit
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.models.described import config, loading
from joulemesh.training.tensors import Arrays

FOLDER = "model"
FILE, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


@dataclass(frozen=True, eq=False)
class ModelFile:
    """A model that a device has written."""

    folder: Path  # where
    # what ``config.json`` says: ``name``, ``iteration``, ``iterations``, ``complete``,
    # ``averaged``, and what a program needs to use it
    about: Mapping[str, Any]
    params: Arrays  # by name

    @property
    def name(self) -> str:
        return str(self.about["name"])

    @property
    def iteration(self) -> int:
        return int(self.about["iteration"])

    @property
    def complete(self) -> bool:
        """Had the device carried out the whole plan?"""
        return bool(self.about["complete"])


def save_model(
    folder: Path,
    fleet: Fleet,
    device: int,
    commit: Commit,
    params: Mapping[str, NDArray[Any]],
    *,
    torch: bool,
    iterations: int,
    complete: bool,
    spent_j: float,
    figures: Mapping[str, float],
) -> Path:
    from safetensors.numpy import save

    place, training = make_folder(folder / FOLDER), fleet.scenario.training
    averaged = commit.average is not None and commit.average[0] == commit.iteration
    about = config(
        training,
        fleet.task,
        FILE,
        training.model,
        fleet=fleet.id,
        device=device,
        name=fleet.names[device],
        devices=len(fleet.names),
        iteration=commit.iteration,
        iterations=iterations,
        complete=complete,
        averaged=averaged,
        torch=torch,
        spent_j=spent_j,
        figures=dict(figures),
    )
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in params.items()}
    place.chmod(0o700)  # parameters can reveal samples
    write_bytes(place / FILE, save(arrays, metadata={"format": "joulemesh"}))
    write_text(place / CONFIG, json.dumps(about, indent=1) + "\n")
    write_text(place / CARD, card(about, fleet, params, _held_by(about)))
    return place


def _held_by(about: Mapping[str, Any]) -> str:
    done = "carried out the whole plan" if about["complete"] else "stopped before the plan's end"
    shared = (
        "It is the average of all devices that took part in that iteration, and the same on each."
        if about["averaged"]
        else "It is this device's own: other devices may hold different parameters."
    )
    return f"The model that the device {about['name']} held {far(about)}; it {done}. {shared}"


def far(about: Mapping[str, Any]) -> str:
    """How far the training of a model had come."""
    return (
        f"after {about['iteration']:,} of {about['iterations']:,} iterations (communication rounds)"
    )


def card(
    about: Mapping[str, Any], fleet: Fleet, params: Mapping[str, NDArray[Any]], whose: str
) -> str:
    """The card of a model, as Markdown with the front matter that model hubs read."""
    training = fleet.scenario.training
    built_in = in_file_parts(training.model) is None
    figures = [f"| {name} | {value:.4g} |" for name, value in about["figures"].items()]
    shape, file = fleet.task.shape, about["file"]
    lines = [
        "---", "license: other", "library_name: joulemesh",
        "tags: [federated-learning, decentralized-learning, joulemesh]", "---", "",
        f"# {about['name']}: {about['model']} trained by fleet {about['fleet']}", "",
        whose, "",
        "| | |", "|---|---|",
        *figures,
        f"| energy that one device has spent | {about['spent_j']:.4g} J |",
        f"| devices of the fleet | {about['devices']:,} |",
        f"| parameters | {sum(leaf.size for leaf in params.values()):,} |",
        f"| written by | Joulemesh {about['joulemesh']} |", "",
        "## Load it", "", "```python",
        loading(training, shape, file, torch=about["torch"], built_in=built_in), "```", "",
        "`x` holds samples as they are in the data, float32 `[batch, "
        f"{', '.join(map(str, shape))}]`; the scaling of training is in "
        f"{'the graph' if file.endswith('.onnx') else f'`{CONFIG}`'}.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def read_model(folder: Path) -> ModelFile:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        about = read_json(folder / CONFIG)
        params = load(read_bounded(folder / FILE, NODE_STATE.now))
        found = ModelFile(folder, about, params)
        if found.iteration >= 0 and found.name and isinstance(found.complete, bool):
            return found
        reason = "it describes no model"
    except OSError as error:
        raise ScenarioError(
            f"{folder} holds no model ({error.strerror}); a device writes one when it stops, and "
            "`joulemesh deploy collect` fetches it"
        ) from None
    except (ValueError, KeyError, TypeError, SafetensorError) as error:
        reason = " ".join(str(error).split())[:160]
    raise ScenarioError(f"{folder} holds a damaged model ({reason}); collect it again")


def fleet_model(found: Sequence[ModelFile]) -> tuple[Arrays, list[str], list[str]]:
    """The model of a fleet: that of all devices, or the mean of those that are furthest."""
    last = max(one.iteration for one in found)
    first = [one for one in found if one.iteration == last]
    behind = [one.name for one in found if one.iteration < last]
    notes = []
    if behind:
        notes.append(f"behind iteration {last}, and left out: {', '.join(behind)}")
    if not all(one.complete for one in first):
        notes.append(f"the plan is not finished: this is the model after iteration {last}")
    apart = max(
        float(np.abs(one.params[name].astype(np.float64) - first[0].params[name]).max(initial=0.0))
        for one in first
        for name in first[0].params
    )
    if not apart:
        return dict(first[0].params), [one.name for one in first], notes
    notes.append(
        f"the models of {len(first)} devices differ, by {apart:.2g} at the most: this is their mean"
    )
    mean = {
        name: np.mean([one.params[name] for one in first], axis=0, dtype=np.float64).astype(
            leaf.dtype
        )
        for name, leaf in first[0].params.items()
    }
    return mean, [one.name for one in first], notes
