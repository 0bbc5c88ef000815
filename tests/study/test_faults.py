"""Damaged folders: the same bits, or a refusal of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import faults


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> faults.Base:
    return faults.prepare(tmp_path_factory.mktemp("faults"))


def good(base: faults.Base, case: tuple[str, str, str, str], place: Path) -> None:
    came = faults.outcome(base, *case, place)
    assert came in ("same", "refused"), (case, came)


@pytest.mark.slow
def test_every_fault_and_command_once(base: faults.Base, tmp_path: Path) -> None:
    # A file for each pair of fault and command, another one each time.
    chosen = {}
    for number, case in enumerate(faults.cases(base)):
        key = (case[0], case[2], case[3])
        if key not in chosen or (number * 7919) % 13 == 0:
            chosen[key] = case
    for case in chosen.values():
        good(base, case, tmp_path)


@pytest.mark.slow
def test_the_whole_matrix(base: faults.Base, tmp_path: Path) -> None:
    for case in faults.cases(base):
        good(base, case, tmp_path)
