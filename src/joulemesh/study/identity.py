"""What decides the numbers of a run, in one record, and in what two runs differ.

The folder of a run keeps the record in the open, so that `--resume` can say what is another one;
runs that `compare`, `sweep`, `tune` and `reproduce` keep are named by its digest.
"""

from __future__ import annotations

__all__ = [
    "FOLDER",
    "asked",
    "chosen_seeds",
    "code_digest",
    "contender_digest",
    "data_digest",
    "difference",
    "file_digest",
    "keep_inputs",
    "key_of",
    "model_digest",
    "portable",
    "record_of",
    "run_key",
    "world_digest",
]

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, read_bounded, sha256_of, write_bytes
from joulemesh.base.optional import files_run
from joulemesh.data import Dataset
from joulemesh.data.arrays import write_npz
from joulemesh.data.load import device_names
from joulemesh.data.own import in_several_files
from joulemesh.methods import Contender, Setting
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.ground import explicit_sizes
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import FOLDER, RECORD, input_files, with_files
from joulemesh.training.prepare import OWN_DATA
from joulemesh.training.schedule import array_parts, data_digest, digest
from joulemesh.training.software import software

_HOME = Path(joulemesh.__file__).parent
# A change in how results are drawn or summed up does not change them.
_ROOMS = (
    "scenario",
    "data",
    "models",
    "world",
    "aggregation",
    "planning",
    "training",
    "methods",
)
# Of other rooms: how much runs at once; when a run is evaluated, what is kept of it.
_OWN = (
    "base/machine.py",
    "fading.py",
    "metrics.py",
    "study/contest.py",
    "study/record.py",
)
_PLACES = {"data_dir", "dataset", "test_dataset"}


# Recorded, but a run may go on with others of these.
_MAY_DIFFER = ("platform", "accelerators", "processes", "trained_by")
# Compared part by part, or not at all: words for the report follow from the rest.
_OTHERWISE = ("asked", "code", "identity", "learned", "versions")


def file_digest(field: str, path: Path) -> str:
    """A digest of a file that a field of the scenario names."""
    try:
        return sha256_of(path)
    except OSError as error:
        raise ScenarioError(
            f"{field}: cannot read {path}: {error.strerror}; make it readable"
        ) from None


def asked(scenario: Scenario) -> dict[str, Any]:
    """The scenario as plain values, with the contents of its files in place of their paths."""
    names = {field: file_digest(field, path) for field, path in input_files(scenario).items()}
    if scenario.training.dataset.endswith(
        OWN_DATA.removeprefix(".")
    ):  # they have a digest of their own
        names["training.dataset"] = OWN_DATA
    values = with_files(scenario, names).model_dump(mode="json")
    values["training"].pop("data_dir")  # where the data lie does not matter; the data do
    return values


