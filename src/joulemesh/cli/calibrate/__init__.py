"""`joulemesh calibrate`: true figures in place of assumed ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typer.core import TyperGroup

from joulemesh.cli.calibrate import device, links

__all__ = ["COMMANDS", "GROUP", "HELP"]

HELP = (
    "Measure what a plan is made of, where it will be carried out. `joulemesh calibrate [FILE]` is "
    "short for `joulemesh calibrate device [FILE]`."
)
_DEFAULT = "device"

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    device.device: (
        "joulemesh calibrate device fleet.toml --append devices.csv",
        "joulemesh calibrate device --quick",
        "joulemesh calibrate device --watts 6.5 --idle-watts 2.7 --out calibration.json",
        "joulemesh calibrate device fleet.toml --meter plug.csv --block 30s --samples 16",
    ),
    links.links: (
        "joulemesh calibrate links fleet",
        "joulemesh calibrate links farm-07/ --for 1h",
        "joulemesh calibrate links --listen 7200",
        "joulemesh calibrate links farm-02.local:7200 --token TOKEN --scenario fleet.toml",
    ),
}


class GROUP(TyperGroup):
    """Commands, of which one is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default's name before arguments that begin with no other command's name."""
        asked = args[0] if args else ""
        completing = ctx.resilient_parsing and not args  # offer the names of the commands
        if asked not in (*self.commands, "--help") and not completing:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)
