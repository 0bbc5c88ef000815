"""A run as its folder holds it: how far it has come, and what was kept, verified before use."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files.arrays import ArrayFile, open_arrays
from joulemesh.files.bounded import read_json
from joulemesh.files.limits import EVALUATIONS, PLAN, RECORD
from joulemesh.files.lock import FolderLock
from joulemesh.files.manifest import MANIFEST, Manifest
from joulemesh.files.verify import ahead_of
from joulemesh.planning.account import Account
from joulemesh.planning.export import origins_of, stored_record
from joulemesh.runs.accounts import load_account
from joulemesh.runs.identity import difference, repetition_seeds
from joulemesh.runs.inputs import FOLDER as INPUTS
from joulemesh.runs.inputs import asked
from joulemesh.scenario import Scenario

__all__ = ["SETTLED", "START", "KeptRun"]

START = ("scenario.toml", "plan.npz", "labels.npz", "versions.json")
SETTLED = "settled.npz"


class KeptRun:
    """One run on disk, to be looked at.

    Args:
        path: of the folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest = Manifest(self.path)

    @property
    def checkpoint(self) -> Path:
        """Where the engine's state is kept."""
        return self.path / "checkpoint"

    @property
    def started(self) -> bool:
        """Is there a run in the folder?"""
        return bool(self.manifest.commits)

    @property
    def finished(self) -> bool:
        """Has the run in the folder come to its end?"""
        return self.started and self.manifest.newest.facts.get("stage") == "finished"

    @property
    def completed(self) -> int:
        """Iterations that are kept."""
        return int(self.manifest.newest.facts["completed"]) if self.started else 0

    def refuse_damage(self, names: Iterable[str] | None = None, *, remedy: str) -> None:
        """Refuse to go on if a file of the newest commit is not what was committed.

        Args:
            names: to look at; all unless given.
            remedy: what the user can do.
        """
        damaged = self.manifest.damage(self.manifest.newest, names)
        for name, fault in damaged.items():
            more = f" (and {len(damaged) - 1} more files)" if len(damaged) > 1 else ""
            raise ScenarioError(f"{self.path / name} is damaged: {fault}{more}; {remedy}")

    def require_started(self) -> None:
        """Refuse a folder without a run, or one whose start is damaged."""
        if not self.started:
            fault = f" ({MANIFEST}: {self.manifest.fault})" if self.manifest.fault else ""
            raise ScenarioError(
                f"{self.path} is not a run folder: it has no readable {MANIFEST}{fault}; name one"
            )
        lacking = [name for name in START if name not in self.manifest.newest.files]
        if lacking:  # a comparison has a manifest, too
            raise ScenarioError(
                f"{self.path} is not a run folder: its {MANIFEST} names no {lacking[0]}; name one"
            )
        inputs = [name for name in self.manifest.newest.files if name.startswith(f"{INPUTS}/")]
        self.refuse_damage(
            [*START, *inputs], remedy="restore it from a copy, or run the scenario again"
        )

    def require_current(self) -> None:
        """Refuse a folder whose manifest is older than its files (or damaged), unless it is in use.

        A run that is under way writes ahead of its manifest all the time.
        """
        if self.manifest.fault:
            raise ScenarioError(
                f"{self.path / MANIFEST} is damaged: {self.manifest.fault}; add --resume to go on "
                "from what is intact"
            )
        for name, why in ahead_of(self.manifest).items():
            if not FolderLock.is_held(self.path):
                raise ScenarioError(f"{self.path / name}: {why}")

    def scenario(self) -> Scenario:
        """The scenario of the run in the folder, as resolved when it started."""
        self.require_started()
        with self._arrays("plan.npz") as file:
            origins = origins_of(stored_record(file))
        return Scenario.load(self.path / "scenario.toml").with_origins(origins)

    def start_record(self) -> dict[str, Any]:
        """What ``begin`` wrote of versions, seeds and everything else that decides the bits."""
        self.require_started()
        return self._read_json("versions.json")

    def as_left(self) -> str:
        """How the run in the folder was started and whether it is finished, as JSON; or empty."""
        if not self.started:
            return ""
        record, scenario = self.start_record(), self.scenario()
        left = {
            "scenario": scenario.to_json(),
            "origins": {name: str(origin) for name, origin in scenario.origins().items()},
            "seeds": record["seeds"],
            "deterministic": record.get("deterministic", False),
            "finished": self.finished,
            "method": record.get("method"),
            "equal": record.get("equal"),
        }
        return json.dumps(left)

    def method_left(self) -> str:
        """The method of the run in the folder and what is equal, as a JSON list; empty of none."""
        record = self.start_record() if self.started else {}
        return json.dumps([record.get("method"), record.get("equal")])

    def require_same(self, scenario: Scenario, seeds: int | list[int], **others: Any) -> str:
        """Refuse if the finished run is not the one that is asked for, or is damaged.

        Args:
            scenario: what is asked.
            seeds: how many repetition seeds, or which.
            others: more of the record of the start that must be the same.
        """
        chosen = repetition_seeds(scenario, seeds)
        wanted = {"asked": asked(scenario), "seeds": list(chosen), **others}
        self._require_no_difference(difference(self.start_record(), wanted))
        self.refuse_damage(remedy="restore it from a copy, or run the scenario again")
        return ""

    def require_start(self, start: Mapping[str, Any]) -> None:
        """Refuse if the run in the folder was started with anything else."""
        now = json.loads(json.dumps(start))
        self._require_no_difference(difference(self.start_record(), now))

    def _require_no_difference(self, differs: str | None) -> None:
        if differs:
            raise ScenarioError(
                f"the run in {self.path} is another one: {differs}; resume it as it was started, "
                "or choose another --out"
            )

    def metrics_text(self) -> str:
        """The evaluations that are kept, as ``metrics.csv`` holds them."""
        known = self.manifest.newest.files.get("metrics.csv")
        if known is None:
            return ""
        path = self.path / "metrics.csv"
        if known.bytes > EVALUATIONS.now:
            raise ScenarioError(
                f"{path} holds {known.bytes:,} bytes of evaluations, more than the "
                f"{EVALUATIONS.now:,} that are read on this machine: use one with more memory"
            )
        self.refuse_damage(["metrics.csv"], remedy="restore it from a copy")
        with path.open("rb") as file:
            return file.read(known.bytes).decode()

    def result(self) -> dict[str, Any] | None:
        """The figures of a finished run."""
        if not self.finished:
            return None
        self.refuse_damage(["result.json"], remedy="restore it from a copy")
        return self._read_json("result.json")

    def labels(self) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Label counts of the devices that the report shows, and the classes' names if any."""
        with self._arrays("labels.npz") as file:
            return np.asarray(file["counts"]), tuple(file["classes"].tolist())

    def account(self) -> Account:
        """The plan that was carried out, or the method's account, with the figures stored."""
        name = SETTLED if SETTLED in self.manifest.newest.files else "plan.npz"
        self.refuse_damage([name], remedy="restore it from a copy, or run the scenario again")
        return load_account(self.path / name, self.scenario())

    @contextmanager
    def _arrays(self, name: str) -> Iterator[ArrayFile]:
        """A file of arrays that this version, or an earlier one, wrote."""
        with self._undamaged(name), open_arrays(self.path / name, PLAN.now) as file:
            yield file

    def _read_json(self, name: str) -> dict[str, Any]:
        with self._undamaged(name):
            record = read_json(self.path / name, RECORD.now)
            if not isinstance(record, dict):
                raise ValueError("it is no record")
            return record

    @contextmanager
    def _undamaged(self, name: str) -> Iterator[None]:
        try:
            yield
        except ScenarioError:
            raise
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:160]
            raise ScenarioError(
                f"{self.path / name} is damaged: {reason}; restore it from a copy, or run the "
                "scenario again"
            ) from None
