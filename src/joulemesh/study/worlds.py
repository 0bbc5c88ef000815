"""One scenario carried out in several worlds, so that error bars contain the world.

The folder of all:

scenario.toml  inputs/  worlds.json   what is asked, and how many worlds; at the start
world-0/  world-1/ …                  the run folder of each world that can be carried out
summary.csv  summary.json             each world, and means with intervals over worlds; at the end
"""

from __future__ import annotations

__all__ = ["WorldsFolder", "over_worlds"]

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from joulemesh.base.bounded import read_json
from joulemesh.base.checksums import MANIFEST
from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.base.files import make_folder, sweep, write_text
from joulemesh.base.lock import LOCK, FolderLock
from joulemesh.scenario import Origin, Scenario
from joulemesh.study.identity import asked, difference
from joulemesh.study.inputs import FOLDER as INPUTS
from joulemesh.study.inputs import keep_inputs, portable
from joulemesh.study.request import RunRequest
from joulemesh.study.result import Result
from joulemesh.study.result_worlds import WorldRun, WorldsResult
from joulemesh.training import hosts
from joulemesh.training.driver import DivergedError
from joulemesh.world.redraw import worlds_of

_MARK = "worlds.json"
_START = {"scenario.toml", INPUTS}

One = Callable[[int, RunRequest], Result]
"""(number of the world, its request) -> its run."""


class WorldsFolder:
    """The folder of a scenario's worlds.

    Args:
        path: of the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def started(self) -> bool:
        """Does the folder hold worlds?"""
        return (self.path / _MARK).is_file()

    def world(self, k: int) -> Path:
        """The run folder of a world."""
        return self.path / f"world-{k}"

    def request(self) -> RunRequest | None:
        """What the folder was begun for; None if it holds no worlds."""
        if not self.started:
            return None
        path = self.path / _MARK
        try:
            said = read_json(path)
            origins = {name: Origin.parse(text) for name, text in said["origins"].items()}
            scenario = Scenario.load(self.path / "scenario.toml").with_origins(origins)
            return RunRequest.read(scenario, {**said, "worlds": int(said["worlds"])})
        except ScenarioError:
            raise
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            raise ScenarioError(
                f"{path} is damaged ({type(error).__name__}); restore it from a copy, or choose "
                "another --out"
            ) from None

    def take(self, wanted: RunRequest, stack: ExitStack) -> None:
        """Make the folder and hold it, or go on with the worlds in it.

        Args:
            wanted: more worlds than before are added; if it is to be resumed, a folder that
                holds worlds is taken.
            stack: holds the folder until its scope ends.
        """
        make_folder(self.path, remedy="choose another --out")
        stack.enter_context(FolderLock(self.path))
        sweep(self.path)
        inside = {entry.name for entry in self.path.iterdir()} - {LOCK}
        if MANIFEST in inside:
            raise ScenarioError(
                f"{self.path} holds a single run, not worlds; leave --worlds out to resume it, or "
                "choose another --out"
            )
        begun = self.started
        if inside and not (wanted.resume and (begun or inside <= _START)):
            more = ", or add --resume to go on with the worlds in it" if begun else ""
            raise ScenarioError(f"{self.path} exists and is not empty; choose another --out{more}")
        if begun:
            self._require_same(wanted)
        else:
            keep_inputs(wanted.scenario, self.path)
            write_text(self.path / "scenario.toml", portable(wanted.scenario).to_toml())
        origins = {name: str(origin) for name, origin in wanted.scenario.origins().items()}
        said = {**wanted.kept(), "origins": origins}
        write_text(self.path / _MARK, json.dumps(said, indent=1) + "\n")

    def _require_same(self, wanted: RunRequest) -> None:
        before = self.request()
        assert before is not None
        then, now = (
            {**one.kept(), "asked": asked(one.scenario), "worlds": None} for one in (before, wanted)
        )
        differs = difference(then, now)
        if differs:
            raise ScenarioError(
                f"the worlds in {self.path} are others: {differs}; resume them as they were "
                "started, or choose another --out"
            )

    def finish(self, table: str, summary: Mapping[str, Any]) -> None:
        """Write what came of all worlds, as CSV and as JSON."""
        write_text(self.path / "summary.csv", table)
        write_text(self.path / "summary.json", json.dumps(summary, indent=1) + "\n")


def over_worlds(request: RunRequest, one: One) -> WorldsResult:
    """Carry out a scenario in several worlds, one after another.

    Args:
        request: the scenario, whose own world is the first, and how many worlds. A list of seeds
            is refused: worlds that shared seeds would not be independent.
        one: carries out the request of one of them.

    Returns:
        What came of each. A world that cannot be planned, or in which training diverges, is in it
        with the reason.

    Raises:
        ScenarioError: the scenario is wrong, in whichever world that shows.
    """
    assert request.worlds is not None
    drawn = worlds_of(request.scenario, request.worlds, request.seeds)
    folder = None if request.out is None else WorldsFolder(request.out)
    done: list[WorldRun] = []
    with ExitStack() as stack:
        if folder is not None:
            _on_leader(lambda: folder.take(request, stack))
        for k, mine in enumerate(drawn):
            own = request.having(scenario=mine, worlds=None, out=folder and folder.world(k))
            try:
                found = one(k, own)
                # All worlds learn from the same data: one copy is enough.
                shared = next((w.result.dataset for w in done if w.result), found.dataset)
                done.append(WorldRun(mine.seed, replace(found, dataset=shared)))
            except InfeasibleError as error:
                done.append(WorldRun(mine.seed, None, "infeasible", str(error)))
            except DivergedError as error:
                done.append(WorldRun(mine.seed, None, "diverged", str(error)))
        result = WorldsResult(request.scenario, tuple(done))
        if folder is not None:
            _on_leader(lambda: folder.finish(result.to_csv(), result.summary()))
    return result


def _on_leader(action: Callable[[], None]) -> None:
    """Do something on the process that writes; a refusal there is one of all."""

    def told() -> str:
        action()
        return ""

    hosts.on_leader(told)
