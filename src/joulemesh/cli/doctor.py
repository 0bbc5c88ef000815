"""`joulemesh doctor`: is everything there, and what to paste into a bug report."""

from __future__ import annotations

__all__ = ["OPTIONAL", "doctor", "examine"]

import json as json_format
import os
import platform
import re
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Annotated, Any

import typer

from joulemesh._version import __version__
from joulemesh.base.errors import say
from joulemesh.base.files import user_cache
from joulemesh.base.machine import cpus
from joulemesh.base.optional import installed
from joulemesh.cli.common import JsonOption

OPTIONAL = {
    "jax": "training",
    "matplotlib": "figures",
    "pooch": "downloading data sets",
    "pandas": "data frames",
    "networkx": "graphs",
    "pyarrow": "Parquet files",
    "tensorboardX": "--track tensorboard",
    "mlflow-skinny": "--track mlflow",
    "wandb": "--track wandb",
    "onnx": "export model --format onnx",
    "datasets": "data sets of the Hugging Face hub",
    "cryptography": "deploy",
    "prometheus_client": "deploy, for node run --metrics",
    "nvidia-ml-py": "calibrate on an NVIDIA GPU",
}
_BESIDE_JAX = ("jaxlib", "optax", "flax")  # what training imports beside it
_SETTINGS = (
    "JOULEMESH_DATA",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES",
)


def examine(*, self_test: bool = True, folder: Path | None = None) -> dict[str, Any]:
    """Look at the machine, the packages, the data and the caches; plan and train a little."""
    problems: list[str] = []
    trains = installed("jax")  # the light installation plans
    found: dict[str, Any] = {
        "joulemesh": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": cpus(),
        "settings": {name: _homely(os.environ[name]) for name in _SETTINGS if name in os.environ},
        "jax": _tried(_accelerators, "JAX does not start", problems) if trains else None,
        "torch": _tried(_torch, "PyTorch does not start", problems) if installed("torch") else None,
        "packages": _packages(problems, trains),
        "optional": {name: _version(name) for name in OPTIONAL},
        "data": _tried(_data, "the data folders cannot be read", problems),
        "caches": _tried(_caches, "the cache folder cannot be read", problems),
        "meters": _tried(_meters, "energy meters cannot be looked for", problems),
    }
    found["deploy"] = _tried(lambda: _deploy(folder, problems), "deploy cannot be used", problems)
    if self_test:
        found["self_test"] = _tried(lambda: _self_test(trains), "the self-test failed", problems)
    return {**found, "problems": problems}


def _tried(look: Callable[[], Any], trouble: str, problems: list[str]) -> Any:
    """What ``look`` finds; a failure of any kind becomes a line among the problems."""
    try:
        return look()
    except Exception as error:  # a broken installation may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        problems.append(f"{trouble} ({_homely(reason)[:300]})")
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _packages(problems: list[str], trains: bool) -> dict[str, str | None]:
    """Versions of the packages that Joulemesh asks for, and of those that training does."""
    try:
        asked = [line for line in requires("joulemesh") or [] if "extra ==" not in line]
    except PackageNotFoundError:
        problems.append("Joulemesh is not installed as a package; pip install joulemesh")
        return {}
    names = [_name(line) for line in asked] + (["jax", *_BESIDE_JAX] if trains else [])
    found = {name: _version(name) for name in names}
    install = dict.fromkeys(_BESIDE_JAX, "'joulemesh[jax]'")
    missing = (name for name, there in found.items() if there is None)
    problems += [
        f"{name} is not installed; pip install {install.get(name, name)}" for name in missing
    ]
    return found


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def _accelerators() -> dict[str, Any]:
    import jax

    return {
        "version": jax.__version__,
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.local_devices()],
    }


def _torch() -> dict[str, Any]:
    import torch

    from joulemesh.training.software import torch_devices

    backend, devices = torch_devices()
    return {"version": torch.__version__, "backend": backend, "devices": devices}


