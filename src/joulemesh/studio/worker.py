"""`python -m joulemesh.studio.worker`: train or tune one scenario, telling each step as JSON.

The order comes as one line on standard input; when that closes, whoever asked is gone.
"""

from __future__ import annotations

__all__ = ["main"]

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.own_code import run_file
from joulemesh.base.units import duration, energy
from joulemesh.scenario import Scenario

Tell = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Do what is asked for, and say so."""
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_watch, daemon=True).start()
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is not for the page

    def tell(data: Mapping[str, Any]) -> None:
        out.write(json.dumps(_finite(data)) + "\n")

    try:
        for path in asked["load"]:
            run_file(Path(path), f"--load {path}")
        scenario = Scenario.from_json(asked["scenario"])
        {"simulate": _simulate, "tune": _tune}[asked["kind"]](scenario, asked["options"], tell)
    except JoulemeshError as error:
        tell({"state": "refused", "text": str(error)})


def _watch() -> None:
    """End with whoever asked."""
    while sys.stdin.read(4096):
        pass
    os._exit(1)


def _finite(value: Any) -> Any:
    """Plain JSON values: what is not a finite number becomes null."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _simulate(scenario: Scenario, options: Mapping[str, Any], tell: Tell) -> None:
    from joulemesh.study.run import run

    result = run(
        scenario,
        seeds=options.get("seeds", 1),
        on_stage=lambda words: tell({"stage": words}),
        on_metrics=lambda row: tell({"row": row}),
        on_progress=lambda made: tell({"done": made.completed, "of": made.iterations}),
    )
    figures = (result.final.test_score, result.energy_j[-1], result.time_s[-1])
    score, joules, seconds = (float(values.mean()) for values in figures)
    seeds, cost = len(result.seeds), f"{energy(joules)} in {duration(seconds)}"
    runs = "" if seeds == 1 else f" (mean of {seeds} seeds)"
    words = f"{result.metric.label} {result.metric.text(score)} for {cost}{runs}"
    tell({"state": "done", "text": words})


def _tune(scenario: Scenario, options: Mapping[str, Any], tell: Tell) -> None:
    from joulemesh.study.tune import tune

    known: set[tuple[int, int]] = set()

    def progress(made: Any) -> None:
        new = [one for one in made.judged if (one[0], one[2].candidate) not in known]
        known.update((rung, one.candidate) for rung, _, one in new)
        points = [
            {
                "rung": rung,
                "candidate": one.candidate,
                "name": name,
                "accuracy": one.accuracy,
                "joules": one.energy_j,
                "seconds": one.time_s,
            }
            for rung, name, one in new
            if one.score is not None
        ]
        tell({"stage": made.stage, "share": made.share, "best": made.best, "points": points})

    found = tune(
        scenario,
        objective=options.get("objective", "accuracy"),
        seeds=options.get("seeds", 2),
        candidates=options.get("candidates", 15),
        on_stage=lambda words: tell({"stage": words}),
        on_progress=progress,
    )
    winner = found.winner
    tell(
        {
            "state": "done",
            "text": f"{winner.candidate.name}: {100 * winner.accuracy.mean():.1f} % with "
            f"{winner.iterations:,} iterations",
            "changes": [
                {"field": field, "value": value, "how": "set"}
                for field, value in winner.candidate.changes.items()
            ],
        }
    )


if __name__ == "__main__":
    main()
