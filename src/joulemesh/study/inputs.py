"""A copy of what a run or a comparison was made from, so that its folder can travel."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from joulemesh.base.bounded import read_bounded
from joulemesh.base.checksums import sha256_of
from joulemesh.base.files import make_folder, write_bytes, write_text
from joulemesh.data import Dataset
from joulemesh.data.arrays import write_npz
from joulemesh.data.own import is_on_disk
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import FOLDER, RECORD, input_files, with_files
from joulemesh.study.identity import file_digest
from joulemesh.training.digests import data_digest
from joulemesh.training.prepare import OWN_DATA

__all__ = ["FOLDER", "keep_inputs", "portable"]

# Larger files stay where they are; their digest is recorded.
_MOST_BYTES = 64 * 2**20
_PACKED = (".gz", ".xz")
_DATA = OWN_DATA.removeprefix("./")


def _copies(scenario: Scenario) -> dict[str, str]:
    """The relative names of the files that are copied, by field."""
    return {
        field: f"{FOLDER}/{field.replace('.', '-')}{_suffix(path)}"
        for field, path in _files(scenario).items()
        if path.stat().st_size <= _MOST_BYTES and not is_on_disk(str(path))
    }


def _files(scenario: Scenario) -> dict[str, Path]:
    """Files that a scenario names; data in memory only have the name of one."""
    found = input_files(scenario)
    if scenario.training.dataset == OWN_DATA:
        found.pop("training.dataset", None)
    return found


def portable(scenario: Scenario) -> Scenario:
    """The scenario with its files' names relative to a folder that holds copies of them.

    Files over 64 MiB are not copied and keep their names.
    """
    return with_files(scenario, _copies(scenario))


def keep_inputs(
    scenario: Scenario,
    folder: Path,
    data: Dataset | None = None,
    *,
    own_model: bool = False,
    code: Sequence[Path] = (),
) -> list[str]:
    """Copy what a scenario names into a folder, with a record of it.

    Args:
        scenario: what was asked.
        folder: of the run or study.
        data: what is learned from; kept if the user gave it in memory.
        own_model: whether the user gave the model, which cannot be kept.
        code: the user's own files that were run before.

    Returns:
        The relative names of what was written.
    """
    keeper, copies = _Keeper(folder), _copies(scenario)
    for field, path in _files(scenario).items():
        keeper.file(field, path, copies.get(field))
    if data is not None and scenario.training.dataset == OWN_DATA:
        keeper.data(data)
    for path in code:
        keeper.file(f"code.{path.stem}", path, f"{FOLDER}/{path.name}")
    if own_model:
        keeper.record["own_model"] = True
    return keeper.written()


def _suffix(path: Path) -> str:
    """What the name ends with; readers go by it.

    >>> _suffix(Path("a.b.csv")), _suffix(Path("a.csv.gz"))
    ('.csv', '.csv.gz')
    """
    return "".join(path.suffixes[-2:]) if path.suffix.lower() in _PACKED else path.suffix


class _Keeper:
    """Writes copies into a folder, and what they are copies of into its record."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record: dict[str, Any] = {}
        self._names: list[str] = []

    def file(self, field: str, path: Path, kept: str | None) -> None:
        """Record a file, and copy it unless it has no name to be kept under."""
        size, digest = path.stat().st_size, file_digest(field, path)
        known = {"name": path.name, "bytes": size, "sha256": digest, "kept": kept}
        self.record.setdefault("files", {})[field] = known
        if kept is not None:
            self._write(kept, read_bounded(path, size))

    def data(self, data: Dataset) -> None:
        """Write data that the user gave in memory."""
        arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
        size = sum(array.nbytes for array in arrays)
        known = {"name": Path(_DATA).name, "bytes": size, "samples_sha256": data_digest(data)}
        if size <= _MOST_BYTES:
            file = io.BytesIO()
            write_npz(data, file)
            self._write(_DATA, file.getvalue())
            path = self.folder / _DATA
            known |= {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
        kept = _DATA if size <= _MOST_BYTES else None
        self.record.setdefault("files", {})["training.dataset"] = {**known, "kept": kept}

    def _write(self, name: str, content: bytes) -> None:
        make_folder(self.folder / FOLDER)
        write_bytes(self.folder / name, content)
        self._names.append(name)

    def written(self) -> list[str]:
        """Write the record, if there is anything in it; all names relative to the folder."""
        if self.record:
            make_folder(self.folder / FOLDER)
            write_text(self.folder / RECORD, json.dumps(self.record, indent=1) + "\n")
            self._names.append(RECORD)
        return self._names