def _data() -> dict[str, str]:
    from joulemesh.base.errors import ScenarioError
    from joulemesh.data.published import SOURCES, given_folders, locate

    found = {"digits": "embedded"}
    folders = [folder for _, folder in given_folders(None)] + [user_cache()]
    for name, source in SOURCES.items():
        found[name] = "not here (downloaded when first asked for)"
        for folder in folders:
            try:
                if folder.is_dir() and locate(source, folder) is not None:
                    found[name] = _homely(str(folder))
                    break
            except ScenarioError as error:
                found[name] = _homely(str(error))
    return found


def _caches() -> dict[str, Any]:
    folder = user_cache()
    parts = sorted(part for part in folder.iterdir() if part.is_dir()) if folder.is_dir() else []
    return {"folder": _homely(str(folder)), "bytes": {part.name: _size(part) for part in parts}}


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # another process may remove files meanwhile
            total += path.stat().st_size if path.is_file() else 0
    return total


def _meters() -> dict[str, dict[str, Any]]:
    """Energy meters by name: whether each can be read, what was found, and what would help."""
    from joulemesh.meters import findings

    return {
        kind.name: {"ready": one.ready, "what": one.what, "remedy": one.remedy}
        for kind, one in findings().items()
    }


def _deploy(folder: Path | None, problems: list[str]) -> dict[str, Any]:
    from joulemesh.deploy.operator.health import examine_folder, examine_machine

    found = examine_machine(problems)
    if folder is None:
        return found
    if not found["installed"]:
        problems.append("deploy needs more packages; pip install 'joulemesh[deploy]'")
        return found
    return {**found, "folder": examine_folder(folder, problems)}


def _self_test(trains: bool) -> dict[str, Any]:
    from joulemesh.planning.static import plan
    from joulemesh.scenario import Scenario

    small = {"devices.count": 4, "plan.iterations": 4, "training.model": "logistic"}
    more = {"training.l2": 0.01, "training.eval_every": 2}
    scenario = Scenario.preset("adaptive").override({**small, **more})
    begun = time.perf_counter()
    made = plan(scenario)
    if (made.margin_j < 0).any():
        raise ArithmeticError(f"smallest margin {made.margin_j.min()} J")
    found = {"scheme": made.scheme, "plan_s": round(time.perf_counter() - begun, 3)}
    if not trains:
        return found
    from joulemesh.study.run import run

    begun = time.perf_counter()
    result = run(scenario)
    if not (result.loss == result.loss).all():
        raise ArithmeticError(f"loss {result.loss[-1]}")
    run_s = round(time.perf_counter() - begun, 3)
    return {**found, "run_s": run_s, "accuracy": round(float(result.accuracy[-1]), 4)}


def _homely(text: str) -> str:
    """Text without the name of the user's home folder."""
    home = str(Path.home())
    return text.replace(home, "~") if len(home) > 1 else text


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

    found = examine(self_test=not quick, folder=folder)
    say(json_format.dumps(found) if json else _text(found), lines=True)
    if found["problems"]:
        raise typer.Exit(1)


def _text(found: dict[str, Any]) -> str:
    from joulemesh.base.units import si

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
        rows["meters"] = _meters_line(found["meters"])
    if found["deploy"]:
        rows["deploy"] = _deploy_line(found["deploy"])
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


def _meters_line(found: dict[str, dict[str, Any]]) -> str:
    """Meters that can be read, and those that a line would make readable, with that line."""
    given = ("declared", "csv")  # they need no sensor, and can always be asked for
    ready = [f"{name}: {one['what']}" for name, one in found.items() if one["ready"]]
    lines = ["; ".join(ready) or "none (calibrate with --watts W or --meter FILE.csv)"]
    for name, one in found.items():
        if not one["ready"] and one["remedy"] and name not in given:
            lines.append(f"{name}: {one['what']}; to change that:")
            lines += [f"  {line}" for line in one["remedy"].splitlines()]
    return "\n           ".join(lines)


def _deploy_line(found: dict[str, Any]) -> str:
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
