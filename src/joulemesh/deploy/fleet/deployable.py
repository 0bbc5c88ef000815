"""Whether a plan can be carried out by real devices, and how it travels to them."""

from __future__ import annotations

__all__ = ["check_deployable", "own_files", "portable", "roster_names", "sources"]

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from joulemesh.base.errors import ScenarioError
from joulemesh.data.load import device_names
from joulemesh.deploy.device.continuation import require_peers
from joulemesh.deploy.fleet.fleet import numbered_names
from joulemesh.deploy.fleet.identity import IdentityError, check_name
from joulemesh.planning.orders import digest_of
from joulemesh.planning.plan import Plan
from joulemesh.planning.walk import Continuation
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import INPUTS, input_files, with_files
from joulemesh.scenario.sections import FILES

_SUFFIX = re.compile(r"[^A-Za-z0-9.]")
_DATA = "training."  # samples stay where they are: every device has its own


def check_deployable(plan: Plan) -> None:
    """Refuse a plan that real devices cannot carry out.

    Raises:
        ScenarioError: one line that says why it is for simulation only.

    >>> import joulemesh
    >>> check_deployable(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    """
    devices = plan.scenario.devices
    leaving = any(first > 1 for _, first in devices.leave)  # the others are spare places
    for name in ("availability", "leave", "harvest_w", "capacity_j", "positions"):
        if leaving if name == "leave" else getattr(devices, name) not in (None, ()):
            raise ScenarioError(
                f"devices.{name} is for simulation: in the field devices themselves come, go, move "
                "and recharge; leave it out (`joulemesh deploy local` follows availability)"
            )
    require_peers(Continuation.of_plan(plan))


def roster_names(plan: Plan) -> tuple[str, ...]:
    """What the devices are called: as in their table, otherwise by their numbers.

    Raises:
        ScenarioError: a name is used twice, or cannot stand in a certificate.

    >>> import joulemesh
    >>> roster_names(joulemesh.plan(joulemesh.Scenario(devices={"count": 12})))[-1]
    'device-11'
    """
    names, count = device_names(plan.scenario), plan.scenario.devices.count
    table = plan.scenario.devices.table
    if not names:
        return numbered_names(count)
    for device, name in enumerate(names):
        try:
            check_name(name)
        except IdentityError as error:
            raise ScenarioError(f"{table}, device {device}: {error}") from None
    return names


def portable(plan: Plan) -> tuple[Scenario, str, dict[str, tuple[str, Path]]]:
    """A plan's scenario with names of its files that hold on every device.

    Returns:
        The scenario; the digest of the plan, made from it; and by field the name that a file has
        in the folder ``inputs``, and where it lies now. Samples do not travel.
    """
    named = {
        field: (f"{field.replace('.', '-')}{_SUFFIX.sub('', path.suffix)}", path)
        for field, path in input_files(plan.scenario).items()
        if not field.startswith(_DATA)
    }
    inside = {field: f"{INPUTS}/{name}" for field, (name, _) in named.items()}
    # Samples and code do not travel, and neither do their places on this machine.
    inside |= {field: Path(path).name for field, path in sources(plan.scenario).items()}
    inside.pop("training.data_dir", None)
    stated = with_files(plan.scenario, inside)
    if stated.training.data_dir is not None:
        training = stated.training.model_copy(update={"data_dir": None})
        stated = stated.model_copy(update={"training": training})
    return stated, digest_of(replace(plan, ground=replace(plan.ground, scenario=stated))), named


def sources(scenario: Scenario) -> dict[str, str]:
    """Files and folders that stay where they are: samples, and the user's own code; by field.

    >>> sources(Scenario(training={"data_dir": "published"}))
    {'training.data_dir': 'published'}
    """
    found = {
        field: str(path.absolute())
        for field, path in input_files(scenario).items()
        if field.startswith(_DATA)
    }
    folder = FILES["training.dataset"].path_in(scenario.training.dataset)
    if folder is not None and "training.dataset" not in found and Path(folder).exists():
        found["training.dataset"] = str(Path(folder).absolute())  # a folder of shards
    if scenario.training.data_dir is not None:
        found["training.data_dir"] = scenario.training.data_dir
    return found


def own_model_file(scenario: Scenario) -> Path | None:
    """The user's own file that a scenario's model is in."""
    return input_files(scenario).get("training.model")


def own_files(scenario: Scenario, loaded: Sequence[Path]) -> tuple[Path, ...]:
    """The user's own files that every device needs: those loaded, and that of the model.

    >>> own_files(Scenario(), [Path("lazy.py")])
    (PosixPath('lazy.py'),)
    """
    model = own_model_file(scenario)
    known = {path.resolve() for path in loaded}
    return (*loaded, *([model] if model is not None and model.resolve() not in known else []))
