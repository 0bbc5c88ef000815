"""A trained model for other tools: safetensors or ONNX, with a card that describes it."""

from __future__ import annotations

__all__ = ["FORMATS", "export_model"]

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.export.card import card, config_text
from joulemesh.export.fleet import export_fleet, is_fleet
from joulemesh.export.forward import onnx_logits, stored_logits, tested
from joulemesh.export.onnx_graph import onnx_graph
from joulemesh.export.stored import Stored, stored
from joulemesh.files import write_bytes, write_text
from joulemesh.files.folders import new_folder
from joulemesh.models.torch_model import TorchModel

FORMATS = ("safetensors", "onnx")
_TRIED = 64  # test samples on which a graph is compared
_TOLERANCE = 1e-5  # of the largest logit


def export_model(
    run: str | Path,
    folder: str | Path,
    *,
    format: str = "safetensors",
    seed: int | None = None,
    device: int | None = None,
) -> Path:
    """Write the final model of a run, with a card and what a program needs to use it.

    Args:
        run: the folder of a finished run, of a fleet, or of a device.
        folder: a new one, or an empty one: it gets ``model.safetensors`` or ``model.onnx``, the
            card ``README.md``, and ``config.json`` with shapes and scaling.
        format: ``"safetensors"``, or ``"onnx"`` for the built-in models and PyTorch modules: a
            graph that takes samples as they are in the data and gives logits. It is compared with
            the trained model before it is written.
        seed: one of the run's repetition seeds; the first unless given.
        device: whose model; the mean of all devices' unless given.

    Returns:
        The folder.

    Raises:
        ScenarioError: the run is not finished or damaged, or the model has no such format. Nothing
            is written then.
        MissingPackageError: ``onnx`` is not installed.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"plan.iterations": 2})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     result = joulemesh.run(scenario, out=Path(place, "run"))
    ...     model = export_model(Path(place, "run"), Path(place, "model"))
    ...     sorted(path.name for path in model.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    """
    if format not in FORMATS:
        raise ScenarioError(f"format {format!r} is unknown: use {' or '.join(FORMATS)}")
    if is_fleet(Path(run)):
        if seed is not None:
            raise ScenarioError("--seed: a fleet has one seed; leave it out")
        return export_fleet(Path(run), Path(folder), format=format, device=device).folder
    kept, checked = stored(run, seed=seed, device=device), ""
    if format == "onnx":
        content = _onnx(kept)
        checked = _compared(kept, content)
    else:
        content = _safetensors(kept)
    measured = tested(kept)
    with new_folder(folder) as draft:
        path = draft / f"model.{format}"
        write_bytes(path, content)
        write_text(draft / "config.json", config_text(kept, path.name))
        write_text(draft / "README.md", card(kept, path, measured, checked))
    return Path(folder)


def _safetensors(kept: Stored) -> bytes:
    from safetensors.numpy import save

    about = {"format": "joulemesh", "model": str(kept.start["learned"]["model"])}
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in kept.params.items()}
    content: bytes = save(arrays, metadata=about)
    return content


def _onnx(kept: Stored) -> bytes:
    if kept.model is None:
        name = kept.start["learned"]["model"]
        raise ScenarioError(
            f"the model {name} was given in memory, and the run keeps its parameters alone: use "
            "--format safetensors, or name it by training.model = 'FILE.py:NAME'"
        )
    if kept.dataset.targets == "tokens":
        raise ScenarioError(
            f"{kept.dataset.name} has tokens, which the ONNX graphs do not take: use --format "
            "safetensors"
        )
    if isinstance(kept.model, TorchModel):
        from joulemesh.export.torch_graph import torch_graph

        return torch_graph(kept)
    return onnx_graph(kept.scenario.training.model, kept.params, kept.dataset)


def _compared(kept: Stored, content: bytes) -> str:
    """Refuse a graph that answers otherwise than the model; otherwise say how near it comes."""
    x: NDArray[Any] = kept.dataset.x_test[:_TRIED]
    ours, theirs = stored_logits(kept, x), onnx_logits(content, x)
    apart = float(np.abs(ours - theirs).max())
    if not apart <= _TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise ScenarioError(
            f"the ONNX graph's logits are up to {apart:.2g} from the model's: use --format "
            "safetensors, and please report this"
        )
    return (
        f"The graph's logits of {len(x)} test samples are within {apart:.0e} of the trained "
        "model's."
    )
