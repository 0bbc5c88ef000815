"""Which exchange ends an iteration, where iterations differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

_Count = Annotated[int, Field(ge=1, strict=True)]


class ExchangePattern(BaseModel):
    """An exact average in some iterations, neighbours or nothing in the others.

    D-PSGD exchanges with neighbours only, Gossip-PGA averages exactly in every P-th iteration
    (``every = P``), a single merge in the last one (``final = true``), and SkipTrain alternates
    iterations with training and without (``train``, ``mix``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    between: Literal["neighbours", "none"] = Field(
        "neighbours", description="exchange of the iterations without an exact average"
    )
    times: _Count = Field(1, description="how often everybody mixes with all neighbours then")
    every: _Count | None = Field(None, description="exact average in every so many-th iteration")
    final: bool = Field(False, description="exact average in the last iteration")
    train: _Count | None = Field(None, description="iterations with training in a row")
    mix: _Count | None = Field(None, description="iterations without training that follow them")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.train is None) != (self.mix is None):
            raise ValueError("give train and mix together, or neither")
        if self.between == "none" and self.every is None and not self.final:
            raise ValueError('devices never exchange; give every or final, or between="neighbours"')
        return self

    @property
    def exact(self) -> bool:
        """Does some iteration end with an exact average?"""
        return self.every is not None or self.final

    def averages(self, iterations: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations that end with an exact average."""
        chosen = np.zeros(iterations, np.bool_)
        if self.every is not None:
            chosen[self.every - 1 :: self.every] = True
        if self.final:
            chosen[-1:] = True
        return chosen

    def trains(self, iterations: int) -> NDArray[np.bool_]:
        """bool [n]: the iterations in which devices may train."""
        if self.train is None or self.mix is None:
            return np.ones(iterations, np.bool_)
        return np.arange(iterations) % (self.train + self.mix) < self.train

    def __str__(self) -> str:
        """In words."""
        words = "nothing" if self.between == "none" else "neighbours"
        words += f" {self.times} times" if self.times > 1 and words == "neighbours" else ""
        when = [f"in every {_ordinal(self.every)} iteration"] if self.every else []
        when += ["in the last"] if self.final else []
        words += f", an exact average {' and '.join(when)}" if when else ""
        if self.train is not None:
            words += f"; {self.train} iterations with training, {self.mix} without, in turn"
        return words


def pattern_of(value: Any) -> Any:
    """A name as it is, a table as a pattern."""
    if value in ("exact", "neighbours"):
        return value
    known = ExchangePattern.model_fields
    if not isinstance(value, Mapping):
        raise ValueError(
            f'give "exact", "neighbours" or a table of {", ".join(known)}, not {value!r:.40}'
        )
    for name in value:
        if name not in known:
            raise ValueError(f"{name!r:.40} is not one of {', '.join(known)}")
    try:
        return ExchangePattern(**value)
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"][:1])
        raise ValueError(where + first["msg"].removeprefix("Value error, ")) from None


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else ends.get(number % 10, 'th')}"
