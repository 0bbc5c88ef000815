"""`joulemesh calibrate`: true figures in place of assumed ones."""

from __future__ import annotations

from collections.abc import Callable

from joulemesh.cli.calibrate import links

__all__ = ["COMMANDS", "HELP"]

HELP = "Measure what a plan is made of, where it will be carried out."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    links.links: (
        "joulemesh calibrate links fleet",
        "joulemesh calibrate links farm-07/ --for 1h",
        "joulemesh calibrate links --listen 7200",
        "joulemesh calibrate links farm-02.local:7200 --token TOKEN --scenario fleet.toml",
    ),
}
