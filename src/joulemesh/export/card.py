"""The card of an exported model: what it is, how well it does, what it cost, how to load it."""

from __future__ import annotations

__all__ = ["card", "config_text"]

import json
from pathlib import Path

import numpy as np

from joulemesh._version import __version__
from joulemesh.export.forward import Tested
from joulemesh.export.stored import Stored
from joulemesh.files.manifest import sha256_of
from joulemesh.models.described import config, loading
from joulemesh.models.torch_model import TorchModel
from joulemesh.optional import TITLES
from joulemesh.own_code import in_file_parts
from joulemesh.results.statistics import estimate
from joulemesh.units import duration, energy
from joulemesh.views.markdown import code, table


def card(kept: Stored, path: Path, measured: Tested | None, checked: str = "") -> str:
    """The card, as Markdown with the front matter that model hubs read.

    Args:
        kept: the model.
        path: of its file, which is written already.
        measured: accuracy of this very model; None where it could not be computed.
        checked: a sentence about the check of the file, if there was one.
    """
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
    """The library that trained the model, with its version."""
    versions = kept.start["versions"]
    libraries = versions.get("trained_by", ["jax"])
    return ", ".join(f"{TITLES[name]} {versions['packages'][name]}" for name in libraries)


def _lines(kept: Stored, file: str) -> str:
    training = kept.scenario.training
    built_in = kept.model is not None and in_file_parts(training.model) is None
    torch = isinstance(kept.model, TorchModel)
    return loading(training, kept.dataset.shape, file, torch=torch, built_in=built_in)


def config_text(kept: Stored, file: str) -> str:
    """The text of ``config.json``."""
    whose = {"seed": kept.seed, "device": kept.device}
    name = kept.start["learned"]["model"]
    facts = config(kept.scenario.training, kept.dataset, file, name, **whose)
    return json.dumps(facts, indent=1) + "\n"
