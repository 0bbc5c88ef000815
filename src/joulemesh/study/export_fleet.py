"""The model of a fleet, or of one of its devices, from what the devices have written."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import new_folder, write_bytes, write_text
from joulemesh.base.optional import in_file_parts
from joulemesh.data import Dataset
from joulemesh.deploy.device.model import (
    CARD,
    CONFIG,
    FOLDER,
    ModelFile,
    card,
    far,
    fleet_model,
    read_model,
)
from joulemesh.deploy.fleet.fleet import FILE as FLEET_FILE
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES, ORDERS
from joulemesh.deploy.operator.operator import MODELS
from joulemesh.study.export import onnx_graph


@dataclass(frozen=True)
class FleetModel:
    folder: Path  # where
    iteration: int  # after which
    devices: tuple[str, ...]  # names of those whose model, or mean, it is
    alike: bool  # do all of them hold these very parameters?
    notes: tuple[str, ...] = ()  # what a reader should know, a sentence each


def is_fleet(folder: Path) -> bool:
    """Is this the folder of a fleet, or of a device of one?"""
    return (folder / FLEET_FILE).is_file()


def export_fleet(
    source: Path, folder: Path, *, format: str = "safetensors", device: int | None = None
) -> FleetModel:
    """Write the model of a fleet, or of one device, with its card and ``config.json``."""
    # Devices that hold the same parameters have one model. Where they differ, the model is the mean
    # over the devices that are furthest, and the card says so.
    fleet = Fleet.load(source)
    found = [read_model(source / FOLDER)] if (source / ORDERS).is_file() else _all(source, fleet)
    if device is not None:
        name = fleet.names[device] if 0 <= device < len(fleet.names) else None
        found = [one for one in found if one.name == name]
        if not found:
            raise ScenarioError(
                f"--device {device}: no model of such a device is here; devices are "
                f"0..{len(fleet.names) - 1}"
            )
    params, names, notes = fleet_model(found)
    first = next(one for one in found if one.name in names)
    about = {**first.about, "file": f"model.{format}", "devices_with_it": names}
    whose = f"The model of {', '.join(names)}, {far(about)}."
    if len(names) > 1:
        about |= {"name": f"fleet {fleet.id}", "device": None}
        whose = f"The model of {len(names)} of {len(fleet.names)} devices, {far(about)}."
    whose = " ".join([whose, *(f"{note[0].upper()}{note[1:]}." for note in notes)])
    content = _onnx(fleet, params) if format == "onnx" else _safetensors(params)
    with new_folder(folder) as draft:
        write_bytes(draft / about["file"], content)
        write_text(draft / CONFIG, json.dumps(about, indent=1) + "\n")
        write_text(draft / CARD, card(about, fleet, params, whose))
    held = [one for one in found if one.name in names]
    alike = all(np.array_equal(one.params[key], params[key]) for one in held for key in params)
    return FleetModel(folder, first.iteration, tuple(names), alike, tuple(notes))


def _all(folder: Path, fleet: Fleet) -> list[ModelFile]:
    """The newest model of every device of a fleet: collected, or written on this machine."""
    found: list[ModelFile] = []
    for name in fleet.names:
        places = (folder / MODELS / name, folder / DEVICES / name / FOLDER)
        models = [read_model(place) for place in places if (place / CONFIG).is_file()]
        if models:
            found.append(max(models, key=lambda one: (one.iteration, one.complete)))
    if not found:
        raise ScenarioError(
            f"{folder} holds no model yet: `joulemesh deploy collect {folder}` fetches the devices'"
        )
    return found


def _safetensors(params: dict[str, Any]) -> bytes:
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in params.items()}
    content: bytes = save(arrays, metadata={"format": "joulemesh"})
    return content


def _onnx(fleet: Fleet, params: dict[str, Any]) -> bytes:
    model, task = fleet.scenario.training.model, fleet.task
    if in_file_parts(model) is not None:
        raise ScenarioError(
            f"the model {model} of a fleet is written as safetensors alone: use --format "
            "safetensors, and export it by PyTorch or JAX"
        )
    one, none = np.zeros((1, *task.shape), np.float32), np.zeros(1, np.int32)
    shape = Dataset("fleet", one, none, one, none, task.classes, class_names=task.class_names)
    scale = {
        name: np.array(figures, np.float32) if len(figures) > 1 else float(figures[0])
        for name, figures in (("mean", task.mean), ("std", task.std))
    }
    return onnx_graph(model, params, replace(shape, **scale))  # type: ignore[arg-type]
