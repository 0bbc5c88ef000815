"""What devices with data of their own have to share: the shape of a sample, its scale, the classes.

Each device standardising by its own mean would train another model than its neighbours do.
"""

from __future__ import annotations

__all__ = ["Task", "task_of"]

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from joulemesh.base.errors import ScenarioError
from joulemesh.data import load_for, spec_for
from joulemesh.data.dataset import in_portions, moments
from joulemesh.data.published import SOURCES
from joulemesh.metrics import OWN
from joulemesh.scenario import Scenario

_MOST = 2**18  # features, classes: as many as a table may have columns
_Size = Annotated[int, Field(ge=1, le=2**31)]
_Figures = Annotated[tuple[float, ...], Field(min_length=1, max_length=_MOST)]
_Names = Annotated[tuple[Annotated[str, Field(max_length=1000)], ...], Field(max_length=_MOST)]


class Task(BaseModel):
    """What is learned, wherever the samples lie.

    Attributes:
        shape: of one sample.
        kind: ``"uint8"`` or ``"float32"``: how samples are stored before they are scaled.
        classes: number of classes; of tokens, how many there are; of numbers, how many are to be
            predicted of each sample.
        mean: in the units of the samples as they are stored: one figure, or one per feature (the
            last axis).
        std: as ``mean``; the model sees ``(x - mean) / std``.
        class_names: of the classes, in their order; none where classes are numbers.
        feature_names: of the columns of a table, in their order; none otherwise.

    >>> task_of(Scenario()).scaled(np.full((1, 8, 8, 1), 0.3052)).max()
    np.float32(0.0)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    shape: Annotated[tuple[_Size, ...], Field(min_length=1, max_length=8)]
    kind: Literal["uint8", "float32"]
    classes: Annotated[int, Field(ge=1, le=_MOST)]
    mean: _Figures = (0.0,)
    std: Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(min_length=1)] = (1.0,)
    class_names: _Names = ()
    feature_names: _Names = ()

    def model_post_init(self, context: Any) -> None:
        """Refuse figures and names that do not fit the samples."""
        for figures in (self.mean, self.std):
            if len(figures) not in (1, self.shape[-1]):
                raise ValueError(f"{len(figures)} figures scale {self.shape[-1]} features")
        if self.class_names and len(self.class_names) != self.classes:
            raise ValueError(f"{len(self.class_names)} names are for {self.classes} classes")

    def scaled(self, x: NDArray[Any]) -> NDArray[np.float32]:
        """Samples as the model sees them.

        Args:
            x: [n, ...] of ``shape``, as a device holds them.

        Raises:
            ScenarioError: they have another shape, or are stored in another way.
        """
        self.check_samples(x)
        mean, std = (np.array(figures, np.float64) for figures in (self.mean, self.std))
        return ((x - mean) / std).astype(np.float32)

    def check_samples(self, x: NDArray[Any]) -> None:
        """Refuse samples that are not like those of the other devices.

        Raises:
            ScenarioError: they have another shape, or are stored in another way.

        >>> task_of(Scenario()).check_samples(np.zeros((3, 28, 28, 1), np.float32))
        Traceback (most recent call last):
        ...
        joulemesh.ScenarioError: a sample here has the shape (28, 28, 1), and (8, 8, 1) ...
        """
        if x.shape[1:] != self.shape:
            raise ScenarioError(
                f"a sample here has the shape {x.shape[1:]}, and {self.shape} on the other "
                "devices; bring it into that shape"
            )
        if (x.dtype == np.uint8) != (self.kind == "uint8"):
            raise ScenarioError(
                f"samples here are {x.dtype}, and {self.kind} on the other devices, so that they "
                f"would be scaled differently; store them as {self.kind}"
            )


def task_of(scenario: Scenario) -> Task:
    """What the devices of a scenario have to share.

    The scale is that of the scenario's own training samples; published data sets are not fetched.

    Raises:
        ScenarioError: the data cannot be read.

    >>> task_of(Scenario()).shape, task_of(Scenario(training={"dataset": "mnist"})).kind
    ((8, 8, 1), 'uint8')
    """
    training = scenario.training
    if training.loss.startswith(OWN):
        raise ScenarioError(
            f"training.loss = {training.loss!r} was given in Python, and devices cannot be sent "
            "it: name one that is built in, or put it into a file and name it FILE.py:NAME"
        )
    if training.dataset in SOURCES:
        sizes, source = spec_for(scenario), SOURCES[training.dataset]
        scale = {"mean": source.mean, "std": source.std}
        return Task(shape=sizes.shape, kind="uint8", classes=sizes.classes, **scale)
    raw = scenario.override({"training.normalize": False}) if training.normalize else scenario
    data = load_for(raw)
    mean, std = np.atleast_1d(data.mean), np.atleast_1d(data.std)
    if training.normalize and data.x_train.dtype != np.uint8:
        found = moments(in_portions(data.x_train))
        mean, std = found.mean, found.divisor
    return Task(
        shape=data.shape,
        kind="uint8" if data.x_train.dtype == np.uint8 else "float32",
        classes=data.classes,
        mean=tuple(map(float, mean)),
        std=tuple(map(float, std)),
        class_names=data.class_names,
        feature_names=data.feature_names,
    )
