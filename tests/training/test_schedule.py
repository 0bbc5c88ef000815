from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from joulemesh.base.errors import ScenarioError
from joulemesh.training import Schedule

TWO = np.ones((3, 2), int)


def test_everyone_is_there_and_meets_unless_told_otherwise() -> None:
    schedule = Schedule(TWO)
    assert (schedule.iterations, schedule.devices, schedule.kind) == (3, 2, "mean")
    assert schedule.active.all()
    assert schedule.exchanged.all()


def test_matrices_of_a_slice() -> None:
    each = np.stack([np.eye(2), np.full((2, 2), 0.5), np.eye(2)])
    assert Schedule(TWO, mixing=each).matrices(1, 3).tolist() == each[1:].tolist()
    assert Schedule(TWO, mixing=each[1:2]).matrices(1, 3).shape == (1, 2, 2)
    drawn = Schedule(TWO, mixing=lambda t: each[t])
    assert drawn.matrices(0, 2).tolist() == each[:2].tolist()
    assert (drawn.static, Schedule(TWO, mixing=each[1:2]).static) == (False, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rounds": np.ones(3, int)}, r"shape \(3,\): give \[iterations, devices\]"),
        ({"rounds": np.ones((3, 2))}, "float64: give integers"),
        ({"rounds": -TWO}, "-1..-1: give 0 or more"),
        (
            {"active": np.array([[1, 1], [1, 0], [1, 0]], bool)},
            "device 1 .* 1 round in iteration 2",
        ),
        ({"active": np.ones((2, 2), bool)}, r"active has shape \(2, 2\)"),
        ({"exchanged": np.ones(2, bool)}, r"exchanged \(2,\)"),
        ({"exact": np.ones(9, bool)}, r"exact has shape \(9,\)"),
        ({"mixing": "gossip"}, "'gossip' is unknown"),
        ({"mixing": np.full((1, 2, 2), 0.4)}, "row 0 of mixing matrix 0 sums to 0.8"),
        ({"mixing": np.full((1, 2, 2), np.nan)}, "sums to nan"),
        ({"mixing": np.eye(2)}, r"shape \(2, 2\): give \(3, 2, 2\)"),
        ({"mixing": sparse.csr_array(np.eye(3))}, r"shape \(3, 3\): give \(2, 2\)"),
        ({"mixing_rounds": 0}, "mixing_rounds = 0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as refused:
        Schedule(**{"rounds": TWO, **arguments})
    assert "\n" not in str(refused.value)


def test_an_iteration_without_devices_is_refused() -> None:
    active = np.array([[True], [False]])
    with pytest.raises(ScenarioError, match="no device is active in iteration 2"):
        Schedule(np.array([[1], [0]]), active)


def test_a_function_that_draws_bad_matrices_is_refused() -> None:
    with pytest.raises(ScenarioError, match="sums to 2"):
        Schedule(TWO, mixing=lambda t: np.ones((2, 2))).matrices(0, 1)


def test_digests_of_kept_runs_still_hold() -> None:
    """A digest names kept runs and checkpoints: one without exact means is as it always was."""
    mixing = sparse.csr_array(np.full((2, 2), 0.5))
    plain = Schedule(TWO, mixing=mixing, mixing_rounds=2)
    known = "f60fb6f692f4e1e2aad0077a1e3ca27aaa71e8723e2bb9a949d95593bd0fa295"
    assert plain.digest() == known
    exact = Schedule(TWO, mixing=mixing, mixing_rounds=2, exact=np.array([False, True, False]))
    assert exact.digest() != known
