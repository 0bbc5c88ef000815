"""The fault matrix: damage every file of a run, study and cache, and see what each command does.

Every case must end in the same bits as without the damage, or in a refusal of one line. Anything
else is a failure.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joulemesh
from benchmarks.common import machine, progress, publish, table
from joulemesh.base.errors import JoulemeshError
from joulemesh.base.files import LOCK, verified
from joulemesh.study.paper import report_of_folder

TITLE = "Damaged folders"
WORDS = {
    "running": "a run half way",
    "finished": "a finished run",
    "study": "a comparison",
    "cache": "a cache of runs",
}
SCENARIO = {
    "devices.count": 4,
    "plan.iterations": 8,
    "training.model": "logistic",
    "training.chunk_iterations": 2,
    "training.eval_every": 1,
}
DEVICES = "cycles_per_sample,energy_j\n" + "".join(f"{1000 + 100 * i},1.5\n" for i in range(4))
SAME = ("model.safetensors", "metrics.csv", "ledger.csv")


def _flip(path: Path, older: Path | None) -> None:
    content = bytearray(path.read_bytes())
    if content:
        content[len(content) // 2] ^= 4
    path.write_bytes(content)


def _empty(path: Path, older: Path | None) -> None:
    path.write_bytes(b"")


def _cut(path: Path, older: Path | None) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _stale(path: Path, older: Path | None) -> None:
    if older is not None and older.is_file():
        path.write_bytes(older.read_bytes())
    else:
        path.unlink()  # there was no such file then


def _link(path: Path, older: Path | None) -> None:
    real = path.with_name(f"{path.name}.elsewhere")
    path.rename(real)
    real.write_bytes(real.read_bytes()[:-1] + b"?")
    path.symlink_to(real)


def _unreadable(path: Path, older: Path | None) -> None:
    if os.geteuid() == 0:  # root may read everything: a folder in its place cannot be read either
        path.unlink()
        path.mkdir()
    else:
        path.chmod(0)


FAULTS: dict[str, Callable[[Path, Path | None], None]] = {
    "deleted": lambda path, older: path.unlink(),
    "emptied": _empty,
    "truncated": _cut,
    "one bit flipped": _flip,
    "stale": _stale,
    "symbolic link": _link,
    "unreadable": _unreadable,
}


@dataclass(frozen=True)
class Base:
    """Folders to damage copies of, and what comes of them undamaged."""

    scenario: joulemesh.Scenario
    folders: dict[str, Path]  # running, finished, study, cache
    older: dict[str, Path]
    wanted: dict[str, bytes]
    pages: dict[str, bytes]
    table: str


class _StopError(Exception):
    """Ends a run after some iterations."""


def _run_to(scenario: joulemesh.Scenario, folder: Path, iterations: int) -> None:
    def stop(progress: Any) -> None:
        if progress.completed >= iterations:
            raise _StopError

    try:
        joulemesh.run(scenario, out=folder, resume=True, on_progress=stop)
    except _StopError:
        return


def _compared(scenario: joulemesh.Scenario, cache: Path) -> Any:
    return joulemesh.compare(scenario, "adaptive,fixed:1", seeds=2, cache=cache)


def prepare(place: Path) -> Base:
    """Make the folders: a run half way and finished, a study, a cache."""
    from joulemesh.study import run as module

    (place / "devices.csv").write_text(DEVICES)
    table_field = {"devices.table": str(place / "devices.csv")}
    base = joulemesh.Scenario.preset("adaptive").override(
        {"plan.iterations": 8}
        | {k: v for k, v in SCENARIO.items() if k != "devices.count"}
        | table_field
    )
    before = module.SAVE_EVERY_S
    module.SAVE_EVERY_S = 0.0  # a checkpoint after every chunk
    try:
        running, early, done = place / "running", place / "early", place / "finished"
        _run_to(base, early, 2)
        shutil.copytree(early, running)
        _run_to(base, running, 6)
        shutil.copytree(running, done)
        joulemesh.run(base, out=done, resume=True)
    finally:
        module.SAVE_EVERY_S = before
    cache, study = place / "cache", place / "study"
    found = _compared(base, cache)
    found.save(study)
    pages = {}
    for name, folder in (("running", running), ("finished", done)):
        report_of_folder(folder, place / f"{name}.html")
        pages[name] = (place / f"{name}.html").read_bytes()
    return Base(
        base,
        {"running": running, "finished": done, "study": study, "cache": cache},
        {"running": early, "finished": running},
        {name: (done / name).read_bytes() for name in SAME},
        pages,
        found.table_csv(),
    )


def files_of(folder: Path) -> list[str]:
    """Names of the files in a folder; its lock holds nothing."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in names if name != LOCK)


