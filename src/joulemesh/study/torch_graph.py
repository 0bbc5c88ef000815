"""A PyTorch module as an ONNX graph, by PyTorch's own exporter."""

from __future__ import annotations

__all__ = ["torch_graph"]

import io
from typing import Any

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.study.export import Stored, channels_first, torch_module


def torch_graph(kept: Stored) -> bytes:
    """The graph of a module: samples as they are in the data in, logits out.

    Args:
        kept: whose model is a PyTorch module.

    Raises:
        ScenarioError: PyTorch cannot trace the module.
        MissingPackageError: ``onnxscript``, which PyTorch's exporter needs, is not installed.
    """
    torch = require("torch", "a PyTorch module")
    require("onnx", "--format onnx of a PyTorch module")
    require("onnxscript", "--format onnx of a PyTorch module")
    sample = torch.tensor(np.asarray(kept.dataset.x_test[:2], np.float32))
    batch, file = torch.export.Dim("batch"), io.BytesIO()
    try:
        program = torch.onnx.export(
            _scaled(torch, kept),
            (sample,),
            dynamo=True,
            input_names=["x"],
            output_names=["logits"],
            dynamic_shapes={"x": {0: batch}},
            verbose=False,
        )
        program.save(file)
    except Exception as error:  # the exporter may raise anything
        reason = " ".join(str(error).split())[:200]
        raise ScenarioError(
            f"PyTorch cannot write {kept.start['learned']['model']} as ONNX "
            f"({type(error).__name__}: {reason}): use --format safetensors"
        ) from error
    return file.getvalue()


def _scaled(torch: Any, kept: Stored) -> Any:
    """The module, with the scaling of training before it."""
    mean, std = (
        torch.tensor(np.asarray(one, np.float32)) for one in (kept.dataset.mean, kept.dataset.std)
    )
    first = channels_first(kept)

    class Scaled(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = torch_module(kept)
            self.register_buffer("mean", mean)
            self.register_buffer("std", std)

        def forward(self, x: Any) -> Any:
            seen = (x - self.mean) / self.std
            return self.module(seen.movedim(-1, 1) if first else seen)

    return Scaled().eval()
