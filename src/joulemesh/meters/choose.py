"""Meters by name, and the one that suits a machine."""

from __future__ import annotations

__all__ = ["METERS", "Choice", "choose", "findings", "open_meter"]

from dataclasses import dataclass, replace
from pathlib import Path

from joulemesh.meters.meter import Finding, Meter, MeterError, MeterKind, MeterOptions
from joulemesh.registry import Registry

# In the order in which they are chosen; those of the user's own come first.
METERS: Registry[MeterKind] = Registry(
    "meter",
    {
        "jetson": "joulemesh.meters.jetson",
        "nvml": "joulemesh.meters.nvml",
        "pi5": "joulemesh.meters.pi5",
        "powercap": "joulemesh.meters.powercap",
        "psys": "joulemesh.meters.powercap",
        "battery": "joulemesh.meters.battery",
        "declared": "joulemesh.meters.declared",
        "csv": "joulemesh.meters.external",
    },
)

AUTO = "auto"


@dataclass(frozen=True)
class Choice:
    """What was chosen for a machine.

    Attributes:
        kind: of the meter; None if there is none.
        reason: why this one, or what to do if there is none, in a sentence.
    """

    kind: MeterKind | None
    reason: str


def findings(options: MeterOptions | None = None) -> dict[MeterKind, Finding]:
    """What each kind of meter finds on this machine.

    >>> [kind.name for kind in findings() if kind.name == "declared"]
    ['declared']
    """
    options = options or MeterOptions()
    return {kind: kind.find(options) for kind in METERS}


def choose(options: MeterOptions | None = None) -> Choice:
    """The meter that suits this machine, and why.

    Watts or a file that the user gives win. Otherwise the user's own kinds come first, then the
    built-in ones in the order of `METERS`; the first that can be read is taken. Where training is
    done on an NVIDIA GPU, only what sees the GPU will do.

    >>> choose(MeterOptions(watts=6.5)).reason
    '6.5 W are declared'
    """
    options = options or MeterOptions()
    if options.watts is not None:
        return Choice(METERS["declared"], f"{options.watts:g} W are declared")
    if options.file is not None:
        return Choice(METERS["csv"], f"{options.file} is given")
    own = [name for name in METERS.names() if name not in METERS.built_in]
    remedies = []
    for name in (*own, *METERS.built_in):
        kind = METERS[name]
        if not kind.suits(options):
            continue
        found = kind.find(options)
        if found.ready:
            return Choice(kind, f"{found.what}, which sees {kind.sees}")
        if found.remedy:
            remedies.append(f"{kind.name}: {found.what} ({_one_line(found.remedy)})")
    advice = "give --watts W, or --meter FILE.csv of an external meter"
    return Choice(None, "; ".join(["no meter can be read on this machine", *remedies, advice]))


def _one_line(remedy: str) -> str:
    return remedy.splitlines()[0]


def open_meter(asked: str = AUTO, options: MeterOptions | None = None) -> Meter:
    """Open the meter that is asked for.

    Args:
        asked: a name in `METERS`, a file that ends in ``.csv``, or ``"auto"``.
        options: what opening depends on.

    Raises:
        MeterError: the meter cannot be used here; the text says what to do.
        ScenarioError: there is no such meter.

    >>> open_meter("auto", MeterOptions(watts=6.5)).source
    'declared 6.5 W'
    """
    options = options or MeterOptions()
    if asked.lower().endswith(".csv"):
        asked, options = "csv", replace(options, file=Path(asked))
    if asked != AUTO:
        return METERS[asked].open(options)
    choice = choose(options)
    if choice.kind is None:
        raise MeterError(choice.reason)
    return choice.kind.open(options)
