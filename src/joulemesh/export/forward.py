"""What a stored model answers: by JAX or PyTorch as it was trained, and by its ONNX graph."""

from __future__ import annotations

__all__ = ["Tested", "onnx_logits", "stored_logits", "tested", "wilson"]

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh.export.stored import Stored
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.optional import require
from joulemesh.training.tensors import named_leaves

_Z = 1.959963984540054  # of 95 %
_AT_ONCE = 1000


class Tested(NamedTuple):
    """Right answers among test samples, with the 95 % interval of their share (Wilson's)."""

    accuracy: float
    low: float
    high: float
    samples: int


def wilson(right: int, samples: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    >>> [round(end, 4) for end in wilson(9, 10)]
    [0.5958, 0.9821]
    """
    share, z2 = right / samples, _Z**2
    middle = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = _Z * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples**2))
    half /= 1 + z2 / samples
    return max(middle - half, 0.0), min(middle + half, 1.0)


def tested(kept: Stored) -> Tested | None:
    """The model's accuracy on all test samples.

    None where the model itself was not kept, or where it does not tell classes.
    """
    if kept.model is None or kept.dataset.targets != "classes":
        return None
    x, y, right = kept.dataset.x_test, kept.dataset.y_test, 0
    for first in range(0, len(y), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        right += int((stored_logits(kept, x[part]).argmax(axis=1) == y[part]).sum())
    return Tested(right / len(y), *wilson(right, len(y)), len(y))


def stored_logits(kept: Stored, x: NDArray[Any]) -> NDArray[Any]:
    """Logits [B, classes] of samples as they are in the data.

    Args:
        kept: with its model.
        x: [B, ...].
    """
    assert kept.model is not None
    seen = kept.dataset.normalise(x)
    if isinstance(kept.model, TorchModel):
        return _torch_logits(kept, seen)
    return np.asarray(kept.model.apply(params_of(kept.model, kept), seen))


def params_of(model: Model, kept: Stored) -> Any:
    """The parameters as the tree that a model of JAX takes."""
    import jax

    like = jax.eval_shape(model.init, jax.random.key(0))
    shapes = jax.tree.map(lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape), like)
    names = list(named_leaves(shapes))
    leaves = [np.asarray(kept.params[name], np.float32) for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def torch_module(kept: Stored) -> Any:
    """The module with its trained parameters, in evaluation mode."""
    torch = require("torch", "a PyTorch module")
    assert isinstance(kept.model, TorchModel)
    state = {name: torch.tensor(np.asarray(leaf)) for name, leaf in kept.params.items()}
    kept.model.module.load_state_dict(state, strict=False)
    return kept.model.module.float().eval()


def channels_first(kept: Stored) -> bool:
    """Does the module see images with their channels first? So it does those of the catalog."""
    from joulemesh.training.torch.samples import seen_shape

    return seen_shape(kept.dataset) != tuple(kept.dataset.shape)


def _torch_logits(kept: Stored, seen: NDArray[Any]) -> NDArray[Any]:
    torch = require("torch", "a PyTorch module")
    moved = np.moveaxis(seen, -1, 1) if channels_first(kept) else seen
    with torch.no_grad():
        answer = torch_module(kept)(torch.tensor(np.ascontiguousarray(moved, np.float32)))
    return np.asarray(answer.numpy())


def onnx_logits(content: bytes, x: NDArray[Any]) -> NDArray[Any]:
    """Logits by the reference evaluator of ``onnx``."""
    reference = require("onnx.reference", "--format onnx", "onnx")
    onnx = require("onnx", "--format onnx")
    evaluator = reference.ReferenceEvaluator(onnx.load_model_from_string(content))
    (logits,) = evaluator.run(None, {"x": np.asarray(x, np.float32)})
    return np.asarray(logits)
