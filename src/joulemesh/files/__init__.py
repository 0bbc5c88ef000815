"""Files that survive: written whole and durably, locked while in use, and verified by digest.
In: bytes and paths. Out: files and records of what they must hold.
May not know: what they mean (``scenario``, ``data``, ``planning``, ``study``).
"""

from __future__ import annotations

from joulemesh.files.disk import DISK, Disk, using
from joulemesh.files.whole import make_folder, write_bytes, write_text, write_whole

__all__ = [
    "DISK",
    "Disk",
    "make_folder",
    "using",
    "write_bytes",
    "write_text",
    "write_whole",
]
