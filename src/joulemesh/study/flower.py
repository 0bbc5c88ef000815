"""A scenario as a runnable Flower app: the same shards, model and local rounds, with a server."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, new_folder, write_text, write_whole
from joulemesh.base.optional import in_file_parts
from joulemesh.data import Dataset, Partition
from joulemesh.data.dataset import dataset_words
from joulemesh.data.reading import DATASETS
from joulemesh.metrics import CROSS_ENTROPY
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as make_plan
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario
from joulemesh.scenario.scenario import rounded_to
from joulemesh.templates import flower_models, flower_template
from joulemesh.training import draws
from joulemesh.training.jax.local_sgd import initial_params
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.prepare import partitions, the_dataset, the_model
from joulemesh.training.tensors import named_leaves
from joulemesh.views.words import model_words

_JAX = ("jax>=0.6", "optax>=0.2.4")


@dataclass(frozen=True, eq=False)
class ModelPart:
    files: Mapping[str, str]  # texts of modules, by name
    initial: Mapping[str, NDArray[Any]]  # parameters at the start, by name
    needs: tuple[str, ...]  # packages
    # whether images have their channels first, as modules of PyTorch want
    channels_first: bool = False

    def seen(self, data: Dataset) -> Dataset:
        """The data set with its axes as the model sees them."""
        if not self.channels_first:
            return data

        def first(x: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.moveaxis(x, -1, -3))

        scaling = [
            one if np.ndim(one) == 0 else first(np.broadcast_to(one, (1, 1, data.shape[-1])))
            for one in (data.mean, data.std)
        ]
        return replace(
            data,
            x_train=first(data.x_train),
            x_test=first(data.x_test),
            mean=scaling[0],
            std=scaling[1],
        )


def model_part(scenario: Scenario, model: Model | TorchModel, data: Dataset) -> ModelPart:
    name = scenario.training.model
    own = in_file_parts(name)
    if isinstance(model, TorchModel):
        return _torch(scenario, model, data)
    if own is None and name not in flower_models():
        known = ", ".join(one for one in MODELS.built_in if one in flower_models())
        raise ScenarioError(
            f"training.model = {name!r} was registered by a file of your own, which an app cannot "
            f"name: write training.model = 'FILE.py:NAME', or use one of {known}"
        )
    with precision_scope(scenario.training.precision):
        dtype = np.dtype("float64" if scenario.training.precision == "float64" else "float32")
        initial = named_leaves(initial_params(model, scenario.seed, dtype))
    learner = {"learner.py": flower_template("learner_jax.py")}
    if own is None:
        return ModelPart(
            {**learner, "model.py": flower_template(f"model_{name}.py")}, initial, _JAX
        )
    text = flower_template("model_own_jax.py").format(shape=repr(data.shape), name=own[1])
    files = {**learner, "model.py": text, "own_model.py": _source(own[0])}
    return ModelPart(files, initial, (*_JAX, "flax>=0.10"))


def _torch(scenario: Scenario, model: TorchModel, data: Dataset) -> ModelPart:
    training = scenario.training
    own = in_file_parts(training.model)
    assert own is not None  # a module is named by its file
    if training.optimizer != "sgd":
        raise ScenarioError(
            f"training.optimizer = {training.optimizer!r} of a PyTorch module is not exported: use "
            "'sgd', or a model of JAX"
        )
    wide = np.float64 if training.precision == "float64" else np.float32
    initial = {n: np.asarray(p).astype(wide) for n, p in model.initial(scenario.seed).items()}
    files = {
        "learner.py": flower_template("learner_torch.py"),
        "model.py": flower_template("model_own_torch.py").format(name=own[1]),
        "own_model.py": _source(own[0]),
    }
    first = data.name in DATASETS and len(data.shape) == 3
    return ModelPart(files, initial, ("torch>=2.2",), channels_first=first)


def _source(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8")


PACKAGE = "joulemesh_app"
_FLOWER = "flwr[simulation]>=1.41"


@dataclass(frozen=True)
class _App:
    scenario: Scenario  # what is asked
    plan: Plan  # of it
    dataset: Dataset  # as the model sees it
    partition: Partition  # who holds which samples
    model: ModelPart  # the part of the app that depends on the model
    learned: str  # what is learned, in words

    @property
    def ends(self) -> NDArray[np.int64]:
        return server_rounds(self.plan)


def server_rounds(plan: Plan) -> NDArray[np.int64]:
    """The iterations after which a server averages: those whose exchange the plan carries out."""
    ends = np.flatnonzero(plan.exchanged) + 1
    return np.union1d(ends, [plan.iterations]).astype(np.int64)


def export_flower(scenario: Scenario, folder: str | Path) -> Path:
    """Write a Flower app that plays a scenario with a server in the middle.

    Every device holds the samples that it holds in the simulation of the scenario's own seed, runs
    the plan's local rounds on the simulation's batches, and sends its parameters to the server,
    which averages them (FedAvg) and measures the mean model. The app needs neither Joulemesh nor
    the scenario's files; its README says what is the same and what is not.

    Args:
        scenario: what is asked.
        folder: a new one, or an empty one.

    Returns:
        The folder.

    Raises:
        ScenarioError: the scenario cannot be planned, the model cannot travel, or the folder is not
            empty. Nothing is written then.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"devices.count": 3})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     app = export_flower(scenario, Path(place, "app"))
    ...     sorted(path.name for path in app.iterdir())
    ['README.md', 'data', 'joulemesh_app', 'pyproject.toml', 'scenario.toml']
    """
    folder = Path(folder)
    with new_folder(folder) as draft:
        dataset = the_dataset(scenario)
        _require_classes(scenario, dataset)
        model = the_model(scenario, None, dataset)
        plan = make_plan(scenario, parameters=model.parameters, data=dataset)
        (held,) = partitions(scenario, dataset, (scenario.seed,), plan.work.round_samples)
        part = model_part(scenario, model, dataset)
        words = f"{model_words(model.name)} on {dataset_words(dataset.name)}"
        app = _App(scenario, plan, part.seen(dataset), held, part, words)
        _write_data(app, draft / "data")
        _write_code(app, draft / PACKAGE)
        write_text(draft / "scenario.toml", scenario.to_toml())
        write_text(draft / "pyproject.toml", _pyproject(app, folder.resolve()))
        write_text(draft / "README.md", _readme(app))
    return folder


def _require_classes(scenario: Scenario, dataset: Dataset) -> None:
    loss = scenario.training.loss
    if loss != CROSS_ENTROPY.name or dataset.targets != "classes":
        raise ScenarioError(
            f"training.loss = {loss!r} on {dataset_words(dataset.name)} is not exported to Flower: "
            f"the app minimises {CROSS_ENTROPY.name} over classes; use such a scenario"
        )


def _write_data(app: _App, folder: Path) -> None:
    make_folder(folder)
    data, plan, ends = app.dataset, app.plan, app.ends
    scaling = {"x_mean": np.asarray(data.mean), "x_std": np.asarray(data.std)}
    for device in range(app.partition.devices):
        own = app.partition.indices(device)
        _save(
            folder / f"device-{device:03d}.npz",
            x_train=data.x_train[own],
            y_train=data.y_train[own],
            rounds=plan.rounds[:, device].astype(np.int64),
            active=plan.active[:, device],
            ends=ends,
            **scaling,
        )
    names = {"class_names": np.array(data.class_names)} if data.class_names else {}
    _save(folder / "test.npz", x_test=data.x_test, y_test=data.y_test, **scaling, **names)
    _save(folder / "initial.npz", **app.model.initial)


def _save(path: Path, **arrays: Any) -> None:
    write_whole(path, lambda draft: np.savez(draft, allow_pickle=False, **arrays))


def _write_code(app: _App, folder: Path) -> None:
    make_folder(folder)
    for name in ("__init__.py", "task.py", "client_app.py", "server_app.py"):
        write_text(folder / name, flower_template(name))
    write_text(folder / "draws.py", inspect.getsource(draws))
    for name, text in app.model.files.items():
        write_text(folder / name, text)


def _pyproject(app: _App, folder: Path) -> str:
    training = app.scenario.training
    config = {
        "data": str(folder / "data"),
        "results": str(folder / "results"),
        "devices": app.partition.devices,
        "num-server-rounds": len(app.ends),
        "eval-every": training.eval_every,
        "seed": app.scenario.seed,
        "batch-size": training.batch_size,
        "learning-rate": float(training.learning_rate),
        "optimizer": training.optimizer,
        "local-round": training.local_round,
        "weights": training.weights,
        "l2": float(training.l2),
        "precision": training.precision,
    }
    # What JSON writes of texts and numbers is TOML, too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in config.items()]
    needed = [_FLOWER, "numpy>=2", *app.model.needs]
    return flower_template("pyproject.toml").format(
        name=_distribution(app.scenario.name),
        dependencies=", ".join(json.dumps(one) for one in needed),
        config="\n".join(lines),
    )


def _distribution(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "joulemesh-app"


def _readme(app: _App) -> str:
    scenario, plan = app.scenario, app.plan
    return flower_template("README.md").format(
        title=scenario.name or "A scenario of Joulemesh",
        version=__version__,
        devices=app.partition.devices,
        iterations=plan.iterations,
        rounds=len(app.ends),
        learned=app.learned,
        seed=scenario.seed,
        optimizer=scenario.training.optimizer,
        rate=scenario.training.learning_rate,
        batch=scenario.training.batch_size,
        same=_same(plan),
        differs="\n".join(f"- {line}" for line in _differences(app)),
    )


def _exact(plan: Plan) -> bool:
    return all(scheme.exact for _, scheme in plan.timeline.schemes)


def _same(plan: Plan) -> str:
    if not _exact(plan):
        return ""
    return (
        f"- **Result**: the plan's exchanges ({plan.scheme}) give every device the exact mean, as "
        "the server does, so\n  that the parameters are those of `joulemesh run`, up to rounding.\n"
    )


def _differences(app: _App) -> list[str]:
    """What a server cannot play, or changes, in whole sentences."""
    plan, scenario = app.plan, app.scenario
    lines = [
        f"**Exchange**: the plan's devices exchange with each other ({plan.scheme}); here all send "
        "to a server, and get its mean.",
        "**Joules and seconds**: Flower has no account of them. The plan's batteries and deadlines "
        "are for exchanges\n  without a server; `joulemesh compare --methods adaptive,fedavg` "
        "prices one.",
    ]
    if not _exact(plan):
        lines.append(
            f"**Mean**: {plan.scheme} leaves the devices' models apart from each other; the "
            "server's mean is exact, so that\n  the curves differ."
        )
    if not plan.exchanged.all():
        skipped = int((~plan.exchanged).sum())
        lines.append(
            f"**Rounds**: the plan skips {skipped:,} exchanges; a round of the server covers all "
            "iterations up to the next."
        )
    if not plan.active.all():
        lines.append(
            "**Absence**: a device that the plan has away still answers, with no rounds and weight "
            "0; one that comes back\n  takes up the server's mean, not a neighbour's parameters."
        )
    if scenario.network.packet_error:
        lines.append("**Losses**: no message is lost here.")
    if scenario.training.precision == "bfloat16":
        lines.append("**Precision**: float32 in place of bfloat16.")
    if rounded_to(scenario.network.bits_per_parameter):
        bits = scenario.network.bits_per_parameter
        lines.append(f"**Bits**: messages are not rounded to {bits} bits here.")
    if scenario.plan.bits != 32:
        lines.append("**Bits**: messages are not quantised here.")
    if scenario.training.metrics:
        lines.append("**Metrics**: accuracy and loss only.")
    return lines
