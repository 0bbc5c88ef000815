"""`joulemesh node`: one device of a fleet, on the device itself."""

from __future__ import annotations

from collections.abc import Callable

from joulemesh.cli.node import enroll, run

__all__ = ["COMMANDS", "HELP"]

HELP = "Be one device of a fleet: make its key, train and exchange with its neighbours."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    enroll.enroll: (
        "joulemesh node enroll farm-07 > request.txt",
        "joulemesh node enroll farm-07 --address farm-07.local --port 7200",
        "joulemesh node enroll farm-07 --accept answer.txt",
    ),
    run.run: (
        "joulemesh node run farm-07/",
        "joulemesh node run farm-07/ --data mine.npz --metrics 9100",
        "joulemesh node run farm-07/ --learner learner.py:make",
    ),
}
