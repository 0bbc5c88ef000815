"""A project to start from. In: a folder. Out: in it, a scenario, a device table, data, a model and
instructions, which run as they stand; they are files of the package.
May not know: what these mean (``scenario``, ``data``, ``models``).
"""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files import make_folder, write_bytes

__all__ = ["PROJECT", "lay_out"]

PROJECT = ("scenario.toml", "devices.csv", "data.py", "model.py", "README.md")
"""The files of a project, in the order in which one reads them."""


def lay_out(folder: str | Path) -> tuple[Path, ...]:
    """Write a project's files into a new or empty folder, all of them or none.

    Args:
        folder: where; it is made if it is not there.

    Returns:
        The files.

    Raises:
        ScenarioError: the folder is not empty, is not a folder, or cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     [path.name for path in lay_out(Path(place, "fleet"))]
    ['scenario.toml', 'devices.csv', 'data.py', 'model.py', 'README.md']
    """
    folder = Path(folder)
    _require_empty(folder)
    new = not folder.exists()
    make_folder(folder)
    written: list[Path] = []
    try:
        for name in PROJECT:
            write_bytes(folder / name, _template(name).read_bytes())
            written.append(folder / name)
    except ScenarioError:
        with suppress(OSError):
            for path in written:
                path.unlink()
            if new:
                folder.rmdir()
        raise
    return tuple(written)


def _template(name: str) -> Traversable:
    return resources.files("joulemesh.templates").joinpath("project", name)


def _require_empty(folder: Path) -> None:
    try:
        inside = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ScenarioError(f"{folder} is a file; name a new folder") from None
    except OSError as error:
        raise ScenarioError(f"cannot read {folder}: {error.strerror}; name a new folder") from None
    if inside:
        shown = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
        raise ScenarioError(f"{folder} is not empty (it has {shown}); name a new folder")
