"""`joulemesh deploy`: a plan on real machines, from the operator's side."""

from __future__ import annotations

from collections.abc import Callable

from joulemesh.cli.deploy import (
    check,
    collect,
    emulate,
    init,
    local,
    report,
    revoke,
    roster,
    sign,
    status,
)

__all__ = ["COMMANDS", "HELP"]

HELP = "Carry out a plan on real machines: pack a fleet, sign, check, watch and report on it."

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    init.init: (
        "joulemesh deploy init fleet.toml --out fleet",
        "joulemesh deploy init --set devices.count=3 --with-keys --out lab",
        "joulemesh deploy init fleet.toml --hosts hosts.csv --patience 30s --on-failure stop",
    ),
    sign.sign: (
        "joulemesh deploy sign fleet request.txt",
        "joulemesh deploy sign fleet farm-01.txt farm-02.txt --out answers",
        "joulemesh deploy sign fleet farm-01 > answer.txt",
        "joulemesh deploy sign lab",
    ),
    roster.add: ("joulemesh deploy add fleet farm-03",),
    roster.retire: ("joulemesh deploy retire fleet farm-01",),
    revoke.revoke: ("joulemesh deploy revoke fleet farm-07",),
    check.check: ("joulemesh deploy check fleet", "joulemesh deploy check fleet --no-rate --json"),
    status.status: (
        "joulemesh deploy status fleet",
        "joulemesh deploy status fleet --watch --collect",
    ),
    collect.collect: (
        "joulemesh deploy collect fleet",
        "joulemesh deploy collect fleet --out model",
    ),
    report.report: (
        "joulemesh deploy report fleet",
        "joulemesh deploy report fleet --collect",
        "joulemesh deploy report fleet --replay",
        "joulemesh deploy report fleet --run runs/first --out reports",
        "joulemesh deploy report fleet --journals collected --no-simulate --json",
    ),
    local.local: (
        "joulemesh deploy local",
        "joulemesh deploy local fleet.toml --out fleet-local --patience 5s",
    ),
    emulate.emulate: (
        "joulemesh deploy emulate fleet.toml",
        "joulemesh deploy emulate --set devices.count=6 --slow-down 50",
    ),
}
