"""What a fading model is, and the registry of those that are known."""

from __future__ import annotations

__all__ = ["Fading", "FadingModel", "Links", "find", "names", "register", "spellings"]

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
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


_MODELS: dict[str, FadingModel] = {}


def register(model: FadingModel) -> None:
    """Make a fading model known by its name; a name that is taken gets the new model.

    >>> from joulemesh.fading import distribution
    >>> two_state = distribution(
    ...     "two-state", "each link is good or bad with equal chance",
    ...     draw=lambda rng, links: np.where(rng.random(links) < 0.5, 0.5, 1.5),
    ...     quantile=lambda q: 1.5 if q < 0.5 else 0.5,
    ... )
    >>> register(two_state)
    >>> find("two-state")[0].description
    'each link is good or bad with equal chance'
    >>> del _MODELS["two-state"]
    """
    if not model.name or set(model.name) & set(": "):
        raise ScenarioError(f"fading model {model.name!r} is unusable: leave out colon and space")
    _MODELS[model.name] = model


def names() -> tuple[str, ...]:
    """The fading models that are known.

    >>> names()
    ('none', 'rayleigh', 'rician', 'nakagami', 'trace')
    """
    return tuple(_MODELS)


def spellings() -> tuple[str, ...]:
    """How a scenario writes them, arguments included.

    >>> spellings()[-1]
    'trace:FILE.csv'
    """
    return tuple(
        f"{name}:{model.argument}" if model.argument else name for name, model in _MODELS.items()
    )


def find(text: str) -> tuple[FadingModel, str]:
    """The model that a scenario names, and its argument.

    Raises:
        ValueError: there is no such model, or its argument is missing or too many.

    >>> model, argument = find("trace:gains.csv")
    >>> model.name, argument
    ('trace', 'gains.csv')
    """
    name, colon, argument = text.partition(":")
    model = _MODELS.get(name)
    if model is None:
        close = difflib.get_close_matches(name, names(), 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"must be one of {', '.join(spellings())}, not {text!r:.60}{hint}")
    if bool(argument) != bool(model.argument) or (colon and not model.argument):
        wanted = f"{name}:{model.argument}" if model.argument else name
        raise ValueError(f"must be written {wanted!r}, not {text!r:.60}")
    return model, argument
