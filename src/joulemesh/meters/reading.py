"""Files in which the system shows sensors, read with a refusal that says what to do."""

from __future__ import annotations

__all__ = ["flag", "model_of_board", "number_of", "text_of"]

import math
from contextlib import suppress
from pathlib import Path
from typing import IO

from joulemesh.meters.meter import MeterError

_MOST_CHARACTERS = 4096


def open_file(path: Path) -> IO[str]:
    """Open a sensor's file; tests put a system without permission in its place."""
    return path.open(encoding="utf-8")


def text_of(path: Path) -> str:
    """The text of a sensor's file.

    Raises:
        MeterError: it has vanished, or may not be read.
    """
    try:
        with open_file(path) as file:
            return file.read(_MOST_CHARACTERS).strip()
    except FileNotFoundError:
        raise MeterError(
            f"{path} is not there (any more); is the sensor's driver loaded?"
        ) from None
    except PermissionError:
        raise MeterError(
            f"{path} may not be read by this user; `joulemesh doctor` has the line that allows it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise MeterError(f"{path} cannot be read ({reason}); try again, or another meter") from None


def number_of(path: Path) -> float:
    """The number in a sensor's file.

    Raises:
        MeterError: it cannot be read, or is no finite number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "energy_uj").write_text("1500000\\n")
    ...     number_of(Path(folder, "energy_uj"))
    1500000.0
    """
    text = text_of(path)
    number = math.nan
    with suppress(ValueError):
        number = float(text)
    if not math.isfinite(number):
        raise MeterError(f"{path} says {text[:40]!r}, which is no number; use another meter")
    return number


def flag(path: Path) -> str:
    """The text of a file that need not be there; empty without it."""
    try:
        return text_of(path)
    except MeterError:
        return ""


def model_of_board(root: Path) -> str:
    """The board's name, where the system has a device tree; empty elsewhere.

    >>> model_of_board(Path("/nowhere"))
    ''
    """
    return flag(root / "proc" / "device-tree" / "model").replace("\0", "").strip()
