"""FedLab's way of keeping a partition: the data, and the indices of each client's samples.

FedLab writes both as pickles, which run code when they are read. They are refused, with the line
that saves the same as arrays.
"""

from __future__ import annotations

__all__ = ["is_fedlab", "read_fedlab"]

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.npz import read_npz
from joulemesh.data.reading import HOLDER, Reading
from joulemesh.errors import ScenarioError
from joulemesh.files.arrays import open_arrays
from joulemesh.files.bounded import read_json
from joulemesh.files.limits import DATA

DATA_FILE = "data.npz"
INDICES = ("partition.npz", "partition.json")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")


def is_fedlab(folder: Path) -> bool:
    """Does a folder hold data and indices of clients, or FedLab's pickles of them?"""
    if any((folder / name).is_file() for name in INDICES):
        return True
    return any(path.suffix in _PICKLES for path in folder.iterdir())


def read_fedlab(folder: Path, name: str, reading: Reading) -> Dataset:
    """Read ``data.npz`` and the indices of each client in ``partition.npz`` or ``partition.json``.

    Args:
        folder: with both.
        name: of the data, for messages.
        reading: whether samples are scaled.

    Raises:
        ScenarioError: pickles; a file that is missing; indices that are out of range, given twice
            or empty.
    """
    _refuse_pickles(folder)
    data = read_npz(folder / DATA_FILE, replace(reading, holder=None))
    clients = _clients(folder)
    owner = np.full(len(data.y_train), -1, np.int32)
    for number, (client, indices) in enumerate(clients.items()):
        where = _checked(folder, client, indices, len(owner))
        twice = where[owner[where] >= 0]
        if len(twice):
            first = list(clients)[owner[twice[0]]]
            raise ScenarioError(
                f"{folder}: the sample {int(twice[0])} belongs to client {first} and to client "
                f"{client}: give it to one"
            )
        owner[where] = number
    held = np.flatnonzero(owner >= 0)
    return replace(
        data,
        name=name,
        x_train=data.x_train[held],
        y_train=data.y_train[held],
        holders=Holders(HOLDER, tuple(clients), owner[held]),
    )


def _refuse_pickles(folder: Path) -> None:
    pickled = sorted(path for path in folder.iterdir() if path.suffix in _PICKLES)
    if pickled and not any((folder / name).is_file() for name in INDICES):
        raise ScenarioError(
            f"{pickled[0]} is a pickle, which may run any code when it is read: where you trust "
            'it, save arrays instead: np.savez("partition.npz", **{str(k): v for k, v in '
            "client_dict.items()}), and the samples as data.npz"
        )


def _clients(folder: Path) -> dict[str, Any]:
    path = next(folder / name for name in INDICES if (folder / name).is_file())
    try:
        if path.suffix == ".npz":
            with open_arrays(path, DATA.now, packed=True) as file:
                return {client: file[client] for client in file.names}
        record = read_json(path, DATA.now)
    except ScenarioError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise ScenarioError(f"{path} cannot be read ({reason}): write it again") from None
    if not isinstance(record, dict):
        raise ScenarioError(f'{path} is no object of clients: write {{"0": [3, 17, …], …}}')
    return record


def _checked(folder: Path, client: str, indices: Any, samples: int) -> NDArray[np.int64]:
    where = np.asarray(indices)
    if where.ndim != 1 or where.dtype.kind not in "iu" or not len(where):
        raise ScenarioError(
            f"{folder}: the indices of client {client!r:.60} are {where.dtype} of shape "
            f"{where.shape}: give whole numbers, one at least"
        )
    if where.min() < 0 or where.max() >= samples:
        worst = int(where.min() if where.min() < 0 else where.max())
        raise ScenarioError(
            f"{folder}: client {client!r:.60} has the sample {worst}, and samples are "
            f"0..{samples - 1}: correct it"
        )
    if len(np.unique(where)) != len(where):
        raise ScenarioError(f"{folder}: client {client!r:.60} has a sample twice: keep it once")
    return where.astype(np.int64)
