"""The built-in models as ONNX graphs: raw samples in, logits out."""

from __future__ import annotations

__all__ = ["onnx_graph"]

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.data import Dataset
from joulemesh.models.kinds import CONV_WIDTHS
from joulemesh.registries import MODELS

_OPSET, _FORMAT = 17, 8  # what tools of 2022 and later read

Params = Mapping[str, NDArray[Any]]


class _Graph:
    """Nodes and constants, one after another."""

    def __init__(self, onnx: Any) -> None:
        self._onnx, self.nodes, self.constants = onnx, list[Any](), list[Any]()
        self.latest = "x"

    def constant(self, name: str, value: NDArray[Any]) -> str:
        stored = np.ascontiguousarray(value)
        self.constants.append(self._onnx.numpy_helper.from_array(stored, name))
        return name

    def apply(self, operation: str, *others: str, **attributes: Any) -> None:
        """Apply an operation to the latest value."""
        output = f"h{len(self.nodes)}"
        inputs = [self.latest, *others]
        self.nodes.append(self._onnx.helper.make_node(operation, inputs, [output], **attributes))
        self.latest = output

    def dense(self, params: Params, weights: str, biases: str) -> None:
        names = [self.constant(name, _single(params[name])) for name in (weights, biases)]
        self.apply("Gemm", *names)


def _single(value: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(value, np.float32)


def onnx_graph(name: str, params: Params, data: Dataset) -> bytes:
    """A built-in model in the ONNX format.

    The graph takes samples as they are in the data (float32 [batch, ...]), scales them as training
    does, and gives logits [batch, classes].

    Args:
        name: of a model that is layers one after another (`ModelKind.sequential`).
        params: by name.
        data: gives the shape of a sample and its scaling.

    Returns:
        The bytes of the file.

    Raises:
        ScenarioError: another model.
        MissingPackageError: ``onnx`` is not installed.
    """
    if name not in MODELS or not MODELS[name].sequential:
        known = ", ".join(one for one in MODELS.built_in if MODELS[one].sequential)
        raise ScenarioError(
            f"the model {name!r} has no ONNX graph, only {known} and PyTorch modules have: use "
            "--format safetensors"
        )
    onnx = require("onnx", "--format onnx")
    require("onnx.numpy_helper", "--format onnx")
    graph = _Graph(onnx)
    graph.apply("Sub", graph.constant("mean", _single(np.asarray(data.mean))))
    graph.apply("Div", graph.constant("std", _single(np.asarray(data.std))))
    if "conv0_w" in params:
        _convolutions(graph, params, data.shape[-1])
    graph.apply("Flatten", axis=1)
    _dense_layers(graph, params)
    return _model(onnx, graph, data)


def _convolutions(graph: _Graph, params: Params, channels: int) -> None:
    graph.apply("Transpose", perm=[0, 3, 1, 2])  # channels first, as ONNX convolves
    for layer, outputs in enumerate(CONV_WIDTHS):
        kernel = _single(params[f"conv{layer}_w"]).reshape(3, 3, channels, outputs)
        weights = graph.constant(f"conv{layer}_w", kernel.transpose(3, 2, 0, 1))
        biases = graph.constant(f"conv{layer}_b", _single(params[f"conv{layer}_b"]))
        graph.apply("Conv", weights, biases, kernel_shape=[3, 3])
        graph.apply("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        graph.apply("Relu")
        channels = outputs
    graph.apply("Transpose", perm=[0, 2, 3, 1])


def _dense_layers(graph: _Graph, params: Params) -> None:
    if "w" in params:
        graph.dense(params, "w", "b")
        return
    count = sum(key.startswith("dense") and key.endswith("_b") for key in params)
    for layer in range(count):
        graph.dense(params, f"dense{layer}_w", f"dense{layer}_b")
        if layer < count - 1:
            graph.apply("Relu")


def _model(onnx: Any, graph: _Graph, data: Dataset) -> bytes:
    helper, single = onnx.helper, onnx.TensorProto.FLOAT
    graph.nodes[-1].output[0] = "logits"
    made = helper.make_graph(
        graph.nodes,
        "joulemesh",
        [helper.make_tensor_value_info("x", single, ["batch", *data.shape])],
        [helper.make_tensor_value_info("logits", single, ["batch", data.classes])],
        graph.constants,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="joulemesh"
    )
    model.ir_version = _FORMAT
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content
