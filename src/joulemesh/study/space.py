"""The plan space: which fields of a scenario are varied, and over which values."""

from __future__ import annotations

__all__ = ["AXES", "GRID", "Axis", "Space", "geometric"]

import difflib
import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import fields_of
from joulemesh.scenario.scenario import field_names

GRID = "grid"
"""In place of values of ``plan.iterations``: a geometric grid up to what the budgets pay for."""
_GRID_POINTS = 5
_LEAST_ITERATIONS = 10  # a tenth of the budget is then one iteration
_RATES = (0.5, 1.0, 2.0, 4.0)  # times the scenario's own learning rate
_MOST_POINTS = 100_000

# Fields that decide the plan or the way of learning, but neither the task nor the budgets.
TUNABLE = (
    "plan.aggregation",
    "plan.exchange",
    "plan.rounds",
    "plan.zeta",
    "plan.iterations",
    "plan.fixed_rounds",
    "plan.epsilon",
    "plan.gossip_rounds",
    "plan.gossip_mode",
    "training.learning_rate",
    "training.batch_size",
    "training.optimizer",
    "training.weights",
)
_REFUSED = {
    "network.bits_per_parameter": "messages have 16 bits or 32; tune the scenario with each",
}


@dataclass(frozen=True)
class Axis:
    """One field that is varied.

    Attributes:
        name: of the field, for instance ``"plan.rounds"``.
        values: that it takes, the first of them first; one may be the word ``"grid"``, for
            ``plan.iterations`` only.
    """

    name: str
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if self.name not in TUNABLE:
            raise ScenarioError(_not_tunable(self.name))
        if not self.values:
            raise ScenarioError(f"{self.name} has no values to try: give at least one")
        if GRID in self.values and self.name != "plan.iterations":
            raise ScenarioError(f'{self.name}: "grid" is for plan.iterations; list the values')


def _not_tunable(name: str) -> str:
    if name in _REFUSED:
        return f"{name} cannot be tuned: {_REFUSED[name]}"
    if name in field_names():
        return f"{name} is part of the task, not of the plan; tune some of {', '.join(TUNABLE)}"
    near = difflib.get_close_matches(name, TUNABLE, 1)
    known = f"did you mean {near[0]!r}?" if near else f"tune some of {', '.join(TUNABLE)}"
    return f"{name[:60]!r} cannot be tuned: {known}"


@dataclass(frozen=True)
class Space:
    """All combinations of the values of some axes.

    Attributes:
        axes: the fields that are varied; the last of them varies fastest.

    >>> space = Space.of({"plan.rounds": ["theorem4", "uniform"], "training.learning_rate": 0.1})
    >>> [point["plan.rounds"] for point in space.points()]
    ['theorem4', 'uniform']
    """

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Space:
        """A space from values by field; a single value is a list of one.

        Raises:
            ScenarioError: a field that is not there or not to be tuned, or no values.
        """
        axes = [Axis(name, _listed(value)) for name, value in values.items()]
        if not axes:
            raise ScenarioError("the space has no axes: give at least one field with values")
        missing = [axis.name for axis in axes if axis.name not in field_names()]
        if missing:
            raise ScenarioError(f"{missing[0]} is not a field of a scenario of this version")
        size = math.prod(len(axis.values) for axis in axes)
        if size > _MOST_POINTS:
            raise ScenarioError(
                f"the space has {size:,} points, more than {_MOST_POINTS:,}; give fewer values"
            )
        return cls(tuple(axes))

    @classmethod
    def load(cls, path: str | Path) -> Space:
        """A space from a TOML file, written like a scenario with lists of values in it.

        Raises:
            ScenarioError: the file cannot be read, or describes no space.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_bytes().decode())
        except ScenarioError:
            raise
        except OSError as error:
            raise ScenarioError(f"cannot read {path}: {error.strerror}; check the name") from None
        except ValueError as error:
            said = " ".join(str(error).split())[:160]
            raise ScenarioError(f"{path} is not a TOML file ({said}); see --space") from None
        return cls.of(fields_of(values))

    @classmethod
    def default(cls, scenario: Scenario) -> Space:
        """The axes of `AXES` whose fields there are, around a scenario.

        >>> [axis.name for axis in Space.default(Scenario()).axes][-2:]
        ['plan.iterations', 'training.learning_rate']
        """
        known = field_names()
        made = {name: values(scenario) for name, values in AXES.items() if name in known}
        return cls.of({name: values for name, values in made.items() if values})

    def with_axes(self, values: Mapping[str, Any]) -> Space:
        """The same space with some axes added or replaced."""
        return Space.of({axis.name: axis.values for axis in self.axes} | dict(values))

    def points(self) -> Iterator[dict[str, Any]]:
        """Every combination, in order; ``plan.iterations`` may still be ``"grid"``."""
        names = [axis.name for axis in self.axes]
        for values in itertools.product(*(axis.values for axis in self.axes)):
            yield dict(zip(names, values, strict=True))

    def to_dict(self) -> dict[str, list[Any]]:
        """Values by field, as plain lists."""
        return {axis.name: list(axis.values) for axis in self.axes}


def _listed(value: Any) -> tuple[Any, ...]:
    given = value if isinstance(value, list | tuple) else [value]
    return tuple({repr(one): one for one in given}.values())  # a value may be a table


def _schemes(scenario: Scenario) -> list[str]:
    """The exact schemes that work in chunks, and what the scenario asks for."""
    chunked = [kind.name for kind in SCHEMES if kind.exact and kind.name.endswith("-chunked")]
    return [*chunked, scenario.plan.aggregation]


def _policies(scenario: Scenario) -> list[str]:
    """Rounds that may be zero, where there are such, and what the scenario asks for."""
    return ["spread", scenario.plan.rounds]


def _rates(scenario: Scenario) -> list[float]:
    own = scenario.training.learning_rate
    return [float(f"{factor * own:.6g}") for factor in _RATES]


def _exchanges(scenario: Scenario) -> list[Any]:
    """An exact mean in every iteration, or neighbours with one now and then; and the scenario's."""
    own = scenario.model_dump(mode="json", exclude_none=True)["plan"]["exchange"]
    return ["exact", {"every": 10, "final": True}, *([] if own == "exact" else [own])]


AXES: dict[str, Callable[[Scenario], list[Any]]] = {
    "plan.aggregation": _schemes,
    "plan.exchange": _exchanges,
    "plan.rounds": _policies,
    "plan.iterations": lambda scenario: [GRID],
    "training.learning_rate": _rates,
}
"""The default space: fields, and their values for a scenario. A field that this version of the
scenario does not have is left out."""


def geometric(longest: int, own: int | None) -> list[int]:
    """Numbers of iterations to try: a geometric grid up to the longest that is paid for.

    Args:
        longest: most iterations that the budgets pay for.
        own: the scenario's own number, from half of which the grid begins; None if it has none.

    Returns:
        At most five numbers, ascending.

    >>> geometric(800, 100), geometric(7, 100), geometric(246, None)
    ([50, 100, 200, 400, 800], [7], [15, 30, 60, 122, 246])
    """
    least = longest // 16 if own is None else min(own // 2, longest // 2)
    low = max(1, min(longest, max(_LEAST_ITERATIONS, least)))
    grid = np.floor(np.geomspace(low, longest, _GRID_POINTS) * (1 + 1e-12)).astype(int)
    return sorted(set(grid.tolist()))
