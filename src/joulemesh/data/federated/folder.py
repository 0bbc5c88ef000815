"""Folders of federated data by their contents: ``training.dataset = "folder:PATH"``."""

from __future__ import annotations

__all__ = ["read_folder", "stamp_of"]

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from joulemesh.data.dataset import Dataset
from joulemesh.data.federated.fedlab import is_fedlab, read_fedlab
from joulemesh.data.federated.leaf import is_leaf, read_leaf
from joulemesh.data.federated.shard import Arrays, Shard, joined
from joulemesh.data.reading import FOLDER, Reading
from joulemesh.errors import ScenarioError
from joulemesh.files.arrays import ArrayFile, open_arrays
from joulemesh.files.limits import DATA

_SHARDS, _TEST = "device-*.npz", "test.npz"


def read_folder(dataset: str, reading: Reading) -> Dataset:
    """Read a folder in which each device or user has its own samples.

    A folder of ``device-000.npz``, ``device-001.npz``, … (x_train and y_train, or x and y; x_test
    and y_test there or in ``test.npz``); one of LEAF (``train/`` and ``test/``, or ``all_data/``,
    of JSON files); or ``data.npz`` with the indices of each client in ``partition.npz`` or
    ``partition.json``, as FedLab keeps them.

    Args:
        dataset: ``folder:PATH``.
        reading: the share that is held out where nothing says what to test on, and the scaling.

    Returns:
        The data set, whose holders are the devices or users.

    Raises:
        ScenarioError: no such folder, or none of these.
    """
    folder = Path(dataset.removeprefix(FOLDER)).expanduser()
    if not folder.is_dir():
        raise ScenarioError(f"dataset = {dataset!r}: there is no folder {folder}; name one")
    shards = sorted(folder.glob(_SHARDS))
    if shards:
        return _of_shards(dataset, folder, shards, reading)
    if is_leaf(folder):
        return read_leaf(folder, dataset, reading)
    if is_fedlab(folder):
        return read_fedlab(folder, dataset, reading)
    raise ScenarioError(
        f"dataset = {dataset!r}: {folder} has neither {_SHARDS}, nor train/*.json or "
        "all_data/*.json (LEAF), nor partition.npz or partition.json (FedLab): name another"
    )


def stamp_of(dataset: str) -> tuple[tuple[int, int], ...]:
    """Sizes and times of change of a folder's files, by which it is known to be the same."""
    folder = Path(dataset.removeprefix(FOLDER)).expanduser()
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in found)


def _of_shards(dataset: str, folder: Path, paths: list[Path], reading: Reading) -> Dataset:
    shards = [_shard(path) for path in paths]
    test = folder / _TEST
    if not test.is_file():
        return joined(dataset, shards, reading)
    with _opened(test) as file:
        return joined(dataset, shards, reading, _arrays(test, file, "test"))


def _shard(path: Path) -> Shard:
    name = path.stem.removeprefix("device-")
    with _opened(path) as file:
        own = "x_test" in file and "y_test" in file
        test = _arrays(path, file, "test") if own else None
        return Shard(name, _arrays(path, file, "train"), test)


def _arrays(path: Path, file: ArrayFile, part: str) -> Arrays:
    def find(letter: str) -> NDArray[Any]:
        for name in (f"{letter}_{part}", letter):
            if name in file:
                return file[name]
        raise ScenarioError(
            f"{path} has no {letter}_{part}, only {', '.join(file.names[:8])}: save x_{part} and "
            f"y_{part}"
        )

    return find("x"), find("y")


class _opened:  # noqa: N801
    """An ``.npz`` file, with what is wrong with it in one line."""

    def __init__(self, path: Path) -> None:
        self._path, self._manager = path, open_arrays(path, DATA.now, packed=True)

    def __enter__(self) -> ArrayFile:
        try:
            return self._manager.__enter__()
        except (OSError, ValueError) as error:
            raise self._refusal(error) from None

    def __exit__(self, kind: Any, error: Any, where: Any) -> None:
        self._manager.__exit__(kind, error, where)
        if isinstance(error, OSError | ValueError) and not isinstance(error, ScenarioError):
            raise self._refusal(error) from None

    def _refusal(self, error: BaseException) -> ScenarioError:
        if isinstance(error, ScenarioError):
            return error
        reason = " ".join(str(error).split())[:120]
        return ScenarioError(
            f"{self._path} is not a readable .npz file ({reason}): write it again with numpy.savez"
        )
