"""Packages that only some users have: imported when asked for, or refused with what to install."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from joulemesh.errors import JoulemeshError

__all__ = ["MissingPackageError", "frame", "require"]


class MissingPackageError(JoulemeshError, ImportError):
    """An optional package is not installed; the text has the line that installs it."""


def require(module: str, purpose: str, package: str | None = None) -> Any:
    """An optional package's module.

    Args:
        module: to import.
        purpose: what needs it, as the beginning of a sentence.
        package: its name for pip, if another.

    Returns:
        The module.

    Raises:
        MissingPackageError: it is not installed.

    >>> require("no_such_module", "drawing stars", "stars")
    Traceback (most recent call last):
    joulemesh.optional.MissingPackageError: drawing stars needs stars, which is not installed; ...
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        wanted = package or module
        # A package that is there may itself lack one; then that one has to be named.
        missing = wanted if (error.name or "").split(".")[0] == module.split(".")[0] else error.name
        raise MissingPackageError(
            f"{purpose} needs {missing}, which is not installed; pip install {missing}"
        ) from None


def frame(columns: dict[str, Any], index: str | None = None) -> Any:
    """A pandas DataFrame.

    Args:
        columns: by name.
        index: the column that names the rows.

    >>> import numpy as np
    >>> frame({"device": [0, 1], "spent_j": np.array([0.5, 1.5])}, "device")["spent_j"].sum().item()
    2.0
    """
    made = require("pandas", "a data frame").DataFrame(columns)
    return made if index is None else made.set_index(index)
