"""How far `spread` is from the best possible under a total time, by an integer program.

    python -m benchmarks.spread [--cases 200] [--seed 0]

Random small cases: 2 to 5 devices, 2 to 6 iterations, rounds that differ up to tenfold in length,
batteries from less than a round per iteration to more than there is time for. Three integer
programs (SciPy's HiGHS) over all even plans, in which a device's rounds in two iterations differ by
one at most:

* alignment: the least time in which the same rounds of each device can be trained;
* rounds: the most rounds in the same time, if no device gets fewer than the common level gives it;
* any: the most rounds in the same time whoever trains them, also if slow devices never do.
"""

from __future__ import annotations

__all__ = ["Case", "cases", "least_time", "main", "most_rounds"]

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from joulemesh.planning.rounds import Profile, fit_time, level_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """One small problem.

    Attributes:
        iterations: n.
        most: int64 [N] rounds that the batteries pay for.
        round_s: float64 [N] seconds of a round.
        time_s: seconds of training in all.
    """

    iterations: int
    most: IntArray
    round_s: FloatArray
    time_s: float


def cases(count: int, seed: int) -> Iterator[Case]:
    """Random cases in which time is short."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, devices = int(rng.integers(2, 7)), int(rng.integers(2, 6))
        round_s = 10 ** rng.uniform(0, rng.choice([0.3, 0.6, 1.0]), devices)
        most = rng.integers(1, 1 + n * int(rng.integers(1, 5)), devices)
        whole = Profile.of(most, n, round_s).total_s
        yield Case(n, most, round_s, float(rng.uniform(0.1, 0.95) * whole))


def least_time(case: Case, rounds: IntArray) -> float:
    """Seconds of the shortest even plan in which every device trains so many rounds."""
    return _solve(case, rounds, rounds, weigh=False)


def most_rounds(case: Case, least: IntArray) -> int:
    """Rounds of the even plan with most of them in time, each device at its least or above."""
    return round(_solve(case, least, case.most, weigh=True))


def _solve(case: Case, least: IntArray, most: IntArray, *, weigh: bool) -> float:
    """Variables: q [N], y [n, N] (one more round), L [n]; the rounds are q + y."""
    n, count = case.iterations, len(most)
    size = count + n * count + n
    q, y = np.arange(count), count + np.arange(n * count).reshape(n, count)
    length = count + n * count + np.arange(n)
    rows, low, high = [], [], []

    def constrain(terms: dict[int, float], lowest: float, highest: float) -> None:
        row = np.zeros(size)
        for place, factor in terms.items():
            row[place] += factor
        rows.append(row)
        low.append(lowest)
        high.append(highest)

    for i in range(count):
        constrain({q[i]: n, **dict.fromkeys(y[:, i].tolist(), 1.0)}, least[i], most[i])
        for t in range(n):  # no iteration is shorter than anybody's training in it
            price = float(case.round_s[i])
            constrain({q[i]: price, y[t, i]: price, length[t]: -1.0}, -np.inf, 0.0)
    goal = np.zeros(size)
    if weigh:
        constrain(dict.fromkeys(length.tolist(), 1.0), 0.0, case.time_s)
        goal[q], goal[y] = -n, -1.0
    else:
        goal[length] = 1.0
    found = milp(
        goal,
        integrality=np.r_[np.ones(count + n * count), np.zeros(n)],
        bounds=Bounds(0.0, np.r_[np.full(count, np.inf), np.ones(n * count), np.full(n, np.inf)]),
        constraints=LinearConstraint(np.array(rows), low, high),
        options={"mip_rel_gap": 0.0, "time_limit": 20.0},
    )
    assert found.status == 0, found.message
    return float(-found.fun if weigh else found.fun)


def main() -> None:
    """Solve the cases and say what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    aligned, fair, anyhow = [], [], []
    for case in cases(asked.cases, asked.seed):
        rounds = fit_time(case.iterations, case.most, case.round_s, case.time_s)
        own_s = Profile.of(rounds, case.iterations, case.round_s).total_s
        aligned.append(own_s / max(least_time(case, rounds), 1e-300) if own_s else 1.0)
        level = level_of(case.iterations, case.most, case.round_s, case.time_s)
        fair.append((int(rounds.sum()), most_rounds(case, level)))
        anyhow.append((int(rounds.sum()), most_rounds(case, np.zeros_like(level))))
    print(f"{len(aligned)} cases")
    print(f"alignment: time over the least possible, largest {max(aligned):.9f}")
    for name, pairs in (("rounds", fair), ("any", anyhow)):
        short = np.array([1 - own / best if best else 0.0 for own, best in pairs])
        own, best = np.array(pairs).sum(axis=0)
        print(
            f"{name}: {own} of {best} rounds ({100 * (1 - own / best):.2f} % fewer than the best); "
            f"equal in {int((short == 0).sum())}, worst case {100 * short.max():.1f} % fewer, "
            f"{max(best - own for own, best in pairs)} rounds"
        )


if __name__ == "__main__":
    main()
