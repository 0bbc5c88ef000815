"""Runs kept by content: what has been computed once is not computed again."""

from __future__ import annotations

__all__ = ["Cache", "default_folder"]

import os
from contextlib import suppress
from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files import write_bytes
from joulemesh.studies.record import Record, from_bytes, to_bytes


def default_folder() -> Path:
    """Where runs are kept unless told otherwise: in the user's cache folder.

    >>> default_folder().parts[-2:]
    ('joulemesh', 'compare')
    """
    import pooch

    return Path(os.fspath(pooch.os_cache("joulemesh"))) / "compare"


class Cache:
    """A folder of runs, one small file each, whole or not at all.

    Args:
        folder: where; made when first needed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(folder)
    ...     cache.keep("ab12", Record(diverged=3))
    ...     cache.find("ab12").diverged, cache.find("ffff")
    (3, None)
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.npz"

    def find(self, key: str | None) -> Record | None:
        """The run under a key; None if there is none, or if its file is damaged."""
        if key is None:
            return None
        with suppress(OSError, ValueError):
            return from_bytes(self._place(key).read_bytes())
        return None

    def keep(self, key: str | None, record: Record) -> None:
        """Keep a run; without a key it is not kept."""
        if key is None:
            return
        place = self._place(key)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(
                f"cannot keep runs in {self.folder}: {error.strerror}; choose another --cache"
            ) from None
        write_bytes(place, to_bytes(record))
