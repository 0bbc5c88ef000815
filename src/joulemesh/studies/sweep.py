"""Compare methods at every combination of some fields' values.

Every combination is a comparison of its own: planned, trained and kept as `joulemesh.compare` does
it, with the same repetition seeds everywhere. A combination that has no plan is a row that says
why, and the others go on.
"""

from __future__ import annotations

__all__ = ["Progress", "sweep_scenario"]

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from joulemesh.results.sweep import Sweep
from joulemesh.results.sweep_point import Point
from joulemesh.studies.compare import Options
from joulemesh.studies.compare import Progress as Step
from joulemesh.studies.outlook import Asked, Outlook, prepared


@dataclass(frozen=True)
class Progress:
    """How far a sweep has come.

    Attributes:
        position: number of the combination at work, from 0.
        combinations: how many there are.
        share: of the device-steps that were missing at the beginning, what is done.
        step: the comparison's own progress.
    """

    position: int
    combinations: int
    share: float
    step: Step


OnProgress = Callable[[Progress], None]
OnPoint = Callable[[Sequence[Point]], None]


def sweep_scenario(
    asked: Asked,
    ahead: Sequence[Outlook],
    on_progress: OnProgress | None = None,
    on_point: OnPoint | None = None,
    **options: Unpack[Options],
) -> Sweep:
    """Train what is missing, combination by combination.

    Args:
        asked: the sweep.
        ahead: what `outlooks` found.
        on_progress: called after every chunk of iterations.
        on_point: called after every combination, with all points so far.
        options: as in `joulemesh.compare`.

    Returns:
        The sweep.
    """
    points: list[Point] = []
    computed = 0
    rates: tuple[float, ...] = ()
    libraries: dict[str, None] = {}
    for one, tell in zip(ahead, _tellers(ahead, on_progress), strict=True):
        at = one.combination.at
        if one.refused:
            points.append(Point.without_runs(at, asked.methods, asked.seeds, one.reason))
        else:
            found = prepared(asked, one.combination, options).carry_out(tell)
            computed, rates = computed + found.computed, found.rates
            libraries[found.library] = None
            points.append(Point.found(at, found))
        if on_point is not None:
            on_point(points)
    return Sweep(
        asked.scenario,
        asked.varied,
        asked.methods,
        asked.equal,
        asked.seeds,
        tuple(points),
        options.get("target"),
        computed,
        rates,
        libraries=tuple(libraries) or ("jax",),
    )


def _tellers(
    ahead: Sequence[Outlook], on_progress: OnProgress | None
) -> Iterator[Callable[[Step], None]]:
    """For each combination, who hears of its methods and tells how far the whole sweep is."""
    whole, before = max(1, sum(one.steps for one in ahead)), 0
    for position, one in enumerate(ahead):

        def tell(step: Step, k: int = position, begun: int = before, own: int = one.steps) -> None:
            if on_progress is not None:
                within = step.completed / step.iterations if step.iterations else 1.0
                share = (begun + own * (step.position + within) / step.methods) / whole
                on_progress(Progress(k, len(ahead), min(share, 1.0), step))

        yield tell
        before += one.steps
