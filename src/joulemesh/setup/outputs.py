"""What a user's own model gives before it is trained: logits, or probabilities by mistake."""

from __future__ import annotations

__all__ = ["with_outputs_noted"]

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.metrics.losses import CROSS_ENTROPY
from joulemesh.models.torch_model import TorchModel
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario

_LOOKED_AT = 16  # samples
_NEAR = 1e-3  # of a sum of probabilities in 16 bits


def with_outputs_noted(scenario: Scenario, model: Any, given: Any, dataset: Dataset) -> Dataset:
    """The data set, with a note if the model's outputs are probabilities where logits are meant.

    Args:
        scenario: with the loss, and the model unless one is given.
        model: what is trained.
        given: the user's own model; None for the scenario's.
        dataset: its test samples are looked at, before training.
    """
    own = given is not None or scenario.training.model not in MODELS.built_in
    if not own or scenario.training.loss != CROSS_ENTROPY.name or dataset.classes < 2:
        return dataset
    found = _outputs(model, dataset)
    if not probabilities(found):
        return dataset
    note = (
        f"the outputs of {model.name} are probabilities (between 0 and 1, of sum 1 for each of "
        f"{len(found)} test samples), and the cross-entropy takes logits: it would apply softmax "
        "twice, and training would be slow; remove the last Softmax of the model"
    )
    return replace(dataset, notes=(*dataset.notes, note))


def probabilities(outputs: NDArray[Any]) -> bool:
    """Are outputs [..., classes] all within [0, 1], and of sum 1?

    >>> probabilities(np.array([[0.25, 0.75]])), probabilities(np.array([[0.5, 0.75]]))
    (True, False)
    """
    within = bool((outputs >= 0).all() and (outputs <= 1).all())
    return within and bool((np.abs(outputs.sum(axis=-1) - 1) < _NEAR).all())


def _outputs(model: Any, dataset: Dataset) -> NDArray[np.float64]:
    x = np.asarray(dataset.x_test[:_LOOKED_AT])
    if dataset.seen != "int32":
        from joulemesh.training.jax.loss import scale_of

        scale, shift = scale_of(dataset, "float32")
        x = (x.astype(np.float32) * scale + shift).astype(np.float32)
    if isinstance(model, TorchModel):
        import torch

        was = model.module.training
        with torch.no_grad():
            seen = torch.as_tensor(x.astype(np.int64) if dataset.seen == "int32" else x)
            made = model.module.eval()(seen).double().numpy()
        model.module.train(was)
        return np.asarray(made)
    import jax

    params = model.init(jax.random.key(0))
    return np.asarray(model.apply(params, x), np.float64)
