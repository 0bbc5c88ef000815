"""Runs kept by content: what has been computed once is not computed again."""

from __future__ import annotations

__all__ = ["Cache", "default_folder"]

from contextlib import suppress
from pathlib import Path

from joulemesh.files.cache import find, keep, require_usable, user_cache
from joulemesh.files.limits import KEPT_RUN
from joulemesh.studies.record import Record, from_bytes, to_bytes


def default_folder() -> Path:
    """Where runs are kept unless told otherwise: in the user's cache folder.

    >>> default_folder().parts[-2:]
    ('joulemesh', 'compare')
    """
    return user_cache() / "compare"


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

    @property
    def unfinished(self) -> Path:
        """Where trainings under way are kept, each in a folder of its own."""
        return self.folder / "unfinished"

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.run"

    def find(self, key: str | None) -> Record | None:
        """The run under a key; None if there is none, or if its file is damaged."""
        if key is None:
            return None
        content = find(self._place(key), KEPT_RUN.now)
        with suppress(ValueError):
            return None if content is None else from_bytes(content)
        return None

    def keep(self, key: str | None, record: Record) -> None:
        """Keep a run; without a key it is not kept."""
        if key is not None:
            keep(self._place(key), to_bytes(record))

    def require_usable(self) -> None:
        """Refuse a folder that runs could not be kept in, before they are computed."""
        require_usable(self.folder, "choose another --cache")
