"""The ways in which a user's request can be refused: each is data, and is rendered here."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


_PHRASES = {
    "raise": "raise {field} to at least {value}",
    "lower": "set {field} to at most {value}",
    "set": "set {field} = {value}",
    "scale": "multiply {field} by {value}",
}
_WORDS = {
    "budget.deadline_s": "the deadline",
    "budget.total_s": "the total time",
    "budget.energy_j": "the batteries",
    "plan.iterations": "the number of iterations",
    "devices.count": "the number of devices",
}
_LONGEST = 60  # characters of a device's name in a sentence


@dataclass(frozen=True)
class Edit:
    """One change of one field of a scenario, which a sentence can name and a program can make.

    Attributes:
        field: by its full name.
        value: the least that is needed (``"raise"``), the most that is possible (``"lower"``), the
            value (``"set"``; None leaves the field out), or a factor (``"scale"``).
        how: one of these.
        device: whose value it is, where devices have each their own; otherwise everybody's.

    >>> Edit("budget.energy_j", 79680.0, "raise").text, Edit("plan.iterations", 40, "lower").text
    ('raise budget.energy_j to at least 79680', 'set plan.iterations to at most 40')
    """

    field: str
    value: Any
    how: str = "set"
    device: int | None = None

    @property
    def text(self) -> str:
        """What a refusal advises; a figure is printed with all its digits."""
        value = self.value
        if value is None:
            return f"leave {self.field} out"
        if isinstance(value, str):
            value = f'"{value}"'
        elif isinstance(value, float):
            value = f"{value:.12g}"
        return _PHRASES[self.how].format(field=self.field, value=value)


Remedy = tuple[Edit, ...]
"""Changes that mend a refusal together."""


def in_words(edits: Iterable[Edit], names: Sequence[str] = ()) -> str:
    """Some changes in words: the label of a button that makes them, the advice of a plan."""
    return " and ".join(_words(edit, names) for edit in edits)


def _words(edit: Edit, names: Sequence[str]) -> str:
    name = _WORDS.get(edit.field, edit.field)
    if edit.value is None:
        return f"leave {name} out"
    if edit.how == "scale":
        return f"make {name} {edit.value:g} times as large"
    if edit.device is not None:
        name = "the battery" if edit.field == "budget.energy_j" else name
        name = f"{name} of {called(edit.device, names)}"
    verb = "raise" if edit.how == "raise" else "set"
    return f"{verb} {name} to {_written(edit.field, edit.value, 4)}"


def called(device: int, names: Sequence[str] = ()) -> str:
    """A device in a sentence: by its number, and its name where the device table has names."""
    if not 0 <= device < len(names):
        return f"device {device}"
    name = " ".join(names[device].split())
    return f"device {device} ({name if len(name) <= _LONGEST else name[: _LONGEST - 1] + '…'})"


def _written(name: str, value: Any, digits: int) -> str:
    """A figure with the unit that its name ends in."""
    from joulemesh.base.units import duration, energy, si, unit_of  # which raises a UnitError

    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        return str(value)
    unit = unit_of(name)
    if unit is None:
        return f"{value:,}" if isinstance(value, int) else f"{value:.{digits}g}"
    if unit == "J":
        return energy(value, digits=digits)
    return duration(value, digits=digits) if unit == "s" else si(value, unit, digits=digits)


@dataclass(frozen=True)
class _Figure:
    """A figure of a refusal, as its sentence is written: ``{needs_j}``, ``{count:iteration}``."""

    name: str
    value: Any
    names: Sequence[str]

    def __format__(self, noun: str) -> str:
        from joulemesh.base.units import counted

        if self.name.endswith("device"):
            return "the device" if self.value is None else called(self.value, self.names)
        return counted(self.value, noun) if noun else _written(self.name, self.value, 6)


class JoulemeshError(ValueError):
    """Any error that the user can correct; the text says what is wrong, the figure and the fix.

    >>> import joulemesh
    >>> try:
    ...     joulemesh.Scenario.preset("defualt")
    ... except joulemesh.JoulemeshError as error:
    ...     print(type(error).__name__)
    ScenarioError

    Args:
        message: what is wrong. With a device or figures it is a template: ``{device}`` is the
            device (as is any figure ``{…device}``), ``{needs_j}`` a figure in the unit of its name,
            ``{count:iteration}`` a number of things.
        code: which kind of refusal it is.
        device: index of the device that it is about.
        figures: by names that end in their units.
        remedies: changes of which any one mends it; the text names them after the message.
        field: the scenario's field that is wrong; by default that of the first remedy.

    Attributes:
        names: of the devices; the text names devices once they are known.

    >>> error = InfeasibleError(
    ...     "{device} needs {needs_j} for {count:iteration}",
    ...     code="energy", device=1, figures={"needs_j": 4.1, "count": 3},
    ...     remedies=[(Edit("budget.energy_j", 4.1, "raise"),)],
    ... )
    >>> print(error)
    device 1 needs 4.1 J for 3 iterations; raise budget.energy_j to at least 4.1
    >>> error.names = ("north", "south")
    >>> error.fault, error.field, error.data["figures"]
    ('device 1 (south) needs 4.1 J for 3 iterations', 'budget.energy_j',
     {'needs_j': 4.1, 'count': 3})
    """

    code = "refused"

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        device: int | None = None,
        figures: Mapping[str, Any] | None = None,
        remedies: Sequence[Remedy] = (),
        field: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.device = code or type(self).code, device
        self.figures = {name: _plain(value) for name, value in (figures or {}).items()}
        self.names: Sequence[str] = ()
        self.remedies, self._message, self._field = tuple(remedies), message, field
        self._before = self._after = ""

    def offer(self, remedies: Sequence[Remedy], *, before: str = "", after: str = "") -> None:
        """Offer some changes in place of those offered before, and say more about the reason.

        Args:
            remedies: changes of which any one mends it.
            before: what stands before the reason.
            after: what stands between the reason and the changes.
        """
        self.remedies = tuple(remedies)
        self._before, self._after = before + self._before, self._after + after

    @property
    def fault(self) -> str:
        """What is wrong, without what would mend it."""
        message = self._message
        if self.device is not None or self.figures:
            every = {"device": self.device, **self.figures}
            message = message.format_map({n: _Figure(n, v, self.names) for n, v in every.items()})
        return f"{self._before}{message}{self._after}"

    @property
    def field(self) -> str:
        """Full name of the scenario's field that is wrong, or that mends it; empty if unknown."""
        return self._field or (self.remedies[0][0].field if self.remedies else "")

    @property
    def data(self) -> dict[str, Any]:
        """All of it as plain values, as ``--json`` prints it."""
        return {
            "code": self.code,
            "text": str(self),
            "device": self.device,
            "field": self.field,
            "figures": dict(self.figures),
            "remedies": [
                {"words": in_words(edits, self.names), "edits": [asdict(edit) for edit in edits]}
                for edits in self.remedies
            ],
            "notes": list(getattr(self, "__notes__", ())),
        }

    def __str__(self) -> str:
        ways = ", or ".join(" and ".join(edit.text for edit in one) for one in self.remedies)
        return f"{self.fault}; {ways}" if ways else self.fault


