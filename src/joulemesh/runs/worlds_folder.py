"""The folder of a scenario's worlds.

scenario.toml  inputs/  worlds.json   what is asked, and how many worlds; at the start
world-0/  world-1/ …                  the run folder of each world that can be carried out
summary.csv  summary.json             each world, and means with intervals over worlds; at the end
"""

from __future__ import annotations

__all__ = ["Asked", "WorldsFolder"]

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.files import make_folder, write_text
from joulemesh.files.bounded import read_json
from joulemesh.files.limits import RECORD
from joulemesh.files.lock import LOCK, FolderLock
from joulemesh.files.manifest import MANIFEST
from joulemesh.files.whole import sweep
from joulemesh.runs.identity import difference
from joulemesh.runs.inputs import FOLDER as INPUTS
from joulemesh.runs.inputs import asked, keep_inputs, portable
from joulemesh.scenario import Origin, Scenario

_MARK = "worlds.json"
_START = {"scenario.toml", INPUTS}


@dataclass(frozen=True)
class Asked:
    """What a folder of worlds was begun for.

    Attributes:
        scenario: of the first world.
        worlds: how many.
        seeds: how many repetition seeds each has.
        deterministic: as in `run`.
        method: as in `run`.
        equal: as in `run`.
    """

    scenario: Scenario
    worlds: int
    seeds: int | Sequence[int]
    deterministic: bool
    method: str | None = None
    equal: str | None = None


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

    def asked(self) -> Asked:
        """What the folder was begun for."""
        path = self.path / _MARK
        try:
            said = read_json(path, RECORD.now)
            origins = {name: Origin.parse(text) for name, text in said["origins"].items()}
            numbers = int(said["worlds"]), int(said["seeds"]), bool(said["deterministic"])
            method, equal = said.get("method"), said.get("equal")
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
        scenario = Scenario.load(self.path / "scenario.toml").with_origins(origins)
        return Asked(scenario, *numbers, method, equal)

    def as_left(self) -> str:
        """What the folder was begun for, as JSON; empty if it holds no worlds."""
        if not self.started:
            return ""
        was = self.asked()
        left = {
            "scenario": was.scenario.to_json(),
            "origins": {name: str(origin) for name, origin in was.scenario.origins().items()},
            "seeds": was.seeds,
            "deterministic": was.deterministic,
            "finished": False,  # single worlds know
            "method": was.method,
            "equal": was.equal,
            "worlds": was.worlds,
        }
        return json.dumps(left)

    def take(self, wanted: Asked, *, resume: bool, stack: ExitStack) -> None:
        """Make the folder and hold it, or go on with the worlds in it.

        Args:
            wanted: more worlds than before are added.
            resume: a folder that holds worlds is taken.
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
        if inside and not (resume and (begun or inside <= _START)):
            more = ", or add --resume to go on with the worlds in it" if begun else ""
            raise ScenarioError(f"{self.path} exists and is not empty; choose another --out{more}")
        if begun:
            self._require_same(wanted)
        else:
            keep_inputs(wanted.scenario, self.path)
            write_text(self.path / "scenario.toml", portable(wanted.scenario).to_toml())
        origins = {name: str(origin) for name, origin in wanted.scenario.origins().items()}
        said = {
            "worlds": wanted.worlds,
            "seeds": wanted.seeds,
            "deterministic": wanted.deterministic,
            "method": wanted.method,
            "equal": wanted.equal,
            "origins": origins,
        }
        write_text(self.path / _MARK, json.dumps(said, indent=1) + "\n")

    def _require_same(self, wanted: Asked) -> None:
        then, now = (
            {
                "asked": asked(a.scenario),
                "seeds": a.seeds,
                "deterministic": a.deterministic,
                "method": a.method,
                "equal": a.equal,
            }
            for a in (self.asked(), wanted)
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
