"""Which differences between methods are more than chance: paired tests, corrected."""

from __future__ import annotations

__all__ = ["Judgement", "judged", "merits"]

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.study.comparison import Comparison
from joulemesh.study.statistics import holm, t_test

FloatArray = NDArray[np.float64]


def merits(study: Comparison) -> dict[str, int]:
    """Figures of the table that say how well a method does: 1 where more is better, -1 where less.

    They are the score of the mean model and of the devices' own, and what it took to reach the
    target.
    """
    score, sign = study.score, study.metric.sign
    owned = {f"device_{score}": sign} if study.metric.devices else {}
    return {score: sign, **owned, "energy_to_target_j": -1, "time_to_target_s": -1}


@dataclass(frozen=True)
class Judgement:
    """One figure of all methods, tested against one of them.

    Attributes:
        best: position of the best method; None where no method has the figure.
        against: position of the method that the others are tested against, or None.
        p: for each method, the p-value of the paired t-test, corrected by Holm's method for the
            tests of this figure; NaN where there is no test.
    """

    best: int | None
    against: int | None
    p: tuple[float, ...]


def judged(study: Comparison, figure: str, baseline: str | None = None) -> Judgement:
    """Test one figure of all methods.

    Args:
        study: seeds of all methods see the same data, so that differences are paired by seed; in
            several worlds by seed, then by world, and worlds are what is counted.
        figure: one of `merits`.
        baseline: the method to test against; the best one unless given.

    Returns:
        The best, and the p-values.

    Raises:
        ScenarioError: the baseline was not compared.
    """
    rows = study.table()
    known = [k for k, row in enumerate(rows) if row[figure] is not None]
    sign = merits(study)[figure]
    best = max(known, key=lambda k: sign * rows[k][figure], default=None)
    against = best
    if baseline is not None:
        chosen = study.entries.index(study[baseline])
        against = chosen if chosen in known else None
    if against is None:
        return Judgement(best, None, (math.nan,) * len(rows))
    rival, runs = study.entries[against].name, study.runs
    raw = [
        t_test(runs.differences(entry.name, rival, figure))
        if k in known and k != against
        else math.nan
        for k, entry in enumerate(study.entries)
    ]
    return Judgement(best, against, tuple(holm(raw)))
