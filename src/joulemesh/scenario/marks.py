"""What a field of a scenario says about itself besides its type, default and description.

A field that is a file is completed in the shell, resolved against the scenario's folder, kept with
runs and sent to devices; one mark in its annotation does all of that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TABLES = (".csv", ".tsv", ".txt")
DATA = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".arrow")
"""Ends of names of files with samples."""


def _whole(value: str) -> str | None:
    return value


@dataclass(frozen=True)
class File:
    """The field may name a file.

    Attributes:
        ends: of names of such files, for the shell; empty for folders.
        path: the path in a value that is a text; None where it names something else.
        heads: what may stand before the path, for the shell.
        kept: a copy is kept with what is made from it.
    """

    ends: tuple[str, ...] = _TABLES
    path: Callable[[str], str | None] = _whole
    heads: tuple[str, ...] = ("",)
    kept: bool = True

    def path_in(self, value: Any) -> str | None:
        """The path in a value of the field, if it may name a file."""
        return self.path(value) if isinstance(value, str) and value else None


@dataclass(frozen=True)
class Ideal:
    """A value that leaves something of the radio out, and what it leaves out, in words.

    Attributes:
        value: as a plan names it; also where the field is unset.
        means: in words.
    """

    value: float | str
    means: str


@dataclass(frozen=True)
class _Columnless:
    """A field of the section ``devices`` that is no column of the device table."""


COLUMNLESS = _Columnless()


def table_file(value: str) -> str | None:
    """A table by its name, where other texts are columns of the device table."""
    return value if value.lower().endswith(_TABLES) else None


def python_file(value: str) -> str | None:
    """The file of ``FILE.py:NAME``; other texts are names."""
    path, colon, _ = value.rpartition(":")
    return path if colon and path.endswith(".py") else None


def after_colon(value: str) -> str | None:
    """The file of ``KIND:FILE``."""
    return value.partition(":")[2] or None


def data_file(value: str) -> str | None:
    """The file of a data set; its name stays one, even if a folder is called after it."""
    if value.startswith("folder:"):
        return value.removeprefix("folder:") or None
    return value if "." in Path(value).name else None
