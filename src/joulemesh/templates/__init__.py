"""Files of the package. In: a folder, or a file's name. Out: a project that runs as it stands
(scenario, device table, data, model, instructions); the parts of a Flower app.
May not know: what these mean (``scenario``, ``data``, ``models``).
"""

from __future__ import annotations

from contextlib import suppress
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, require_empty, write_bytes

__all__ = ["PROJECT", "flower_models", "flower_template", "lay_out"]

PROJECT = ("scenario.toml", "devices.csv", "data.py", "model.py", "README.md")
"""The files of a project, in the order in which one reads them."""


def lay_out(folder: str | Path) -> tuple[Path, ...]:
    """Write a project's files into a new or empty folder, all of them or none."""
    folder = Path(folder)
    require_empty(folder)
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


def flower_models() -> frozenset[str]:
    """The models that a Flower app can hold without a file of the user's own."""
    names = [at.name for at in resources.files("joulemesh.templates").joinpath("flower").iterdir()]
    found = [name.removeprefix("model_").removesuffix(".py.tmpl") for name in names
             if name.startswith("model_")]  # fmt: skip
    return frozenset(name for name in found if not name.startswith("own_"))


def flower_template(name: str) -> str:
    """The text of one part of a Flower app, with fields in braces where it has any."""
    at = resources.files("joulemesh.templates").joinpath("flower", f"{name}.tmpl")
    return at.read_text("utf-8")
