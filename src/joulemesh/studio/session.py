"""What one tab of the browser works on: a scenario that is changed step by step, and taken back.

A step that is refused changes nothing. Sessions share nothing but the folder for device tables, in
which no file is ever written twice.
"""

from __future__ import annotations

__all__ = ["Session"]

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from joulemesh.errors import Edit, ScenarioError
from joulemesh.planning.edits import apply_edits, in_words
from joulemesh.scenario import Scenario
from joulemesh.scenario.typed import typed_value
from joulemesh.studio.difference import plan_difference
from joulemesh.studio.document import Shown, show
from joulemesh.studio.table import folded, with_cells, with_table
from joulemesh.views.plan.iteration import iteration_data

_MOST_STEPS = 200
_MOST_BARS = 1_000  # of a time line


@dataclass(frozen=True)
class Step:
    """The scenario after one change, and what the change was.

    Attributes:
        scenario: as it is then.
        words: what was done, for the button that takes it back.
    """

    scenario: Scenario
    words: str


@dataclass(eq=False)
class Session:
    """One tab.

    Args:
        scenario: to begin with.
        folder: where tables of devices go that are pasted or edited.

    >>> import tempfile
    >>> session = Session(Scenario.preset("adaptive"), Path(tempfile.gettempdir()))
    >>> session.act({"do": "set", "fields": {"budget.deadline_s": "50 ms"}})
    >>> session.scenario.budget.deadline_s, session.view()["undo"]
    (0.05, 'budget.deadline_s')
    >>> session.act({"do": "undo"})
    >>> session.scenario.budget.deadline_s
    0.04
    """

    scenario: Scenario
    folder: Path
    lock: Lock = field(default_factory=Lock, repr=False)
    _past: list[Step] = field(default_factory=list, init=False)
    _future: list[Step] = field(default_factory=list, init=False)
    _pinned: dict[str, Any] | None = field(default=None, init=False)
    _known: tuple[Scenario, Shown] | None = field(default=None, init=False)
    revision: int = field(default=0, init=False)
    path: Path | None = field(default=None, init=False)

    # What the page shows ------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """The document of the scenario as it is now, and what can be taken back."""
        shown = self._shown().document
        pinned = self._pinned
        return {
            **shown,
            "revision": self.revision,
            "undo": self._past[-1].words if self._past else "",
            "redo": self._future[-1].words if self._future else "",
            "pinned": pinned,
            "difference": None if pinned is None else plan_difference(pinned, shown),
        }

    def _shown(self) -> Shown:
        if self._known is None or self._known[0] is not self.scenario:
            self._known = self.scenario, show(self.scenario)
        return self._known[1]

    def iteration(self, number: int) -> dict[str, Any]:
        """The time line of any iteration; empty without a plan.

        Raises:
            ScenarioError: there is no such iteration.
        """
        plan = self._shown().plan
        return {} if plan is None else {"gantt": iteration_data(plan, number, _MOST_BARS)}

    def advice(self) -> dict[str, Any]:
        """What binds the plan, what is left over, and the change that would help most.

        With the scenario as TOML, which the page keeps in case that the server stops.
        """
        plan, toml = self._shown().plan, self.scenario.to_toml(comments=True)
        if plan is None:
            return {"text": "", "edits": None, "revision": self.revision, "toml": toml}
        answer = plan.answer
        change = answer.change
        edits = None if change is None else [asdict(change.edit)]
        words = "" if change is None else f"plan with {change.words}"
        told = {"text": answer.text, "edits": edits, "words": words}
        return {**told, "revision": self.revision, "toml": toml}

    def saved(self, files: Sequence[Path]) -> None:
        """Go on with the files that were written: a device table is now the one beside them."""
        self.path = files[0]
        if len(files) > 1:
            self.scenario = self.scenario.override({"devices.table": str(files[1].resolve())})

    # What is done to it -------------------------------------------------------------------------

    def act(self, order: Mapping[str, Any]) -> None:
        """Do what the page asks.

        Args:
            order: ``do`` says what, and the rest with what.

        Raises:
            ScenarioError: it cannot be done, and nothing has changed.
        """
        kind = order.get("do")
        plain = {"undo": self._undo, "redo": self._redo, "pin": self._pin, "unpin": self._unpin}
        if kind in plain:
            plain[kind]()
        else:
            changed, words = _changed(self.scenario, order, self.folder)
            self._take(folded(changed, self.folder), words)
        self.revision += 1

    def _take(self, scenario: Scenario, words: str) -> None:
        self._past.append(Step(self.scenario, words))
        del self._past[:-_MOST_STEPS]
        self._future.clear()
        self.scenario = scenario

    def _undo(self) -> None:
        if self._past:
            step = self._past.pop()
            self._future.append(Step(self.scenario, step.words))
            self.scenario = step.scenario

    def _redo(self) -> None:
        if self._future:
            step = self._future.pop()
            self._past.append(Step(self.scenario, step.words))
            self.scenario = step.scenario

    def _pin(self) -> None:
        self._pinned = self._shown().document

    def _unpin(self) -> None:
        self._pinned = None


