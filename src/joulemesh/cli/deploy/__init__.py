"""`joulemesh deploy`: a plan on real machines, from the operator's side."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["COMMANDS", "HELP"]

HELP = "Carry out a plan on real machines: pack a fleet, sign, check, watch and report on it."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {}
