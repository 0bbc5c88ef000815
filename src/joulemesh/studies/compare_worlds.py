"""Compare methods in several worlds, so that intervals contain the world."""

from __future__ import annotations

__all__ = ["compare_worlds"]

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from joulemesh.results.comparison_worlds import WorldsComparison
from joulemesh.scenario import Scenario
from joulemesh.studies.compare import Progress, compare_methods
from joulemesh.world.redraw import worlds_of


def compare_worlds(
    scenario: Scenario,
    worlds: int,
    methods: Sequence[str] | str,
    equal: str | None,
    seeds: int | Sequence[int],
    *,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    **options: Any,
) -> WorldsComparison:
    """Compare methods in several worlds, one after another, and combine what was found.

    Args:
        scenario: what is asked; its own world is the first.
        worlds: how many.
        methods: as in `joulemesh.compare`.
        equal: as in `joulemesh.compare`.
        seeds: how many repetition seeds each world has. A list of them is refused: worlds that
            shared seeds would not be independent.
        target: as in `joulemesh.compare`, but one for all worlds.
        on_progress: called after every chunk of iterations.
        options: the rest, as in `joulemesh.compare`.

    Raises:
        ScenarioError: what is asked is wrong, in whichever world that shows.
    """
    found = []
    for k, mine in enumerate(worlds_of(scenario, worlds, seeds)):

        def tell(step: Progress, k: int = k) -> None:
            if on_progress is not None:
                on_progress(replace(step, world=k, worlds=worlds))

        found.append(
            compare_methods(mine, methods, equal, seeds, target=target, on_progress=tell, **options)
        )
    return WorldsComparison.of(scenario, found, target)
