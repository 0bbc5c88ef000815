"""What a run is asked to do, in one form from the command line to the folder and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Origin, Scenario


def _numbers(seeds: int | Sequence[int]) -> int | tuple[int, ...]:
    return seeds if isinstance(seeds, int) else tuple(int(seed) for seed in seeds)


def _beside(default: Any = None) -> Any:
    """A field that a folder does not keep: a run may be resumed with another value."""
    return Field(default, exclude=True)


@dataclass(frozen=True)
class Progress:
    """How far a run has come, after a chunk."""

    completed: int  # iterations done
    iterations: int  # iterations in all
    # latest test accuracy of the mean model, or another score, mean over seeds; NaN before the
    # first. At the end that of the result, on all test samples
    accuracy: float
    energy_j: float  # joules spent so far
    seconds_left: float  # estimated wall time to the end
    world: int = 0  # number of the world, from 0
    score: str = "accuracy"  # what `accuracy` is, in words


class RunRequest(BaseModel):
    """What a run is asked to do: the command line builds it, `joulemesh.run` takes it."""

    # Fields are the arguments of `joulemesh.run`. Those without `_beside` decide the numbers: the
    # run's folder keeps them, and a resumed run has those that are not given anew. So a new field
    # needs no other place than this one, the signature of `run`, and an option of the command.

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True, extra="forbid")

    worlds: int | None = None
    seeds: Annotated[int | tuple[int, ...], BeforeValidator(_numbers)] = 1
    deterministic: bool = False
    method: str | None = None
    equal: str | None = None

    scenario: Scenario = Field(exclude=True)  # in files of its own
    model: Any = _beside()
    data: Any = _beside()
    out: Path | None = _beside()
    resume: bool = _beside(False)
    target: float | None = _beside()
    on_progress: Callable[[Progress], None] | None = _beside()
    on_metrics: Callable[[dict[str, int | float]], None] | None = _beside()
    on_stage: Callable[[str], None] | None = _beside()

    @classmethod
    def of(cls, **given: Any) -> Self:
        """A request with the fields that are given: None stands for one that is not."""
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            first = error.errors()[0]
            raise ScenarioError(
                f"{'.'.join(map(str, first['loc'][:1]))} = {first['input']!r:.60}: {first['msg']}"
            ) from None

    @classmethod
    def read(cls, scenario: Scenario, record: Mapping[str, Any]) -> Self:
        """What a folder keeps of a request."""
        kept = (name for name, field in cls.model_fields.items() if not field.exclude)
        return cls(scenario=scenario, **{name: record[name] for name in kept if name in record})

    def kept(self) -> dict[str, Any]:
        """What a folder keeps beside the scenario, as plain values."""
        return self.model_dump(mode="json")

    def having(self, **changes: Any) -> Self:
        """The same request with other values."""
        return self.model_copy(update=changes)

    def resumed(self, left: Self | None) -> Self:
        """The request, in which a folder's fields stand for those that are not given."""
        if left is None:
            return self
        return self.having(
            **{
                name: getattr(left, name)
                for name in left.kept()
                if name not in self.model_fields_set
            }
        )

    def identity(self) -> dict[str, Any]:
        """What the numbers of a world are asked to depend on, as plain values."""
        from joulemesh.study.identity import asked

        kept = {name: value for name, value in self.kept().items() if name != "worlds"}
        return {**kept, "asked": asked(self.scenario)}

    def record(
        self, library: str | None, identity: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Everything that the numbers of one world depend on; see `study.identity.record_of`."""
        from joulemesh.study.identity import chosen_seeds, record_of

        terms = self.identity()
        seeds = chosen_seeds(self.scenario, terms.pop("seeds"))
        return record_of(terms.pop("asked"), seeds, library, identity, **terms)

    def origins(self) -> dict[str, str]:
        """Where the fields of the scenario come from, as texts."""
        return {name: str(origin) for name, origin in self.scenario.origins().items()}

    def to_text(self) -> str:
        """What a folder keeps, with the scenario, as JSON: one process tells it the others."""
        scenario = {"scenario": self.scenario.to_json(), "origins": self.origins()}
        return json.dumps({**self.kept(), **scenario})

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The request that `to_text` wrote."""
        record = json.loads(text)
        origins = {name: Origin.parse(words) for name, words in record["origins"].items()}
        return cls.read(Scenario.from_json(record["scenario"]).with_origins(origins), record)
