"""`joulemesh doctor`: is everything there, and what to paste into a bug report."""

from __future__ import annotations

import json as json_format
from typing import Annotated, Any

import typer

from joulemesh.cli.common import JsonOption
from joulemesh.printable import say

__all__ = ["doctor"]


def doctor(
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the self-test.")] = False,
    json: JsonOption = False,
) -> None:
    """Look at Python, JAX, packages, data and caches, and plan and train a little.

    Paste what it prints into a bug report. The exit code is 1 if something is missing.
    """
    from joulemesh.runs.doctor import examine

    found = examine(self_test=not quick)
    say(json_format.dumps(found) if json else _text(found), lines=True)
    if found["problems"]:
        raise typer.Exit(1)


def _text(found: dict[str, Any]) -> str:
    from joulemesh.runs.doctor import OPTIONAL
    from joulemesh.units import si

    jax, test, caches = found["jax"], found.get("self_test"), found["caches"]
    rows = {
        "joulemesh": found["joulemesh"],
        "python": found["python"],
        "system": f"{found['system']}, {found['cores']} cores",
        "jax": f"{jax['version']} on {jax['backend']}: {', '.join(jax['devices'])}" if jax else "–",
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
    if test:
        rows["self-test"] = (
            f"planned in {test['plan_s']} s ({test['scheme']}), trained in {test['run_s']} s, "
            f"accuracy {test['accuracy']}"
        )
    lines = [f"{name:<10} {text}" for name, text in rows.items()]
    problems = [f"problem    {line}" for line in found["problems"]] or ["all is well"]
    return "\n".join([*lines, *problems])


def _list(pairs: dict[str, Any], joint: str = " ", comma: str = ", ") -> str:
    return comma.join(f"{name}{joint}{value}" for name, value in pairs.items())
