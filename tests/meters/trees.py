"""Machines as their sensors show them, written down in ``recorded/``."""

from __future__ import annotations

__all__ = ["TREES", "planted", "write"]

from pathlib import Path

TREES = Path(__file__).with_name("recorded")


def planted(folder: Path, name: str) -> Path:
    """A folder with the files of a recorded tree, to be given as a meter's root."""
    for line in (TREES / f"{name}.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            path, _, content = line.partition(" = ")
            write(folder, path, content.replace("\\n", "\n").replace("\\0", "\0"))
    return folder


def write(root: Path, path: str, content: object) -> None:
    """Let one of the files show something else."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{content}\n", "utf-8")
