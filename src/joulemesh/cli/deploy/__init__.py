"""`joulemesh deploy`: a plan on real machines, from the operator's side."""

from __future__ import annotations

from collections.abc import Callable

from joulemesh.cli.deploy.fleet import add, init, retire, revoke, sign
from joulemesh.cli.deploy.local import emulate, local
from joulemesh.cli.deploy.operator import check, collect, report, status

__all__ = ["COMMANDS", "HELP"]

HELP = "Carry out a plan on real machines: pack a fleet, sign, check, watch and report on it."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    init: (
        "joulemesh deploy init fleet.toml --out fleet",
        "joulemesh deploy init --set devices.count=3 --with-keys --out lab",
        "joulemesh deploy init fleet.toml --hosts hosts.csv --patience 30s --on-failure stop",
    ),
    sign: (
        "joulemesh deploy sign fleet request.txt",
        "joulemesh deploy sign fleet farm-01.txt farm-02.txt --out answers",
        "joulemesh deploy sign fleet farm-01 > answer.txt",
        "joulemesh deploy sign lab",
    ),
    add: ("joulemesh deploy add fleet farm-03",),
    retire: ("joulemesh deploy retire fleet farm-01",),
    revoke: ("joulemesh deploy revoke fleet farm-07",),
    check: ("joulemesh deploy check fleet", "joulemesh deploy check fleet --no-rate --json"),
    status: (
        "joulemesh deploy status fleet",
        "joulemesh deploy status fleet --watch --collect",
    ),
    collect: (
        "joulemesh deploy collect fleet",
        "joulemesh deploy collect fleet --out model",
    ),
    report: (
        "joulemesh deploy report fleet",
        "joulemesh deploy report fleet --collect",
        "joulemesh deploy report fleet --replay",
        "joulemesh deploy report fleet --run runs/first --out reports",
        "joulemesh deploy report fleet --journals collected --no-simulate --json",
    ),
    local: (
        "joulemesh deploy local",
        "joulemesh deploy local fleet.toml --out fleet-local --patience 5s",
    ),
    emulate: (
        "joulemesh deploy emulate fleet.toml",
        "joulemesh deploy emulate --set devices.count=6 --slow-down 50",
    ),
}
