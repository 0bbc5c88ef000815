"""A trained model for other tools: safetensors or ONNX, with a card that describes it."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import new_folder, read_json, sha256_of, write_bytes, write_text
from joulemesh.base.optional import TITLES, in_file_parts, require
from joulemesh.base.units import duration, energy
from joulemesh.data import Dataset
from joulemesh.metrics import reported
from joulemesh.models.core import Model
from joulemesh.models.described import config, loading
from joulemesh.models.kinds import CONV_WIDTHS
from joulemesh.models.torch_model import TorchModel
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario
from joulemesh.scenario.given import RECORD
from joulemesh.study.folder import RunFolder
from joulemesh.study.statistics import estimate
from joulemesh.training.prepare import the_dataset, the_model
from joulemesh.training.tensors import named_leaves, read_arrays
from joulemesh.views.markdown import code, table

_OPSET, _FORMAT = 17, 8  # what tools of 2022 and later read

Params = Mapping[str, NDArray[Any]]


class _Graph:
    """Nodes and constants, one after another."""

    def __init__(self, onnx: Any) -> None:
        self._onnx, self.nodes, self.constants = onnx, list[Any](), list[Any]()
        self.latest = "x"

    def constant(self, name: str, value: NDArray[Any]) -> str:
        stored = np.ascontiguousarray(value)
        self.constants.append(self._onnx.numpy_helper.from_array(stored, name))
        return name

    def apply(self, operation: str, *others: str, **attributes: Any) -> None:
        output = f"h{len(self.nodes)}"
        inputs = [self.latest, *others]
        self.nodes.append(self._onnx.helper.make_node(operation, inputs, [output], **attributes))
        self.latest = output

    def dense(self, params: Params, weights: str, biases: str) -> None:
        names = [self.constant(name, _single(params[name])) for name in (weights, biases)]
        self.apply("Gemm", *names)


def _single(value: NDArray[Any]) -> NDArray[np.float32]:
    return np.asarray(value, np.float32)


def onnx_graph(name: str, params: Params, data: Dataset) -> bytes:
    # The graph takes samples as they are in the data (float32 [batch, ...]), scales them as
    # training does, and gives logits [batch, classes].
    if name not in MODELS or not MODELS[name].sequential:
        known = ", ".join(one for one in MODELS.built_in if MODELS[one].sequential)
        raise ScenarioError(
            f"the model {name!r} has no ONNX graph, only {known} and PyTorch modules have: use "
            "--format safetensors"
        )
    onnx = require("onnx", "--format onnx")
    require("onnx.numpy_helper", "--format onnx")
    graph = _Graph(onnx)
    graph.apply("Sub", graph.constant("mean", _single(np.asarray(data.mean))))
    graph.apply("Div", graph.constant("std", _single(np.asarray(data.std))))
    if "conv0_w" in params:
        _convolutions(graph, params, data.shape[-1])
    graph.apply("Flatten", axis=1)
    _dense_layers(graph, params)
    return _model(onnx, graph, data)


def _convolutions(graph: _Graph, params: Params, channels: int) -> None:
    graph.apply("Transpose", perm=[0, 3, 1, 2])  # channels first, as ONNX convolves
    for layer, outputs in enumerate(CONV_WIDTHS):
        kernel = _single(params[f"conv{layer}_w"]).reshape(3, 3, channels, outputs)
        weights = graph.constant(f"conv{layer}_w", kernel.transpose(3, 2, 0, 1))
        biases = graph.constant(f"conv{layer}_b", _single(params[f"conv{layer}_b"]))
        graph.apply("Conv", weights, biases, kernel_shape=[3, 3])
        graph.apply("MaxPool", kernel_shape=[2, 2], strides=[2, 2])
        graph.apply("Relu")
        channels = outputs
    graph.apply("Transpose", perm=[0, 2, 3, 1])


def _dense_layers(graph: _Graph, params: Params) -> None:
    if "w" in params:
        graph.dense(params, "w", "b")
        return
    count = sum(key.startswith("dense") and key.endswith("_b") for key in params)
    for layer in range(count):
        graph.dense(params, f"dense{layer}_w", f"dense{layer}_b")
        if layer < count - 1:
            graph.apply("Relu")


def _model(onnx: Any, graph: _Graph, data: Dataset) -> bytes:
    helper, single = onnx.helper, onnx.TensorProto.FLOAT
    graph.nodes[-1].output[0] = "logits"
    made = helper.make_graph(
        graph.nodes,
        "joulemesh",
        [helper.make_tensor_value_info("x", single, ["batch", *data.shape])],
        [helper.make_tensor_value_info("logits", single, ["batch", data.classes])],
        graph.constants,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="joulemesh"
    )
    model.ir_version = _FORMAT
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content


def torch_graph(kept: Stored) -> bytes:
    """The graph of a module: samples as they are in the data in, logits out."""
    torch = require("torch", "a PyTorch module")
    require("onnx", "--format onnx of a PyTorch module")
    require("onnxscript", "--format onnx of a PyTorch module")
    sample = torch.tensor(np.asarray(kept.dataset.x_test[:2], np.float32))
    batch, file = torch.export.Dim("batch"), io.BytesIO()
    try:
        program = torch.onnx.export(
            _scaled(torch, kept),
            (sample,),
            dynamo=True,
            input_names=["x"],
            output_names=["logits"],
            dynamic_shapes={"x": {0: batch}},
            verbose=False,
        )
        program.save(file)
    except Exception as error:  # the exporter may raise anything
        reason = " ".join(str(error).split())[:200]
        raise ScenarioError(
            f"PyTorch cannot write {kept.start['learned']['model']} as ONNX "
            f"({type(error).__name__}: {reason}): use --format safetensors"
        ) from error
    return file.getvalue()


def _scaled(torch: Any, kept: Stored) -> Any:
    mean, std = (
        torch.tensor(np.asarray(one, np.float32)) for one in (kept.dataset.mean, kept.dataset.std)
    )
    first = channels_first(kept)

    class Scaled(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.module = torch_module(kept)
            self.register_buffer("mean", mean)
            self.register_buffer("std", std)

        def forward(self, x: Any) -> Any:
            seen = (x - self.mean) / self.std
            return self.module(seen.movedim(-1, 1) if first else seen)

    return Scaled().eval()


_MEAN = "model.safetensors"
_KEY = re.compile(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)")


@dataclass(frozen=True, eq=False)
class Stored:
    folder: Path  # of the run
    scenario: Scenario  # what was carried out
    params: Mapping[str, NDArray[Any]]  # by name, in the run's precision
    seed: int  # the repetition seed
    device: int | None  # whose model it is; None for the mean of all
    dataset: Dataset  # what was learned from
    # what was trained; None if the user gave it in memory, so that it was not kept
    model: Model | TorchModel | None
    start: Mapping[str, Any]  # the record of the run's start
    result: Mapping[str, Any]  # the figures of the run
    score: str  # what the run is measured by: `"accuracy"`, unless the scenario says otherwise
    scores: Mapping[int, float]  # the final one of the mean model on the test samples, in each seed


def stored(folder: str | Path, *, seed: int | None = None, device: int | None = None) -> Stored:
    """Read a trained model from the folder of a run, verified."""
    run = RunFolder(folder)
    start = run.start_record()
    result = run.result()
    if result is None:
        raise ScenarioError(
            f"the run in {run.path} is not finished ({run.completed} iterations are done): go on "
            f"with `joulemesh run --out {run.path} --resume`"
        )
    row, seed = _row(run.path, start["seeds"], seed)
    scenario = run.scenario()
    dataset = the_dataset(scenario)
    own, score = _given_in_memory(run.path), reported(scenario.training).score
    return Stored(
        run.path,
        scenario,
        _mean(run, row, len(start["seeds"])) if device is None else _of_device(run, row, device),
        seed,
        device,
        dataset,
        None if own else the_model(scenario, None, dataset),
        start,
        result,
        score,
        _scores(run.metrics_text(), f"test_{score}"),
    )


def _row(path: Path, seeds: list[int], seed: int | None) -> tuple[int, int]:
    if seed is None:
        return 0, seeds[0]
    if seed not in seeds:
        raise ScenarioError(
            f"the run in {path} has no seed {seed}: use one of {', '.join(map(str, seeds))}"
        )
    return seeds.index(seed), seed


def _given_in_memory(path: Path) -> bool:
    """Was the model given in memory, so that the folder has only its parameters?"""
    record = path / RECORD
    return record.is_file() and bool(read_json(record).get("own_model"))


def _mean(run: RunFolder, row: int, seeds: int) -> dict[str, NDArray[Any]]:
    from safetensors.numpy import load_file

    run.refuse_damage([_MEAN], remedy="restore it from a copy, or run the scenario again")
    found = load_file(run.path / _MEAN)
    return {name: leaf[row] if seeds > 1 else leaf for name, leaf in found.items()}


def _of_device(run: RunFolder, row: int, device: int) -> dict[str, NDArray[Any]]:
    count = int(run.account().rounds.shape[1])
    if not 0 <= device < count:
        raise ScenarioError(f"--device {device}: devices are 0..{count - 1}; choose one of them")
    name = f"{run.checkpoint.name}/{run.completed}.safetensors"
    if name not in run.manifest.newest.files:
        raise ScenarioError(
            f"{run.path} keeps no checkpoint, so that the devices' own models are not known: leave "
            "--device out, or run with --out"
        )
    run.refuse_damage([name], remedy="leave --device out, or run the scenario again")
    arrays = read_arrays(run.path / name, {}, besides="")
    params = {key: leaf for key, leaf in arrays.items() if key.lstrip(".").startswith("params")}
    # [seeds, devices, ...], or [seeds, 1, ...] where all devices hold the same.
    return {_dotted(key): leaf[row, device % leaf.shape[1]] for key, leaf in params.items()}


def _dotted(name: str) -> str:
    """A checkpoint's name of a parameter as the run's model file has it."""
    if name.startswith("params."):
        return name.removeprefix("params.")
    keys = [next(filter(None, found)) for found in _KEY.findall(name)]
    return ".".join(keys[1:]) or "params"


def _scores(text: str, column: str) -> dict[int, float]:
    """The last of a column in the text of ``metrics.csv``, by seed."""
    last: dict[int, float] = {}
    for row in csv.DictReader(io.StringIO(text)):
        last[int(row["seed"])] = float(row[column])
    return last


_Z = 1.959963984540054  # of 95 %
_AT_ONCE = 1000


class Tested(NamedTuple):
    """Right answers among test samples, with the 95 % interval of their share (Wilson's)."""

    accuracy: float
    low: float
    high: float
    samples: int


def wilson(right: int, samples: int) -> tuple[float, float]:
    share, z2 = right / samples, _Z**2
    middle = (share + z2 / (2 * samples)) / (1 + z2 / samples)
    half = _Z * math.sqrt(share * (1 - share) / samples + z2 / (4 * samples**2))
    half /= 1 + z2 / samples
    return max(middle - half, 0.0), min(middle + half, 1.0)


def tested(kept: Stored) -> Tested | None:
    # None where the model itself was not kept, or where it does not tell classes.
    if kept.model is None or kept.dataset.targets != "classes":
        return None
    x, y, right = kept.dataset.x_test, kept.dataset.y_test, 0
    for first in range(0, len(y), _AT_ONCE):
        part = slice(first, first + _AT_ONCE)
        right += int((stored_logits(kept, x[part]).argmax(axis=1) == y[part]).sum())
    return Tested(right / len(y), *wilson(right, len(y)), len(y))


def stored_logits(kept: Stored, x: NDArray[Any]) -> NDArray[Any]:
    """Logits [B, classes] of samples as they are in the data."""
    assert kept.model is not None
    seen = kept.dataset.normalise(x)
    if isinstance(kept.model, TorchModel):
        return _torch_logits(kept, seen)
    return np.asarray(kept.model.apply(params_of(kept.model, kept), seen))


def params_of(model: Model, kept: Stored) -> Any:
    """The parameters as the tree that a model of JAX takes."""
    import jax

    like = jax.eval_shape(model.init, jax.random.key(0))
    shapes = jax.tree.map(lambda leaf: np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape), like)
    names = list(named_leaves(shapes))
    leaves = [np.asarray(kept.params[name], np.float32) for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def torch_module(kept: Stored) -> Any:
    """The module with its trained parameters, in evaluation mode."""
    torch = require("torch", "a PyTorch module")
    assert isinstance(kept.model, TorchModel)
    state = {name: torch.tensor(np.asarray(leaf)) for name, leaf in kept.params.items()}
    kept.model.module.load_state_dict(state, strict=False)
    return kept.model.module.float().eval()


def channels_first(kept: Stored) -> bool:
    """Does the module see images with their channels first? So it does those of the catalog."""
    from joulemesh.training.torch.gradients import seen_shape

    return seen_shape(kept.dataset) != tuple(kept.dataset.shape)


def _torch_logits(kept: Stored, seen: NDArray[Any]) -> NDArray[Any]:
    torch = require("torch", "a PyTorch module")
    moved = np.moveaxis(seen, -1, 1) if channels_first(kept) else seen
    with torch.no_grad():
        answer = torch_module(kept)(torch.tensor(np.ascontiguousarray(moved, np.float32)))
    return np.asarray(answer.numpy())


def onnx_logits(content: bytes, x: NDArray[Any]) -> NDArray[Any]:
    """Logits by the reference evaluator of ``onnx``."""
    reference = require("onnx.reference", "--format onnx", "onnx")
    onnx = require("onnx", "--format onnx")
    evaluator = reference.ReferenceEvaluator(onnx.load_model_from_string(content))
    (logits,) = evaluator.run(None, {"x": np.asarray(x, np.float32)})
    return np.asarray(logits)


def card(kept: Stored, path: Path, measured: Tested | None, checked: str = "") -> str:
    """The card, as Markdown with the front matter that model hubs read."""
    learned = kept.start["learned"]
    title = kept.start.get("name") or "model"
    lines = [
        "---", "license: other", "library_name: joulemesh",
        "tags: [federated-learning, decentralized-learning, joulemesh]", f"metrics: [{kept.score}]",
        "---", "", f"# {title}: {learned['model']} on {learned['dataset']}", "",
        f"{_whose(kept)} Trained by {_fleet(kept)}. {checked}".rstrip(), "",
        table(("", ""), _rows(kept, path, measured)), "",
        "Joules and seconds are the account's (modelled or measured figures of the scenario), for "
        "all devices together.", "",
        "## Load it", "", "```python", _lines(kept, path.name), "```", "",
        "`x` holds samples as they are in the data, float32 `[batch, "
        f"{', '.join(map(str, kept.dataset.shape))}]`; the scaling of training is in "
        f"{'the graph' if path.suffix == '.onnx' else '`config.json`'}.", "",
        "## Limits", "",
        "The figures are those on the test samples of this data set, and say nothing about other "
        "data. Devices' data were partitioned by "
        f"{code(kept.scenario.training.partition)}; the model was not checked for bias or for "
        "what it reveals about single samples.", "",
        "## Licence", "",
        "The software that trained it is under Apache-2.0 and claims no right in the model. Terms "
        f"of the data ({learned['dataset']}) may extend to it: look them up, choose a licence, "
        "and put it in place of `other` above.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _whose(kept: Stored) -> str:
    if kept.device is not None:
        return f"The model of device {kept.device} after the last exchange, seed {kept.seed}."
    return f"The mean of all devices' models after the last iteration, seed {kept.seed}."


def _fleet(kept: Stored) -> str:
    result, method = kept.result, kept.start.get("method")
    words = f"{result['devices']:,} devices in {result['iterations']:,} iterations"
    return f"{words} of {method}" if method else f"{words}, without a server, as planned"


def _rows(kept: Stored, path: Path, measured: Tested | None) -> list[tuple[str, str]]:
    result, rows = kept.result, list[tuple[str, str]]()
    if measured is not None:
        rows.append(
            (
                "test accuracy",
                f"{measured.accuracy:.4f} (95 % interval {measured.low:.4f} to "
                f"{measured.high:.4f}, Wilson’s, {measured.samples:,} samples)",
            )
        )
    label = kept.score.replace("_", " ")
    every = estimate(np.array(list(kept.scores.values())))
    if every.seeds > 1:
        words = f"{every.mean:.4g} ± {every.half:.2g} (95 %, Student’s t)"
        rows.append((f"mean {label} over {every.seeds} seeds", words))
    elif measured is None or kept.score != "accuracy":
        words = f"{every.mean:.4g} (mean model, {result['test_samples']:,} samples)"
        rows.append((f"test {label}", words))
    count = sum(leaf.size for leaf in kept.params.values())
    return [
        *rows,
        ("energy of the training", energy(float(result["energy_j"]))),
        ("time of the training", duration(float(result["time_s"]))),
        ("parameters", f"{count:,} ({next(iter(kept.params.values())).dtype})"),
        ("data", f"{kept.start['learned']['dataset']}, {len(kept.dataset.y_train):,} samples"),
        ("trained by", _trained(kept)),
        ("run started", str(kept.start.get("started", ""))),
        (f"SHA-256 of {path.name}", sha256_of(path)),
        ("SHA-256 of the run's scenario.toml", sha256_of(kept.folder / "scenario.toml")),
        ("written by", f"Joulemesh {__version__}"),
    ]


def _trained(kept: Stored) -> str:
    versions = kept.start["versions"]
    libraries = versions.get("trained_by", ["jax"])
    return ", ".join(f"{TITLES[name]} {versions['packages'][name]}" for name in libraries)


def _lines(kept: Stored, file: str) -> str:
    training = kept.scenario.training
    built_in = kept.model is not None and in_file_parts(training.model) is None
    torch = isinstance(kept.model, TorchModel)
    return loading(training, kept.dataset.shape, file, torch=torch, built_in=built_in)


def config_text(kept: Stored, file: str) -> str:
    whose = {"seed": kept.seed, "device": kept.device}
    name = kept.start["learned"]["model"]
    facts = config(kept.scenario.training, kept.dataset, file, name, **whose)
    return json.dumps(facts, indent=1) + "\n"


FORMATS = ("safetensors", "onnx")
_TRIED = 64  # test samples on which a graph is compared
_TOLERANCE = 1e-5  # of the largest logit


def export_model(
    run: str | Path,
    folder: str | Path,
    *,
    format: str = "safetensors",
    seed: int | None = None,
    device: int | None = None,
) -> Path:
    """Write the final model of a run, with a card and what a program needs to use it.

    Args:
        run: the folder of a finished run, of a fleet, or of a device.
        folder: a new one, or an empty one: it gets ``model.safetensors`` or ``model.onnx``, the
            card ``README.md``, and ``config.json`` with shapes and scaling.
        format: ``"safetensors"``, or ``"onnx"`` for the built-in models and PyTorch modules: a
            graph that takes samples as they are in the data and gives logits. It is compared with
            the trained model before it is written.
        seed: one of the run's repetition seeds; the first unless given.
        device: whose model; the mean of all devices' unless given.

    Returns:
        The folder.

    Raises:
        ScenarioError: the run is not finished or damaged, or the model has no such format. Nothing
            is written then.
        MissingPackageError: ``onnx`` is not installed.

    >>> import joulemesh, tempfile
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"plan.iterations": 2})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     result = joulemesh.run(scenario, out=Path(place, "run"))
    ...     model = export_model(Path(place, "run"), Path(place, "model"))
    ...     sorted(path.name for path in model.iterdir())
    ['README.md', 'config.json', 'model.safetensors']
    """
    if format not in FORMATS:
        raise ScenarioError(f"format {format!r} is unknown: use {' or '.join(FORMATS)}")
    from joulemesh.study.export_fleet import export_fleet, is_fleet

    if is_fleet(Path(run)):
        if seed is not None:
            raise ScenarioError("--seed: a fleet has one seed; leave it out")
        return export_fleet(Path(run), Path(folder), format=format, device=device).folder
    kept, checked = stored(run, seed=seed, device=device), ""
    if format == "onnx":
        content = _onnx(kept)
        checked = _compared(kept, content)
    else:
        content = _safetensors(kept)
    measured = tested(kept)
    with new_folder(folder) as draft:
        path = draft / f"model.{format}"
        write_bytes(path, content)
        write_text(draft / "config.json", config_text(kept, path.name))
        write_text(draft / "README.md", card(kept, path, measured, checked))
    return Path(folder)


def _safetensors(kept: Stored) -> bytes:
    from safetensors.numpy import save

    about = {"format": "joulemesh", "model": str(kept.start["learned"]["model"])}
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in kept.params.items()}
    content: bytes = save(arrays, metadata=about)
    return content


def _onnx(kept: Stored) -> bytes:
    if kept.model is None:
        name = kept.start["learned"]["model"]
        raise ScenarioError(
            f"the model {name} was given in memory, and the run keeps its parameters alone: use "
            "--format safetensors, or name it by training.model = 'FILE.py:NAME'"
        )
    if kept.dataset.targets == "tokens":
        raise ScenarioError(
            f"{kept.dataset.name} has tokens, which the ONNX graphs do not take: use --format "
            "safetensors"
        )
    if isinstance(kept.model, TorchModel):
        return torch_graph(kept)
    return onnx_graph(kept.scenario.training.model, kept.params, kept.dataset)


def _compared(kept: Stored, content: bytes) -> str:
    """Refuse a graph that answers otherwise than the model; otherwise say how near it comes."""
    x: NDArray[Any] = kept.dataset.x_test[:_TRIED]
    ours, theirs = stored_logits(kept, x), onnx_logits(content, x)
    apart = float(np.abs(ours - theirs).max())
    if not apart <= _TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise ScenarioError(
            f"the ONNX graph's logits are up to {apart:.2g} from the model's: use --format "
            "safetensors, and please report this"
        )
    return (
        f"The graph's logits of {len(x)} test samples are within {apart:.0e} of the trained "
        "model's."
    )
