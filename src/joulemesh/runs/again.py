"""What it takes to make a comparison again, kept with it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from joulemesh.data import Dataset
from joulemesh.files import write_text
from joulemesh.results.comparison import Comparison
from joulemesh.runs.inputs import FOLDER, keep_inputs, portable
from joulemesh.training.software import software

__all__ = ["STUDY", "command_for", "keep_study"]

STUDY = "study.json"


def keep_study(
    study: Comparison,
    folder: Path,
    data: Dataset | None = None,
    *,
    own_model: bool = False,
    code: Sequence[Path] = (),
) -> None:
    """Write ``scenario.toml``, ``inputs/`` and ``study.json`` into a comparison's folder.

    Args:
        study: what was compared.
        folder: that exists.
        data: the user's own, if it was given in memory.
        own_model: whether the user gave the model, which cannot be kept.
        code: files of the user's own that register methods.
    """
    keep_inputs(study.scenario, folder, data, own_model=own_model, code=code)
    record = {
        "command": command_for(study, code),
        "methods": [entry.name for entry in study.entries],
        "equal": study.equal,
        **study.repeated,
        "target": study.wanted,
        "rates": list(study.rates),
        "tuned_on": list(study.tuned_on),
        "versions": software(study.library),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(folder / STUDY, json.dumps(record, indent=1) + "\n")
    write_text(folder / "scenario.toml", portable(study.scenario).to_toml())


def command_for(study: Comparison, code: Sequence[Path] = ()) -> str | None:
    """The command that makes the comparison again, to be typed in its folder.

    Returns:
        None for seeds that no command can name: Python can (`joulemesh.compare`).
    """
    repeats = study.repeat_options
    if repeats is None:
        return None
    words = ["joulemesh", "compare", "scenario.toml"]
    words += ["--methods", ";".join(entry.name for entry in study.entries)]
    words += ["--equal", study.equal, *repeats]
    if study.wanted is not None:
        words += ["--target", repr(study.wanted)]
    if study.rates:
        words += ["--lr-grid", ",".join(map(repr, study.rates))]
        words += ["--tune-seeds", str(len(study.tuned_on))]
    for path in code:
        words += ["--load", f"{FOLDER}/{path.name}"]
    return shlex.join(words)
