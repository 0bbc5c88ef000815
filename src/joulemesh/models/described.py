"""A model in a file of its own: what a program must know of it, and the lines that load it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from joulemesh._version import __version__
from joulemesh.base.optional import in_file_parts
from joulemesh.scenario.sections import Training

_SCALED = '(x - np.float32(about["mean"])) / np.float32(about["std"])'


class Samples(Protocol):
    """What a model was trained for: a data set, or what the devices of a fleet share of theirs."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample."""

    @property
    def classes(self) -> int:
        """How many there are."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """In their order; none where classes are numbers."""

    @property
    def mean(self) -> Any:
        """The model sees ``(x - mean) / std``."""

    @property
    def std(self) -> Any:
        """As ``mean``."""


def config(training: Training, data: Samples, file: str, model: str, **more: Any) -> dict[str, Any]:
    """The contents of ``config.json``, as plain values."""
    return {
        "file": file,
        "model": model,
        "hidden": list(training.hidden) if training.model == "mlp" else [],
        "shape": list(data.shape),
        "classes": data.classes,
        "class_names": list(data.class_names),
        "mean": _plain(data.mean),
        "std": _plain(data.std),
        **more,
        "joulemesh": __version__,
    }


def loading(
    training: Training, shape: Sequence[int], file: str, *, torch: bool, built_in: bool
) -> str:
    """A few lines of Python that load a model and compute logits of ``x``."""
    if file.endswith(".onnx"):
        return (
            "import onnxruntime\n\n"
            f'session = onnxruntime.InferenceSession("{file}")\n'
            '(logits,) = session.run(None, {"x": x})'
        )
    if torch:
        path, name = in_file_parts(training.model) or ("", "")
        first = ", channels first" if len(shape) == 3 else ""
        return (
            f"from safetensors.torch import load_file\nfrom {Path(path).stem} import {name}\n\n"
            f"module = {name}()\n"
            f'module.load_state_dict(load_file("{file}"), strict=False)\n'
            f"# it sees (x - mean) / std of config.json{first}"
        )
    start = f'about, params = json.load(open("config.json")), load_file("{file}")'
    if not built_in:
        return (
            "import json\nfrom safetensors.numpy import load_file\n\n"
            f"{start}\n"
            "# params: by path in the tree of your model; it sees (x - mean) / std"
        )
    return (
        "import json\nimport numpy as np\nfrom safetensors.numpy import load_file\n"
        "from joulemesh.models import build\n\n"
        f"{start}\n"
        'model = build(about["model"], about["shape"], about["classes"], about["hidden"])\n'
        f"logits = model.apply(params, {_SCALED})"
    )


def _plain(figures: Any) -> Any:
    """One number where there is one."""
    values = np.asarray(figures)
    return values.item() if values.size == 1 else values.tolist()
