"""A power cut at any moment of a run or comparison: resumed, it ends with the same bits."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from joulemesh.base.checksums import verified
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import using
from tests.power import SURVIVING, FullDisk, RecordingDisk, Step, after_a_cut
from tests.samples import sample
from tests.works import WORKS


@dataclass(frozen=True)
class Work:
    """Something that writes: what it does, what must come of it, and the steps of its writing."""

    do: Callable[[Path], None]
    folder: str  # with a manifest
    wanted: dict[str, bytes]
    steps: list[Step]
    writes: int = 0  # that need room on the disk

    def fault_of(self, place: Path) -> str:
        """What is wrong with the files after the work was done again; empty if nothing is."""
        for name, content in self.wanted.items():
            if (place / name).read_bytes() != content:
                return f"another {name}"
        found = verified(place / self.folder)
        litter = [path.name for path in place.rglob(".*.part")]
        return "; ".join([*found.lines(), *found.strangers, *litter])

    def after(self, at: int, how: str, seed: int, place: Path) -> str:
        """Cut the power, do the work again, and say what is wrong."""
        after_a_cut(self.steps, at, random.Random(seed), place, how)
        try:
            self.do(place)
        except JoulemeshError as error:
            return f"unresumable: {error}"
        return self.fault_of(place)


def recorded(kind: str, place: Path, forgets: str = "") -> Work:
    """Do some work once, and write down every step of its writing."""
    do, folder, names = WORKS[kind]
    with using(RecordingDisk(place, forgets)) as disk:
        do(place)
    wanted = {name: (place / name).read_bytes() for name in names}
    return Work(do, folder, wanted, disk.steps, disk.writes)


@pytest.fixture(scope="module", autouse=True)
def a_checkpoint_after_every_chunk() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr("joulemesh.study.run.SAVE_EVERY_S", 0.0)
    yield
    patch.undo()


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Work]]:
    """The recordings, each made once; what is compiled for them serves all that follows."""
    made: dict[str, Work] = {}

    def work(kind: str) -> Work:
        if kind not in made:
            made[kind] = recorded(kind, tmp_path_factory.mktemp(kind))
            gc.collect()
            gc.freeze()  # a run collects garbage four times, which else takes most of its time
        return made[kind]

    yield work
    gc.unfreeze()


@pytest.mark.parametrize("kind", WORKS)
def test_nothing_waits_for_a_sync_at_the_end(
    works: Callable[[str], Work], kind: str, tmp_path: Path
) -> None:
    work = works(kind)
    after_a_cut(work.steps, len(work.steps), random.Random(0), tmp_path, "none")
    assert work.fault_of(tmp_path) == ""


def cut_often(work: Work, cases: range, place: Path) -> None:
    """Cut at every step in turn (7 and the steps' number have no common divisor, as a rule)."""
    for case in cases:
        at, how = case * 7 % (len(work.steps) + 1), SURVIVING[case % len(SURVIVING)]
        assert work.after(at, how, case, place / str(case)) == "", (at, how, case)


# 24 cuts of a run always; 840 of it and 164 of a comparison in all.
CUTS = [("run", range(24))]
CUTS += [("run", range(40 * piece, 40 * piece + 40)) for piece in sample(range(1, 22), 1)]
CUTS += [("compare", range(8 * piece, 8 * piece + 8)) for piece in sample(range(1, 21), 1)]
CUTS += [("compare", range(4))]


@pytest.mark.parametrize(
    ("kind", "cases"),
    [CUTS[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in CUTS[1:])],
)
def test_a_power_cut_loses_nothing(
    works: Callable[[str], Work], kind: str, cases: range, tmp_path: Path
) -> None:
    cut_often(works(kind), cases, tmp_path)


@pytest.mark.parametrize(
    "piece", [1, *(pytest.param(k, marks=pytest.mark.slow) for k in sample((0, 2, 3, 4, 5), 1))]
)
def test_a_second_cut_while_resuming_after_the_first(
    works: Callable[[str], Work], piece: int, tmp_path: Path
) -> None:
    work = works("run")
    for case in range(5 * piece, 5 * piece + 5):
        rng, place = random.Random(case), tmp_path / str(case)
        first, second = place / "first", place / "second"
        at = rng.randint(0, len(work.steps))
        after_a_cut(work.steps, at, rng, first, rng.choice(SURVIVING))
        first.mkdir(exist_ok=True, parents=True)
        with using(RecordingDisk(first)) as disk:
            there = len(disk.steps)
            work.do(first)
        again = Work(work.do, work.folder, work.wanted, disk.steps)
        at = rng.randint(there, len(disk.steps))
        assert again.after(at, rng.choice(SURVIVING), case, second) == "", case


@pytest.mark.parametrize("forgets", ["sync", "sync_folder", "append"])
def test_a_missing_sync_is_noticed(
    works: Callable[[str], Work], forgets: str, tmp_path: Path
) -> None:
    """The cuts above would fail if any one of the syncs were left out."""
    works("run")  # compiled
    work = recorded("run", tmp_path / "forgetful", forgets)
    found = (
        work.after(case * 7 % len(work.steps), SURVIVING[case % 4], case, tmp_path / str(case))
        for case in range(100)
    )
    assert any(found)


def fill_up(work: Work, room: int, place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Let a write fail for want of room: one line says so, and nothing is lost."""
    place.mkdir()
    capfd.readouterr()
    with using(FullDisk(room)), pytest.raises(ScenarioError, match="No space left") as refusal:
        work.do(place)
    assert "\n" not in str(refusal.value)
    assert capfd.readouterr() == ("", "")
    work.do(place)
    assert work.fault_of(place) == "", room


@pytest.mark.parametrize("kind", WORKS)
def test_a_full_disk_is_one_line_and_no_loss(
    works: Callable[[str], Work], kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    work = works(kind)
    for room in range(0, work.writes, 9 if kind == "run" else 50):
        fill_up(work, room, tmp_path / str(room), capfd)


@pytest.mark.slow
@pytest.mark.parametrize("piece", sample(range(8), 1))
@pytest.mark.parametrize("kind", WORKS)
def test_every_write_may_find_the_disk_full(
    works: Callable[[str], Work],
    kind: str,
    piece: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    work = works(kind)
    for room in range(piece, work.writes, 8):
        fill_up(work, room, tmp_path / str(room), capfd)
