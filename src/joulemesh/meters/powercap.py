"""Counters of Intel and AMD processors, as Linux shows them (``powercap``, also known as RAPL).

A package's counter holds its cores; that of its memory (``dram``) is counted beside it. The same
package may be shown twice (``intel-rapl`` and ``intel-rapl-mmio``) and is counted once. ``psys``
is the whole platform, where the maker of the machine has wired and calibrated it: often it is not,
so it has to be asked for. Linux lets only root read the counters since 2020, because what they show
in microseconds betrays secrets of other programs (CVE-2020-8694, "PLATYPUS").
"""

from __future__ import annotations

__all__ = ["Powercap", "remedy"]

from pathlib import Path

from joulemesh.meters.choose import METERS
from joulemesh.meters.counter import Counter
from joulemesh.meters.meter import Finding, MeterError, MeterKind, MeterOptions
from joulemesh.meters.reading import flag, number_of

_FOLDER = Path("sys/class/powercap")
_RULE = 'SUBSYSTEM=="powercap", ACTION=="add", RUN+="/bin/chmod a+r /sys%p/energy_uj"'


class Powercap:
    """Sums the counters of some zones.

    Args:
        options: with the place of ``/sys``.
        platform: of the whole platform (``psys``), rather than of packages and memory.

    Raises:
        MeterError: there are none, or they may not be read.
    """

    def __init__(self, options: MeterOptions, platform: bool = False) -> None:
        self.name = "psys" if platform else "powercap"
        found = zones(options.root, platform)
        if not found:
            raise MeterError(_nothing(options.root, platform).what)
        self._counters = [_counter(name, zone, options) for name, zone in found.items()]
        self.source = f"{options.verb} powercap {', '.join(found)}"

    def joules(self) -> float:
        """Joules of all zones since the meter was opened."""
        return sum(counter.joules() for counter in self._counters)

    def close(self) -> None:
        """Do nothing: files are opened for each reading only."""


def zones(root: Path, platform: bool) -> dict[str, Path]:
    """Folders of the zones to be summed, by their names.

    >>> zones(Path("/nowhere"), platform=False)
    {}
    """
    folders = sorted((root / _FOLDER).glob("*:*"), key=lambda one: (len(one.name), one.name))
    found: dict[str, Path] = {}
    for zone in folders:
        name, depth = flag(zone / "name"), zone.name.count(":")
        if not (zone / "energy_uj").exists():
            continue
        if platform:
            wanted = name == "psys"
        else:
            wanted = depth == 1 and name.startswith("package")
            if depth == 2 and name == "dram":
                above = zone.with_name(zone.name.rpartition(":")[0])
                name, wanted = f"dram of {flag(above / 'name')}", above in found.values()
        if wanted:
            found.setdefault(name, zone)
    return found


def _counter(name: str, zone: Path, options: MeterOptions) -> Counter:
    full_uj = number_of(zone / "max_energy_range_uj")
    if full_uj <= 0:
        raise MeterError(f"{zone}/max_energy_range_uj says {full_uj:g}; use another meter")
    return Counter(
        f"powercap {name}",
        lambda: number_of(zone / "energy_uj") / 1e6,
        options.clock,
        full_uj / 1e6,
    )


def remedy(found: dict[str, Path]) -> str:
    """The lines that let everybody read the zones: until the next start, and for good.

    >>> print(remedy({"package-0": Path("/sys/class/powercap/intel-rapl:0")}))
    sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj
    (for good: echo 'SUBSYSTEM=="powercap", ...' | sudo tee /etc/udev/rules.d/70-powercap.rules)
    """
    files = " ".join(f"{zone}/energy_uj" for zone in found.values())
    return (
        f"sudo chmod a+r {files}\n"
        f"(for good: echo '{_RULE}' | sudo tee /etc/udev/rules.d/70-powercap.rules)"
    )


def _nothing(root: Path, platform: bool) -> Finding:
    what = "zone psys" if platform else "package"
    return Finding(
        False, f"{root / _FOLDER} shows no {what} (in most virtual machines it is empty)"
    )


def _find(options: MeterOptions, platform: bool = False) -> Finding:
    found = zones(options.root, platform)
    if not found:
        return _nothing(options.root, platform)
    try:
        Powercap(options, platform)
    except MeterError as error:
        locked = "may not be read" in str(error)
        what = f"{', '.join(found)}: only root may read the counters" if locked else str(error)
        return Finding(False, what, remedy(found) if locked else "")
    return Finding(True, ", ".join(found))


METERS.register(
    MeterKind(
        name="powercap",
        description="Counters of Intel and AMD processors (RAPL).",
        find=_find,
        open=Powercap,
        sees="processor packages and memory, not the rest of the machine",
        suits=lambda options: not options.accelerator,
    )
)
METERS.register(
    MeterKind(
        name="psys",
        description="The counter of a whole Intel platform, where its maker has calibrated it.",
        find=lambda options: _find(options, platform=True),
        open=lambda options: Powercap(options, platform=True),
        sees="the platform, as its maker has wired it",
        suits=lambda options: False,
    )
)