def _changed(scenario: Scenario, order: Mapping[str, Any], folder: Path) -> tuple[Scenario, str]:
    """The scenario after a change, and the change in a few words."""
    kind = order.get("do")
    try:
        if kind == "set":
            texts = {name: str(text) for name, text in order["fields"].items()}
            typed = {n: typed_value(text, n) for n, text in texts.items() if text.strip()}
            emptied = scenario.without(*(texts.keys() - typed.keys()))
            return emptied.override(typed, source="studio"), ", ".join(texts)
        if kind == "edits":
            edits = [Edit(**one) for one in order["edits"]]
            return apply_edits(scenario, edits), in_words(edits)
        if kind == "preset":
            return Scenario.preset(str(order["name"])), f"preset {order['name']}"
        if kind == "toml":
            return Scenario.from_toml(str(order["text"])), "open a file"
        if kind == "table":
            return with_table(scenario, str(order["text"]), folder), "table of devices"
        if kind == "cells":
            cells = {
                str(column): {int(device): value for device, value in own.items()}
                for column, own in order["changes"].items()
            }
            return with_cells(scenario, cells, folder), ", ".join(cells)
        if kind == "move":
            device = int(order["device"])
            cells = {name: {device: float(order[name])} for name in ("x_m", "y_m")}
            return with_cells(scenario, cells, folder), f"move device {device}"
        if kind in _ON_MAP:
            return _ON_MAP[kind](scenario, order)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ScenarioError):
            raise
        raise ScenarioError(f"the page asks for {kind!r:.40} without what it takes") from None
    raise ScenarioError(f"there is nothing to do for {kind!r:.40}")


def _cut(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Take a link away."""
    i, j = sorted(map(int, order["link"]))
    gone = [*scenario.network.without, (i, j)]
    return scenario.override({"network.without": gone}), f"remove the link {i}–{j}"


def _mend(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Put a link back."""
    i, j = sorted(map(int, order["link"]))
    gone = [link for link in scenario.network.without if link != (i, j)]
    return scenario.override({"network.without": gone}), f"put back the link {i}–{j}"


def _kill(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Let a device leave for good."""
    device, iteration = int(order["device"]), int(order["iteration"])
    others = [pair for pair in scenario.devices.leave if pair[0] != device]
    leave = [*others, (device, iteration)]
    return scenario.override({"devices.leave": leave}), f"kill device {device}"


def _revive(scenario: Scenario, order: Mapping[str, Any]) -> tuple[Scenario, str]:
    """Let a device stay after all."""
    device = int(order["device"])
    leave = [pair for pair in scenario.devices.leave if pair[0] != device]
    return scenario.override({"devices.leave": leave}), f"revive device {device}"


_ON_MAP = {"cut": _cut, "mend": _mend, "kill": _kill, "revive": _revive}
