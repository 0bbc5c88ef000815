"""Folders of studies: what was asked, what was found, and how to do it again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import FolderLock, commit_all, make_folder, parse_json, sweep, write_text
from joulemesh.data import Dataset
from joulemesh.scenario import Scenario
from joulemesh.study.folder import flat
from joulemesh.study.identity import FOLDER, keep_inputs, portable
from joulemesh.training.software import software

Paths = Sequence[str | Path]


class Study(Protocol):
    """A comparison, a sweep or a tuning."""

    @property
    def scenario(self) -> Scenario: ...
    @property
    def own_data(self) -> Dataset | None: ...
    @property
    def own_model(self) -> bool: ...


@contextmanager
def held(folder: str | Path) -> Iterator[Path]:
    """Make the folder of a study if need be, and hold it."""
    place = make_folder(folder)
    with FolderLock(place):
        yield place


def begin(
    path: Path, asked: Mapping[str, Any], other: Callable[[Any, Any], str | None], *, grows: bool
) -> None:
    """Write what is asked; refuse a folder of another study, which may have grown if it can."""
    now = parse_json(json.dumps(asked))
    if path.exists():
        try:
            differs = other(parse_json(path.read_bytes().decode()), now)
        except ScenarioError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ScenarioError(f"{path} is damaged; remove it, or choose another --out") from None
        if differs:
            raise ScenarioError(
                f"{path.parent} holds another {path.stem}: {differs}; choose another --out"
            )
        if not grows:
            return
    write_text(path, json.dumps(now, indent=1) + "\n")


def write_asked(study: Study, place: Path, code: Paths) -> None:
    """Sweep away drafts, and keep the scenario with its files and the user's code."""
    sweep(place)
    files = [Path(path) for path in code]
    keep_inputs(study.scenario, place, study.own_data, own_model=study.own_model, code=files)
    write_text(place / "scenario.toml", portable(study.scenario).to_toml())


def write_found(
    path: Path, record: Mapping[str, Any], render: Callable[..., str], *libraries: str
) -> None:
    """Write a study's record and page, and take all files of its folder into the manifest."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    computed_by = software(*libraries)
    page = render(versions=flat(computed_by), when=now)
    write_text(path.parent / "report.html", page)
    whole = {**record, "versions": computed_by, "made": now}
    write_text(path, json.dumps(whole, indent=1) + "\n")
    commit_all(path.parent, stage=path.stem)


def seeds_option(scenario: Scenario, seeds: Sequence[int]) -> list[str] | None:
    """The option of a command that names repetition seeds; None for seeds that none can name."""
    usual = tuple(seeds) == tuple(range(scenario.seed, scenario.seed + len(seeds)))
    return ["--seeds", str(len(seeds))] if usual else None


def command_for(
    name: str,
    options: Sequence[str],
    code: Paths,
    *,
    target: float | None,
    rates: Sequence[float],
    tuned_on: int = 0,
) -> str:
    """The command that does a study again in its folder."""
    words = ["joulemesh", name, "scenario.toml", *options]
    words += [] if target is None else ["--target", repr(target)]
    words += ["--lr-grid", ",".join(map(repr, rates))] if rates else []
    words += ["--tune-seeds", str(tuned_on)] if tuned_on else []
    for path in code:
        words += ["--load", f"{FOLDER}/{Path(path).name}"]
    return shlex.join(words)
