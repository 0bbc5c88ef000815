"""What a fading model is, and how a scenario names one."""

from __future__ import annotations

__all__ = ["Fading", "FadingModel", "Links", "find", "spellings"]

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.registries import CHANNELS

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Links:
    """What a fading model is given.

    Attributes:
        edges: int64 [E, 2], i < j, sorted, each link once.
        devices: number of devices N.
        mean_gain: float64 [E]: power gains without fading.
        chance: the random stream of a coherence block (counted from 0).
    """

    edges: NDArray[np.int64]
    devices: int
    mean_gain: FloatArray
    chance: Callable[[int], np.random.Generator]


class Fading(Protocol):
    """The gains of all links over coherence blocks (counted from 0).

    Gains are float64 [E], or [E, 2] where the two directions of a link differ: column 0 is from
    ``edges[:, 0]`` to ``edges[:, 1]``.
    """

    def gain(self, block: int) -> FloatArray:
        """The realised gains in a block."""

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The gains whose link energy is exceeded with probability 1 − quantile.

        Args:
            quantile: of link energy, which falls with the gain.
            seen: number of blocks, from the first, that the planner has seen; what comes after
                them must not matter.
        """

    def edition(self, seen: int) -> int:
        """A number that changes when the forecast does."""

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """What was read from files, whose contents may change under their names."""


@dataclass(frozen=True)
class FadingModel:
    """A way in which links fade.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        make: (links, parameters by name, argument) -> their fading; None if gains never change.
        parameters: fields of the scenario's section ``network`` that it takes.
        argument: what follows the name and a colon, in words; empty if nothing does.
    """

    name: str
    description: str
    make: Callable[[Links, Mapping[str, Any], str], Fading | None]
    parameters: tuple[str, ...] = ()
    argument: str = ""


def spellings(names: Iterable[str] | None = None) -> tuple[str, ...]:
    """How a scenario writes some models (all that are known by default), arguments included.

    >>> spellings()[-1]
    'trace:FILE.csv'
    """
    models = [CHANNELS[name] for name in (CHANNELS.names() if names is None else names)]
    return tuple(
        f"{model.name}:{model.argument}" if model.argument else model.name for model in models
    )


def find(text: str) -> tuple[FadingModel, str]:
    """The model that a scenario names, and its argument.

    Raises:
        ScenarioError: there is no such model, or its argument is missing or too many.

    >>> model, argument = find("trace:gains.csv")
    >>> model.name, argument
    ('trace', 'gains.csv')
    """
    name, colon, argument = text.partition(":")
    model = CHANNELS[name]
    if bool(argument) != bool(model.argument) or (colon and not model.argument):
        wanted = f"{name}:{model.argument}" if model.argument else name
        raise ScenarioError(f"must be written {wanted!r}, not {text!r:.60}")
    return model, argument