def cases(base: Base) -> Iterator[tuple[str, str, str, str]]:
    """Every (folder, file, fault, command)."""
    commands = {
        "running": ("resume", "report", "verify"),
        "finished": ("resume", "report", "verify"),
        "study": ("resume", "report", "verify", "compare"),
        "cache": ("resume", "report", "verify", "compare"),
    }
    for kind, folder in base.folders.items():
        for name in files_of(folder):
            for fault in FAULTS:
                for command in commands[kind]:
                    yield kind, name, fault, command


def outcome(base: Base, kind: str, name: str, fault: str, command: str, place: Path) -> str:
    """What a command does: ``"same"``, ``"refused"``, or what is wrong."""
    folder = place / "copy"
    shutil.copytree(base.folders[kind], folder, symlinks=True)
    older = base.older.get(kind)
    try:
        whole = (folder / name).read_bytes()
        FAULTS[fault](folder / name, older / name if older is not None else None)
        there = (folder / name).is_file()
        if fault == "stale" and there and (folder / name).read_bytes() == whole:
            return "same"  # it has not changed since
        return _ACTIONS[command](base, kind, folder)
    except JoulemeshError as error:
        return "refused" if "\n" not in str(error) else f"several lines: {error}"
    except Exception as error:  # what a user would see as a traceback
        return f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(folder)


def _resume(base: Base, kind: str, folder: Path) -> str:
    joulemesh.run(base.scenario, out=folder, resume=True)
    if kind in ("study", "cache"):
        return "a run in a folder of something else"
    for name in SAME:
        if (folder / name).read_bytes() != base.wanted[name]:
            return f"another {name}"
    return "same"


def _report(base: Base, kind: str, folder: Path) -> str:
    report_of_folder(folder, folder / "page.html")
    return "same" if (folder / "page.html").read_bytes() == base.pages[kind] else "another page"


def _verify(base: Base, kind: str, folder: Path) -> str:
    return "refused" if not verified(folder).intact else "not noticed"


def _compare(base: Base, kind: str, folder: Path) -> str:
    """Compare with the folder as cache, or save into it as into a study that is made again."""
    found = _compared(base.scenario, folder if kind == "cache" else base.folders["cache"])
    if found.table_csv() != base.table:
        return "another table"
    if kind == "cache":
        return "same"
    found.save(folder)
    good = (folder / "table.csv").read_text("utf-8") == base.table and verified(folder).intact
    return "same" if good else "another study"


_ACTIONS: dict[str, Callable[[Base, str, Path], str]] = {
    "resume": _resume,
    "report": _report,
    "verify": _verify,
    "compare": _compare,
}


def main() -> None:
    """Run the whole matrix and publish the counts."""
    counts: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        progress("making the folders")
        base = prepare(Path(place))
        todo = list(cases(base))
        for number, case in enumerate(todo):
            if number % 100 == 0:
                progress(f"{number} of {len(todo)} cases")
            came = outcome(base, *case, Path(place))
            good = came in ("same", "refused")
            counts[case[3], came if good else "failed"] += 1
            if not good:
                failures.append(f"{' / '.join(case)}: {came}")
    record = {
        "machine": machine("jax"),
        "cases": sum(counts.values()),
        "files": {kind: len(files_of(folder)) for kind, folder in base.folders.items()},
        "failures": failures,
        "counts": {f"{command} {kind}": n for (command, kind), n in sorted(counts.items())},
    }
    publish("faults", TITLE, page(record), record)
    if failures:
        raise SystemExit(json.dumps(failures, indent=1))


def page(record: dict[str, Any]) -> str:
    """The page's body."""
    counts, kinds = record["counts"], ("same", "refused", "failed")
    commands = sorted({name.split()[0] for name in counts})
    rows = [[one, *(str(counts.get(f"{one} {kind}", 0)) for kind in kinds)] for one in commands]
    files = ", ".join(WORDS[kind] for kind in record["files"])
    failures = record["failures"]
    return (
        f"Every file of {files} was {', '.join(FAULTS)}, and each command was tried: "
        f"{record['cases']:,} cases, {len(failures)} failures. A case is good if the result has "
        "the same bits as without the damage, or if the command refuses with one line and exit "
        "code 2. A symbolic link leads to changed contents; a stale file is the one of an earlier "
        "moment, or missing if there was none; an unreadable one is a folder where the commands "
        "run as root, who may read everything.\n\n"
        + table(["command", "same bits", "refused", "failed"], rows)
        + ("\n\n" + "\n".join(f"- {line}" for line in failures) if failures else "")
    )


if __name__ == "__main__":
    main()
