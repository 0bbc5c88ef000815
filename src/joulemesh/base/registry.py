"""Registries: every variation point by name, built in, installed as a plug-in or a user's own.

A registry maps names to small frozen records (`Entry`): a name, a description of one line, the
functions, and what they need. Names of built-in entries are known without importing the modules
that define them, so the scenario can be checked without NumPy-heavy or JAX-heavy imports; such a
module registers its entries when one of them is first looked up.

A user adds entries in two ways: a Python file given with ``--load``, or an installed package with
an entry point in the group ``joulemesh.plugins`` (a module to import, or a function to call).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar

from joulemesh.base.errors import ScenarioError

GROUP = "joulemesh.plugins"

# A name stands in scenarios, lists, tables, figures, pages and file names as it is.
_MOST_LETTERS = 64
_NAME = re.compile(rf"[^\W_][\w.+-]{{0,{_MOST_LETTERS - 1}}}")


class Entry(Protocol):
    """What every record in a registry has."""

    @property
    def name(self) -> str:
        """The name that scenarios and commands use."""

    @property
    def description(self) -> str:
        """What it is, in one line."""


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """The entries of one kind, by name, in the order in which they became known.

    Args:
        kind: what the entries are, for messages: ``"topology"``.
        homes: the module that registers each built-in entry, by the entry's name.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Colour:
    ...     name: str
    ...     description: str = ""
    >>> colours = Registry("colour")
    >>> colours.register(Colour("red", "that of blood")).name
    'red'
    >>> colours["red"].description, "blue" in colours
    ('that of blood', False)
    >>> colours["rad"]
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: colour 'rad' is unknown; did you mean 'red'? ...
    """

    def __init__(self, kind: str, homes: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._homes = dict(homes or {})
        self._entries: dict[str, E] = {}

    def register(self, entry: E) -> E:
        """Make an entry known by its name; a name that is taken gets the new entry.

        Raises:
            ScenarioError: a name that could not be written in a scenario or on a command line.
        """
        name = entry.name
        if not _NAME.fullmatch(name):
            raise ScenarioError(
                f"{self.kind} name {name!r} is unusable: use letters, digits, '.', '+', '-' and "
                f"'_', at most {_MOST_LETTERS} of them, beginning with a letter or a digit"
            )
        self._entries[name] = entry
        return entry

    def names(self) -> tuple[str, ...]:
        """The names of all entries, the built-in ones first."""
        load_plugins()
        return tuple(dict.fromkeys([*self._homes, *self._entries]))

    @property
    def built_in(self) -> tuple[str, ...]:
        """The names of the entries that come with Joulemesh."""
        return tuple(self._homes)

    def unknown(self, name: object) -> str:
        """What to say about a name that is not here."""
        close = difflib.get_close_matches(str(name)[:60], self.names(), 1)
        known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(self.names())}"
        return f"{self.kind} {str(name)[:60]!r} is unknown; {known} (--load FILE.py adds your own)"

    def __contains__(self, name: object) -> bool:
        return name in self._homes or name in self._entries or name in self.names()

    def __getitem__(self, name: str) -> E:
        if name not in self._entries and name in self._homes:
            import_module(self._homes[name])
        if name not in self._entries:
            load_plugins()
        if name not in self._entries:
            raise ScenarioError(self.unknown(name))
        return self._entries[name]

    def __iter__(self) -> Iterator[E]:
        return (self[name] for name in self.names())

    @contextmanager
    def scoped(self) -> Iterator[None]:
        """Forget, at the end, what is registered meanwhile; for tests and notebooks.

        >>> from joulemesh.base.errors import ScenarioError
        >>> registry = Registry("colour")
        >>> with registry.scoped():
        ...     pass
        """
        for name in self._homes:
            self[name]
        kept = dict(self._entries)
        try:
            yield
        finally:
            self._entries = kept


@cache
def load_plugins() -> None:
    """Import the installed plug-ins, once."""
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # another package's code may raise anything
            raise ScenarioError(
                f"the installed plug-in {point.name!r} ({point.value}) fails with "
                f"{type(error).__name__}: {error}; update or uninstall it"
            ) from error