def _plain(value: Any) -> Any:
    """A Python value for one of NumPy."""
    return value.item() if hasattr(value, "item") else value


class ScenarioError(JoulemeshError):
    """The scenario (or a file that it names) is malformed: which field, and what to write.

    >>> import joulemesh
    >>> joulemesh.Scenario().override({"devices.count": 0})
    Traceback (most recent call last):
    joulemesh.ScenarioError: devices.count: input should be greater than or equal to 1 ...
    """

    code = "scenario"


class UnitError(ScenarioError):
    """A quantity's text has the wrong unit, or none that is known; its text begins with it."""

    code = "unit"


class InfeasibleError(JoulemeshError):
    """The scenario is well-formed but cannot be carried out: who, what is short, the remedy.

    Its ``code`` is ``"energy"``, ``"idle"``, ``"deadline"``, ``"time"``, ``"topology"``,
    ``"gossip"`` or ``"size"``.

    >>> import joulemesh
    >>> try:
    ...     joulemesh.plan(joulemesh.Scenario().override({"budget.deadline_s": "1 us"}))
    ... except joulemesh.InfeasibleError as error:
    ...     print(error.code)
    deadline
    """

    code = "infeasible"


@contextmanager
def named_refusals(names: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Let refusals that come from within name devices."""
    try:
        yield
    except JoulemeshError as error:
        if error.device is not None and not error.names:
            try:
                error.names = names()
            except JoulemeshError:  # a table that cannot be read, or names that are no names
                error.names = ()
        raise


for _public in (JoulemeshError, ScenarioError, InfeasibleError):
    _public.__module__ = "joulemesh"  # where users import them from, and tracebacks name them


# Control codes, marks that turn the direction of writing, lone surrogates, and line separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Joiners and soft hyphens belong to words and emoji.
_HARMLESS = "\u00ad\u200c\u200d"


def printable(text: str, *, lines: bool = False) -> str:
    r"""Replace whatever would move the cursor, colour, hide or reorder by its escape."""
    kept = _HARMLESS + ("\n\t" if lines else "")
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode()
        if unicodedata.category(letter) in _UNSAFE and letter not in kept
        else letter
        for letter in text
    )


def say(text: str, *, err: bool = False, lines: bool = False) -> None:
    r"""Print a message for the user, whatever texts of others it holds."""
    stream = sys.stderr if err else sys.stdout
    print(printable(text, lines=lines), file=stream, flush=True)


MOST_PER_ITERATION = 2**31 - 1
"""Rounds of one device in one iteration: training counts them in 32 bits."""


def require_countable(rounds: ArrayLike, remedy: str) -> None:
    """Refuse more rounds in an iteration than training can count."""
    import numpy as np  # which looking things up does without

    most = int(np.max(rounds, initial=0))
    if most > MOST_PER_ITERATION:
        raise ScenarioError(
            f"{most:,} rounds in an iteration are more than the {MOST_PER_ITERATION:,} that can be "
            f"trained; {remedy}"
        )
