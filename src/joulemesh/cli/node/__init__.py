"""`joulemesh node`: one device of a fleet, on the device itself."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["COMMANDS", "HELP"]

HELP = "Be one device of a fleet: make its key, train and exchange with its neighbours."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {}
