"""kill -9 at random instants of runs, comparisons and checkpoints: resumed to the same bits."""

from __future__ import annotations

import multiprocessing
import random
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from joulemesh.base.files import verified
from tests.samples import sample
from tests.works import WORKS

# Forked from a process that has imported everything and started nothing: each begins at once, and
# finds its programs in the compilation cache.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.works", "joulemesh.study.run", "joulemesh.views.plan_figure"])
LIMIT_S = 120.0


def work(kind: str, place: str) -> None:
    """Do some work, with a checkpoint after every chunk."""
    from joulemesh.study import run as module

    module.SAVE_EVERY_S = 0.0
    WORKS[kind][0](Path(place))


def started(kind: str, place: Path) -> BaseProcess:
    """A process at work, as soon as it has begun to write."""
    child = FORKS.Process(target=work, args=(kind, str(place)))
    child.start()
    while child.is_alive() and not any(place.iterdir()):
        time.sleep(0.002)
    return child


def ended(child: BaseProcess) -> int | None:
    child.join(LIMIT_S)
    return child.exitcode


@dataclass(frozen=True)
class Reference:
    """What must come of some work, and how long it writes."""

    wanted: dict[str, bytes]
    seconds: float


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reference]:
    made: dict[str, Reference] = {}
    for kind, (_, _, names) in WORKS.items():
        for _ in range(2):  # the first compiles
            place = tmp_path_factory.mktemp(kind)
            child, begun = started(kind, place), time.monotonic()
            assert ended(child) == 0
            seconds = time.monotonic() - begun
        made[kind] = Reference({n: (place / n).read_bytes() for n in names}, seconds)
    return made


def kill_and_resume(kind: str, known: Reference, seed: int, place: Path) -> bool:
    """Kill the work at an instant drawn from the seed, and resume it; was it under way?"""
    place.mkdir()
    child = started(kind, place)
    child.join(random.Random(seed).uniform(0.0, known.seconds))
    child.kill()
    killed = ended(child) == -9
    again = FORKS.Process(target=work, args=(kind, str(place)))
    again.start()
    assert ended(again) == 0, (kind, seed)
    for name, content in known.wanted.items():
        assert (place / name).read_bytes() == content, (kind, seed, name)
    found = verified(place / WORKS[kind][1])
    assert found.intact, (kind, seed, found.lines())
    assert not found.strangers
    assert not list(place.rglob(".*.part")), (kind, seed)
    return killed


RUNS = [("run", 10, piece) for piece in range(12)]
COMPARISONS = [("compare", 4, piece) for piece in range(20)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count", "piece"), sample(RUNS, 1) + sample(COMPARISONS, 2))
def test_killed_at_random_instants(
    references: dict[str, Reference], kind: str, count: int, piece: int, tmp_path: Path
) -> None:
    seeds = range(piece * count, piece * count + count)
    killed = [kill_and_resume(kind, references[kind], seed, tmp_path / str(seed)) for seed in seeds]
    assert any(killed)
