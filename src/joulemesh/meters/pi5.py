"""Raspberry Pi 5: what its power management chip (PMIC) shows, volts times amperes of each rail.

The chip sees neither its own losses nor what USB and HATs draw from 5 V. A meter at the plug shows
about 0.6 W + 1.13 times as much (github.com/jfikar/RPi5-power); the figures here are uncorrected.
A copy of a board has the command's output in ``vcgencmd/pmic_read_adc``.
"""

from __future__ import annotations

__all__ = ["state_of", "watts_of"]

import re
import subprocess
from pathlib import Path

from joulemesh.meters.choose import METERS
from joulemesh.meters.meter import Finding, Meter, MeterError, MeterKind, MeterOptions
from joulemesh.meters.reading import model_of_board, text_of
from joulemesh.meters.sampled import Sampled

_BOARDS = ("Raspberry Pi 5", "Raspberry Pi Compute Module 5")  # the former also names the 500
_READ, _THROTTLED = "pmic_read_adc", "get_throttled"
_NOW = 0xF  # under-voltage, capped clock, throttled, too warm: at this moment, not earlier
_LINE = re.compile(r"^\s*(\w+)_([AV]) (?:current|volt)\(\d+\)=(\S+?)[AV]\s*$", re.MULTILINE)
_PERIOD_S = 0.5  # each sample starts a program, which draws something itself
_PATIENCE_S = 5.0


def watts_of(text: str) -> float:
    """The sum over all rails of volts times amperes.

    Args:
        text: what ``vcgencmd pmic_read_adc`` prints.

    Raises:
        MeterError: it is something else.

    >>> watts_of(" 3V3_SYS_A current(1)=0.5A\\n 3V3_SYS_V volt(9)=3.3V\\n EXT5V_V volt(24)=5.1V")
    1.65
    """
    figures: dict[str, dict[str, float]] = {"A": {}, "V": {}}
    for rail, unit, figure in _LINE.findall(text):
        try:
            figures[unit][rail] = float(figure)
        except ValueError:
            raise MeterError(f"vcgencmd says {figure[:40]!r} for {rail}; try again") from None
    amperes, volts = figures["A"], figures["V"]
    strange = [rail for rail in amperes if not (amperes[rail] >= 0 and volts.get(rail, -1.0) >= 0)]
    if not amperes or strange:
        what = f"for the rail {strange[0]}" if strange else f"{text.strip()[:60]!r}"
        raise MeterError(f"vcgencmd gives no volts and amperes ({what}); update the firmware")
    return sum(amperes[rail] * volts[rail] for rail in amperes)


def state_of(text: str) -> dict[str, float]:
    """What ``vcgencmd get_throttled`` prints, as figures.

    >>> state_of("throttled=0x50005"), state_of("throttled=0x50000"), state_of("?")
    ({'throttled': 5.0}, {'throttled': 0.0}, {})
    """
    found = re.search(r"throttled=(0x[0-9a-fA-F]+)", text)
    return {} if found is None else {"throttled": float(int(found[1], 16) & _NOW)}


def _state(root: Path) -> dict[str, float]:
    try:
        return state_of(_text(root, _THROTTLED))
    except MeterError:
        return {}


def _text(root: Path, command: str = _READ) -> str:
    if root != Path("/"):
        return text_of(root / "vcgencmd" / command)
    try:
        done = subprocess.run(
            ("vcgencmd", command), capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError:
        raise MeterError("vcgencmd is not installed; sudo apt install raspi-utils") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeterError(f"vcgencmd does not answer ({type(error).__name__}); try again") from None
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:100]
        raise MeterError(f"vcgencmd fails ({said}); sudo usermod -aG video $USER, and log in again")
    return done.stdout


def _open(options: MeterOptions) -> Meter:
    source = f"{options.verb} the Raspberry Pi's PMIC (vcgencmd pmic_read_adc)"
    return Sampled(
        "pi5",
        source,
        lambda: watts_of(_text(options.root)),
        options,
        _PERIOD_S,
        lambda: _state(options.root),
    )


def _find(options: MeterOptions) -> Finding:
    board = model_of_board(options.root)
    if not board.startswith(_BOARDS):
        return Finding(False, "this is no Raspberry Pi 5 (earlier ones have no sensor)")
    try:
        watts_of(_text(options.root))
    except MeterError as error:
        return Finding(False, f"{board}: {error}")
    return Finding(True, f"{board}, PMIC")


METERS.register(
    MeterKind(
        name="pi5",
        description="The power management chip of a Raspberry Pi 5.",
        find=_find,
        open=_open,
        sees="the board's rails, not USB, HATs and the chip's own losses",
    )
)