def chosen_seeds(scenario: Scenario, seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The repetition seeds: those given, or as many as wanted from the scenario's on."""
    if isinstance(seeds, int):
        seeds = range(scenario.seed, scenario.seed + seeds)
    chosen = tuple(int(seed) for seed in seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ScenarioError(f"seeds are {list(chosen)}: give different numbers from 0, at least 1")
    return chosen


def record_of(
    scenario: Mapping[str, Any],
    seeds: Sequence[int],
    library: str | None,
    identity: Mapping[str, Any] | None = None,
    **terms: Any,
) -> dict[str, Any]:
    """Everything that a run's numbers depend on, as plain values."""
    record = {"asked": scenario, "seeds": list(seeds), **terms}
    if library is not None:
        record["versions"] = _software(library)
    if library is not None and (files := files_run()):
        record["code"] = {path.name: sha256_of(path) for path in files}
    return record if identity is None else {**record, "identity": dict(identity)}


@lru_cache(maxsize=8)
def _software(library: str) -> dict[str, Any]:
    return software(library)  # it reads the metadata of packages, and a sweep has many records


def key_of(record: Mapping[str, Any]) -> str:
    """The name under which a run is kept: a digest of its record and of the package's code."""
    versions = {k: v for k, v in record["versions"].items() if k not in _MAY_DIFFER}
    said = [{**record, "versions": versions}, code_digest()]
    return digest([json.dumps(said, sort_keys=True).encode()])


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """The first thing in which two records of a start differ, in words; None if in nothing."""
    if "asked" in now:
        for name, old, new in _fields(then.get("asked"), now["asked"]):
            return f"{name} was {_short(old)} and is {_short(new)}"
    for name in now:
        if name not in _OTHERWISE and then.get(name) != now[name]:
            was, now_is = ("were", "are") if isinstance(now[name], list) else ("was", "is")
            return f"{name} {was} {_short(then.get(name))} and {now_is} {_short(now[name])}"
    if "asked" in now and "versions" in now:  # a whole start, not a part of one
        for name, old, new in _fields(then.get("code", {}), now.get("code", {})):
            if new is None:
                return f"{name} was loaded and is not (add --load {name})"
            return f"{name} was {'another file' if old else 'not loaded'}"
    if "versions" in now:
        for name, old, new in _fields(then.get("versions"), now["versions"]):
            if name not in _MAY_DIFFER:
                return f"the version of {name.removeprefix('packages.')} was {old} and is {new}"
    if "identity" in now:
        for name, _, _ in _fields(then.get("identity"), now["identity"]):
            return f"the {name} is not the same"
    return None


def _fields(then: Any, now: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    if not isinstance(then, dict) or not isinstance(now, dict):
        if then != now:
            yield above, then, now
        return
    for name in [*now, *(name for name in then if name not in now)]:
        below = f"{above}.{name}" if above else str(name)
        yield from _fields(then.get(name), now.get(name), below)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def model_digest(model: Model | TorchModel, dataset: Dataset) -> str:
    """A digest of what a model computes and minimises, where it begins, and what computes it."""
    if isinstance(model, TorchModel):
        from joulemesh.training.torch.learner import torch_model_digest

        return torch_model_digest(model)
    import jax

    from joulemesh.training.jax.engine import model_digest as traced
    from joulemesh.training.jax.engine import two_targets

    own = traced(model, dataset.shape, two_targets(dataset))
    return digest([own.encode(), repr(jax.local_device_count()).encode()])


@lru_cache(maxsize=1)
def code_digest() -> str:
    """A digest of the package's own code that computes."""
    files = [p for room in _ROOMS for p in (_HOME / room).rglob("*.py")]
    files += [_HOME / name for name in _OWN]
    code = [path.relative_to(_HOME).as_posix().encode() + path.read_bytes() for path in files]
    return digest(sorted(code))


def world_digest(setting: Setting) -> str:
    """A digest of devices and links: files that the scenario names may change under their name."""
    world, sizes = setting.world, explicit_sizes(setting.scenario)
    costs, devices = setting.forecast, world.devices
    held = np.zeros(0) if sizes is None else sizes
    traced = () if world.channel.fades is None else world.channel.fades.data
    names = np.array(device_names(setting.scenario), str)  # rows may be dealt by them
    return digest(
        array_parts(
            world.graph.edges,
            world.graph.positions_m,
            costs.forward_j,
            costs.backward_j,
            devices.round_energy_j,
            devices.round_latency_s,
            setting.work.round_samples,
            held,
            *traced,
            *world.traces.data,
            names,
        )
    )


def contender_digest(contender: Contender) -> str | None:
    """A digest of what a method will do: its schedule, its price, and its own exchange's code."""
    schedule, price = contender.schedule, contender.reserve
    parts = array_parts(schedule.rounds, schedule.active, schedule.exchanged, price.energy_j)
    parts += array_parts(price.seconds, price.bits, contender.battery_j)
    if schedule.exact.any():
        parts += array_parts(schedule.exact)
    if schedule.arrived is not None or schedule.wire:
        parts.append(schedule.digest().encode())
    own: list[Callable[..., Any]] = [contender.settle] if contender.settle is not None else []
    mixing: Any = schedule.mixing
    if callable(mixing):
        own.append(mixing)
    elif sparse.issparse(mixing):
        lists: Any = mixing
        parts += array_parts(lists.data, lists.indices, lists.indptr)
    elif schedule.kind != "messages":  # whose digest is there already
        parts += array_parts(mixing)
    if contender.exchange is not None:
        own += [contender.exchange.init, contender.exchange.apply]
        own += [contender.exchange.correction] if contender.exchange.correction else []
    for function in own:
        place = _file_of(function)
        if place is None:
            return None
        if _HOME not in place.parents:  # the package's own code has its digest already
            parts += [path.read_bytes() for path in _with_neighbours(place)]
    return digest([*parts, str(schedule.mixing_rounds).encode()])


def _file_of(function: Callable[..., Any]) -> Path | None:
    while isinstance(function, partial):
        function = function.func
    function = getattr(function, "__wrapped__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    place = Path(code.co_filename) if code is not None else None
    return place.resolve() if place is not None and place.is_file() else None


def _with_neighbours(place: Path) -> list[Path]:
    """A user's file, and the loaded modules that lie in its folder or below: it may import them."""
    files = {
        Path(name).resolve()
        for module in list(sys.modules.values())
        if (name := getattr(module, "__file__", None)) and str(name).endswith(".py")
    }
    below = {path for path in files if place.parent in path.parents and path.is_file()}
    return [place, *sorted(path for path in below if not {place, _HOME} & {path, *path.parents})]


def run_key(
    setting: Setting,
    contender: Contender,
    *,
    seed: int,
    learned: str,
    rate: float | None = None,
    trial: bool = False,
) -> str | None:
    """The name under which a run is kept."""
    done = contender_digest(contender)
    if done is None:
        return None
    # Where the data lie does not matter: the samples themselves are in ``learned``.
    fields = setting.scenario.model_dump(mode="json", exclude={"training": _PLACES})
    terms: dict[str, Any] = {"method": contender.name, "equal": setting.equal}
    if trial or rate not in (None, setting.scenario.training.learning_rate):
        terms |= {"rate": rate, "trial": trial}
    library = "torch" if setting.module else "jax"
    return key_of(record_of(fields, [seed], library, {"learned": learned, "method": done}, **terms))


# Larger files stay where they are; their digest is recorded.
_MOST_BYTES = 64 * 2**20
_PACKED = (".gz", ".xz")
_DATA = OWN_DATA.removeprefix("./")


def _copies(scenario: Scenario) -> dict[str, str]:
    """The relative names of the files that are copied, by field."""
    return {
        field: f"{FOLDER}/{field.replace('.', '-')}{_suffix(path)}"
        for field, path in _files(scenario).items()
        if path.stat().st_size <= _MOST_BYTES and not in_several_files(str(path))
    }


def _files(scenario: Scenario) -> dict[str, Path]:
    """Files that a scenario names; data in memory only have the name of one."""
    found = input_files(scenario)
    if scenario.training.dataset == OWN_DATA:
        found.pop("training.dataset", None)
    return found


def portable(scenario: Scenario) -> Scenario:
    """The scenario with its files' names relative to a folder that holds copies of them."""
    # Files over 64 MiB are not copied and keep their names.
    return with_files(scenario, _copies(scenario))


def keep_inputs(
    scenario: Scenario,
    folder: Path,
    data: Dataset | None = None,
    *,
    own_model: bool = False,
    code: Sequence[Path] = (),
) -> list[str]:
    """Copy what a scenario names into a folder, with a record of it."""
    record: dict[str, Any] = {}
    names: list[str] = []

    def write(name: str, content: bytes) -> None:
        make_folder(folder / FOLDER)
        write_bytes(folder / name, content)
        names.append(name)

    def keep(field: str, path: Path, kept: str | None) -> None:
        size, sha256 = path.stat().st_size, file_digest(field, path)
        known = {"name": path.name, "bytes": size, "sha256": sha256, "kept": kept}
        record.setdefault("files", {})[field] = known
        if kept is not None:
            write(kept, read_bounded(path, size))

    copies = _copies(scenario)
    for field, path in _files(scenario).items():
        keep(field, path, copies.get(field))
    if data is not None and scenario.training.dataset == OWN_DATA:
        arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
        size = sum(array.nbytes for array in arrays)
        known: dict[str, Any] = {
            "name": Path(_DATA).name,
            "bytes": size,
            "samples_sha256": data_digest(data),
        }
        if size <= _MOST_BYTES:
            file = io.BytesIO()
            write_npz(data, file)
            content = file.getvalue()
            write(_DATA, content)
            known |= {"bytes": len(content), "sha256": sha256_of(folder / _DATA)}
        known["kept"] = _DATA if size <= _MOST_BYTES else None
        record.setdefault("files", {})["training.dataset"] = known
    for path in code:
        keep(f"code.{path.stem}", path, f"{FOLDER}/{path.name}")
    if own_model:
        record["own_model"] = True
    if record:
        write(RECORD, (json.dumps(record, indent=1) + "\n").encode())
    return names


def _suffix(path: Path) -> str:
    """What the name ends with; readers go by it."""
    return "".join(path.suffixes[-2:]) if path.suffix.lower() in _PACKED else path.suffix
