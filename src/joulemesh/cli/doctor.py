"""`joulemesh doctor`: is everything there, and what to paste into a bug report."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

from joulemesh.base.printable import say
from joulemesh.cli.common import JsonOption

__all__ = ["doctor"]


def doctor(
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="FOLDER", help="Of a deployed device or a fleet, to look at too."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the self-test.")] = False,
    json: JsonOption = False,
) -> None:
    """Look at Python, JAX, packages, data, caches and energy meters; plan and train a little.

    With the folder of a deployed device it also looks at its port, clock and certificate. Paste
    what it prints into a bug report. The exit code is 1 if something is missing.
    """
    from joulemesh.study.doctor import examine

    found = examine(self_test=not quick, folder=folder)
    say(json_format.dumps(found) if json else _text(found), lines=True)
    if found["problems"]:
        raise typer.Exit(1)


def _text(found: dict[str, Any]) -> str:
    from joulemesh.base.units import si
    from joulemesh.study.doctor import OPTIONAL

    test, caches = found.get("self_test"), found["caches"]
    rows = {
        "joulemesh": found["joulemesh"],
        "python": found["python"],
        "system": f"{found['system']}, {found['cores']} cores",
        "jax": _library(found["jax"], "planning works, training needs it", "jax"),
        "torch": _library(found["torch"], "PyTorch modules need it", "torch"),
        "packages": _list({k: v or "MISSING" for k, v in found["packages"].items()}),
        "optional": _list(
            {k: v or f"not installed ({OPTIONAL[k]})" for k, v in found["optional"].items()}
        ),
        "data": _list(found["data"] or {}, ": ", "; "),
        "settings": _list(found["settings"], "=") or "none",
    }
    if caches:
        sizes = _list({k: si(float(v), "B") for k, v in caches["bytes"].items()})
        rows["caches"] = f"{caches['folder']}: {sizes or 'empty'}"
    if found["meters"]:
        rows["meters"] = _meters(found["meters"])
    if found["deploy"]:
        rows["deploy"] = _deploy(found["deploy"])
    if test:
        rows["self-test"] = f"planned in {test['plan_s']} s ({test['scheme']})" + (
            f", trained in {test['run_s']} s, accuracy {test['accuracy']}"
            if "run_s" in test
            else "; training was not tried"
        )
    lines = [f"{name:<10} {text}" for name, text in rows.items()]
    problems = [f"problem    {line}" for line in found["problems"]] or ["all is well"]
    return "\n".join([*lines, *problems])


def _library(found: dict[str, Any] | None, need: str, extra: str) -> str:
    """A library that trains, in a line."""
    if found is None:
        return f"not installed: {need} (pip install 'joulemesh[{extra}]')"
    return f"{found['version']} on {found['backend']}: {', '.join(found['devices'])}"


def _meters(found: dict[str, dict[str, Any]]) -> str:
    """Meters that can be read, and those that a line would make readable, with that line."""
    given = ("declared", "csv")  # they need no sensor, and can always be asked for
    ready = [f"{name}: {one['what']}" for name, one in found.items() if one["ready"]]
    lines = ["; ".join(ready) or "none (calibrate with --watts W or --meter FILE.csv)"]
    for name, one in found.items():
        if not one["ready"] and one["remedy"] and name not in given:
            lines.append(f"{name}: {one['what']}; to change that:")
            lines += [f"  {line}" for line in one["remedy"].splitlines()]
    return "\n           ".join(lines)


def _deploy(found: dict[str, Any]) -> str:
    """What is there to take part in a fleet, in a line."""
    kept = {True: "kept by others", False: "not kept by others (NTP)", None: "perhaps kept by NTP"}
    port = found["port"]
    words = [
        "installed" if found["installed"] else "not installed (pip install 'joulemesh[deploy]')",
        f"clock {found['clock']}, {kept[found['synchronised']]}",
        f"port {port['number']} {'free' if port['free'] else 'in use'}",
    ]
    mine = found.get("folder")
    if mine:
        words.append(f"{mine['name']} of fleet {mine['fleet']}, certificate {mine['certificate']}")
        if "port" in mine:
            words.append(f"port {mine['port']}, {'running' if mine['running'] else 'not running'}")
    return "; ".join(words)


def _list(pairs: dict[str, Any], joint: str = " ", comma: str = ", ") -> str:
    return comma.join(f"{name}{joint}{value}" for name, value in pairs.items())
