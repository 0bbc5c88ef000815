"""A file that is only ever added to, with the digest of what it holds."""

from __future__ import annotations

__all__ = ["GrowingFile"]

import hashlib
from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files.disk import DISK
from joulemesh.files.manifest import FileDigest


class GrowingFile:
    """Appends to a file; what is appended is on the disk when the call returns.

    Args:
        path: of the file.
        known: what it held at the last commit; the rest is cut off. A new file unless given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     grown = GrowingFile(Path(folder, "rows.csv"))
    ...     grown.append("a,b\\n")
    ...     then = grown.digest
    ...     grown.append("1,2\\n")
    ...     again = GrowingFile(grown.path, then)
    ...     grown.path.read_text(), again.digest == then
    ('a,b\\n', True)
    """

    def __init__(self, path: Path, known: FileDigest | None = None) -> None:
        self.path, self._size, self._sha256 = path, 0, hashlib.sha256()
        disk = DISK.get()
        if known is None:
            if path.exists() or path.is_symlink():
                disk.remove(path)
            return
        if path.stat().st_size > known.bytes:
            disk.truncate(path, known.bytes)
        with path.open("rb") as file:
            while piece := file.read(2**20):
                self._sha256.update(piece)
        self._size = known.bytes

    @property
    def digest(self) -> FileDigest:
        """Of what it holds now."""
        return FileDigest(self._size, self._sha256.hexdigest(), grows=True)

    def append(self, text: str) -> None:
        """Add text.

        Raises:
            ScenarioError: the disk is full or the file cannot be written.
        """
        data, disk = text.encode(), DISK.get()
        try:
            disk.append(self.path, data)
            if not self._size:
                disk.sync_folder(self.path.parent)
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self.path}: {error.strerror}; make room, then --resume"
            ) from None
        self._size += len(data)
        self._sha256.update(data)
