"""One scenario carried out in several worlds, so that error bars contain the world."""

from __future__ import annotations

__all__ = ["over_worlds"]

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from joulemesh.errors import InfeasibleError
from joulemesh.results.result import Result
from joulemesh.results.result_worlds import WorldRun, WorldsResult
from joulemesh.runs.worlds_folder import Asked, WorldsFolder
from joulemesh.scenario import Scenario
from joulemesh.training.driver import DivergedError
from joulemesh.training.jax.distributed import hosts
from joulemesh.world.redraw import worlds_of

One = Callable[[int, Scenario, Path | None], Result]
"""(number of the world, its scenario, its folder) -> its run."""


def over_worlds(
    wanted: Asked,
    one: One,
    *,
    out: str | Path | None = None,
    resume: bool = False,
) -> WorldsResult:
    """Carry out a scenario in several worlds, one after another.

    Args:
        wanted: what is asked: the scenario, whose own world is the first, and how many worlds. A
            list of seeds is refused: worlds that shared seeds would not be independent.
        one: carries out one of them.
        out: a new folder for all.
        resume: go on with the worlds in ``out``, if there are any.

    Returns:
        What came of each. A world that cannot be planned, or in which training diverges, is in it
        with the reason.

    Raises:
        ScenarioError: the scenario is wrong, in whichever world that shows.
    """
    scenario, seeds = wanted.scenario, wanted.seeds
    drawn = worlds_of(scenario, wanted.worlds, seeds)
    assert isinstance(seeds, int)
    folder = None if out is None else WorldsFolder(out)
    done: list[WorldRun] = []
    with ExitStack() as stack:
        if folder is not None:
            _on_leader(lambda: folder.take(wanted, resume=resume, stack=stack))
        for k, mine in enumerate(drawn):
            try:
                found = one(k, mine, None if folder is None else folder.world(k))
                # All worlds learn from the same data: one copy is enough.
                shared = next((w.result.dataset for w in done if w.result), found.dataset)
                done.append(WorldRun(mine.seed, replace(found, dataset=shared)))
            except InfeasibleError as error:
                done.append(WorldRun(mine.seed, None, "infeasible", str(error)))
            except DivergedError as error:
                done.append(WorldRun(mine.seed, None, "diverged", str(error)))
        result = WorldsResult(scenario, tuple(done))
        if folder is not None:
            _on_leader(lambda: folder.finish(result.to_csv(), result.summary()))
    return result


def _on_leader(action: Callable[[], None]) -> None:
    """Do something on the process that writes; a refusal there is one of all."""

    def told() -> str:
        action()
        return ""

    hosts.on_leader(told)
