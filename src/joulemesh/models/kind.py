"""What a model of the registry is. JAX is loaded when one is built, not when it is counted."""

from __future__ import annotations

__all__ = ["ModelKind", "options_of"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from joulemesh.citation import Citation
from joulemesh.scenario import Training
from joulemesh.scenario.registered import parameters_of


@dataclass(frozen=True)
class ModelKind:
    """A kind of model, for samples of any shape that it accepts.

    Every function is called with the shape of a sample, the number of classes, and the parameters
    by name.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        build: gives a `Model`, a pair (init, apply), or a Flax linen module.
        phrase: the model in a sentence: "20 devices learned digits with ..."; by default from the
            name.
        parameters: fields of the scenario's section ``training`` that it takes. The weight ``l2``
            of the regulariser is not among them: it is the same for all models.
        check: raises a `ScenarioError` if the model does not fit the samples.
        parameter_count: number of parameters, by arithmetic; without it the model is built, and
            JAX loaded, to plan.
        multiply_adds: multiply-adds of one sample's forward pass in its matrix products; without
            it the plausibility of a device's figures is judged by the number of parameters.
        citation: where it was published, or None.
        sequential: whether it is layers one after another, with ReLU between them, so that other
            tools can be given its graph: 3 x 3 convolutions with max pooling (parameters
            ``conv0_w``, ``conv0_b``, ...), then dense layers (``dense0_w``, ..., or ``w``, ``b``).

    >>> ModelKind("lenet", "five layers", lambda shape, classes: None).phrase
    'a model lenet'
    """

    name: str
    description: str
    build: Callable[..., Any]
    phrase: str = ""
    parameters: tuple[str, ...] = ()
    check: Callable[..., None] | None = None
    parameter_count: Callable[..., int] | None = None
    multiply_adds: Callable[..., int] | None = None
    citation: Citation | None = None
    sequential: bool = False

    def __post_init__(self) -> None:
        if not self.phrase:
            object.__setattr__(self, "phrase", f"a model {self.name}")


def options_of(kind: ModelKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a kind takes: what is given, otherwise the scenario's defaults.

    >>> options_of(ModelKind("wide", "", lambda *_: None, parameters=("hidden",)), {"l2": 0.1})
    {'hidden': (64,)}
    """
    return parameters_of(f"model {kind.name!r}", kind.parameters, Training, given)
