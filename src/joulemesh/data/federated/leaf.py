"""Data sets of LEAF: JSON files with ``users``, ``num_samples`` and ``user_data``.

Source: Caldas et al., "LEAF: A Benchmark for Federated Settings", arXiv:1812.01097.
"""

from __future__ import annotations

__all__ = ["is_leaf", "read_leaf"]

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.dataset import Dataset
from joulemesh.data.federated.shard import Arrays, Shard, joined
from joulemesh.data.reading import Reading
from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import read_json
from joulemesh.files.limits import DATA

_KEYS = ("users", "num_samples", "user_data")
_JSON_TAKES = 8  # bytes in memory for a byte of JSON, about


def is_leaf(folder: Path) -> bool:
    """Does a folder look like one of LEAF's: ``train/`` and ``test/``, or ``all_data/``?"""
    return any(_files(folder / part) for part in ("train", "all_data"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def read_leaf(folder: Path, name: str, reading: Reading) -> Dataset:
    """Read the folder of a data set: that with ``train`` and ``test``, or ``all_data``, in it.

    Args:
        folder: which.
        name: of the data, for messages.
        reading: the share of each user's samples that is held out where there is no ``test``, and
            whether samples are scaled.

    Raises:
        ScenarioError: a file that is not LEAF's, users named twice or without data, or samples
            that are not numbers of one shape.
    """
    train = _users(folder / ("train" if _files(folder / "train") else "all_data"))
    test = _users(folder / "test") if _files(folder / "test") else {}
    shards = [Shard(user, arrays, test.get(user)) for user, arrays in train.items()]
    strangers = [arrays for user, arrays in test.items() if user not in train]
    others = None
    if strangers:  # LEAF also splits by user: then those of the test set never train
        x, y = zip(*strangers, strict=True)
        others = np.concatenate(x), np.concatenate(y)
    return joined(name, shards, reading, others)


def _users(folder: Path) -> dict[str, Arrays]:
    found: dict[str, Arrays] = {}
    for path in _files(folder):
        record = _record(path)
        for user, count in zip(record["users"], record["num_samples"], strict=True):
            if user in found:
                raise ScenarioError(f"{path}: the user {user!r:.60} is there twice: keep one")
            found[user] = _samples(path, str(user), count, record["user_data"].get(user))
    return found


def _record(path: Path) -> dict[str, Any]:
    record: Any
    try:
        record = read_json(path, DATA.now // _JSON_TAKES)
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error.strerror}): check the file") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:120]
        raise ScenarioError(f"{path} is not JSON ({reason}): write it again") from None
    lacking = [key for key in _KEYS if not isinstance(record, dict) or key not in record]
    if lacking:
        raise ScenarioError(f"{path} has no {lacking[0]!r}, which files of LEAF have: name others")
    users, counts = record["users"], record["num_samples"]
    if len(users) != len(counts) or not isinstance(record["user_data"], dict):
        raise ScenarioError(
            f"{path} has {len(users)} users and {len(counts)} entries of num_samples: make them "
            "equal"
        )
    return dict(record)


def _samples(path: Path, user: str, count: Any, data: Any) -> Arrays:
    if not isinstance(data, dict) or "x" not in data or "y" not in data:
        raise ScenarioError(f"{path}: user_data has no x and y of {user!r:.60}: add them")
    x, y = _numbers(path, user, data["x"]), np.asarray(data["y"])
    if len(y) != count:
        raise ScenarioError(
            f"{path}: {user!r:.60} has {len(y)} labels, and num_samples says {count}: correct one"
        )
    return x, y


def _numbers(path: Path, user: str, values: Any) -> NDArray[Any]:
    try:
        x = np.asarray(values)
    except ValueError:
        x = np.empty(0, object)
    if x.dtype.kind not in "biuf" or (len(x) and x.ndim < 2):
        raise ScenarioError(
            f"{path}: samples of {user!r:.60} are not lists of numbers of one length (texts of "
            "Shakespeare and Sent140 must be encoded first): save numbers"
        )
    return x.astype(np.float32) if x.dtype.kind == "f" else x
