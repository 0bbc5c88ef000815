"""Data sets of the Hugging Face hub by name, where the package ``datasets`` is installed.

Each is decoded once into an ``.npz`` file in the cache; after that neither the network nor the
package is needed. Nothing is unpickled, and no code that comes with a data set is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import find, keep, sha256_of, user_cache, write_whole
from joulemesh.base.optional import require
from joulemesh.data.arrays import from_arrays
from joulemesh.data.reading import HUB

_OPTIONS = ("config", "image", "label", "revision", "test", "train")
_IMAGES = ("image", "img", "pixel_values", "x", "features")
_LABELS = ("label", "labels", "fine_label", "digit", "y", "target", "class")
_TESTS = ("test", "validation", "valid", "val")
_FORMAT = "v1"


@dataclass(frozen=True)
class _Wanted:
    """What ``hf:NAME?image=img&label=label`` says."""

    text: str
    name: str
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> _Wanted:
        name, _, query = text.removeprefix(HUB).partition("?")
        if not name or name.startswith(("/", ".")) or ":" in name:
            raise ScenarioError(
                f"dataset = {text!r} names no data set of the hub; write hf:OWNER/NAME"
            )
        try:
            pairs = parse_qsl(query, strict_parsing=True) if query else []
        except ValueError:
            raise ScenarioError(
                f"dataset = {text!r}: write options as hf:{name}?image=img&label=label"
            ) from None
        unknown = [key for key, _ in pairs if key not in _OPTIONS]
        if unknown:
            raise ScenarioError(
                f"dataset = {text!r}: the option {unknown[0]!r} is unknown; "
                f"known options: {', '.join(_OPTIONS)}"
            )
        return cls(text, name, dict(pairs))


def hub_file(text: str, cache: str | Path | None = None) -> Path:
    """The ``.npz`` file of a data set of the hub; made when it is first asked for."""
    wanted = _Wanted.parse(text)
    key = hashlib.sha256(repr((wanted.name, sorted(wanted.options.items()))).encode()).hexdigest()
    safe = "".join(letter if letter.isalnum() else "-" for letter in wanted.name)[:60]
    path = (
        (user_cache() if cache is None else Path(cache))
        / "hub"
        / f"{safe}-{key[:12]}-{_FORMAT}.npz"
    )
    mark = path.with_suffix(".sha256")
    if find(mark) == _digest(path):
        return path
    arrays = _fetch(wanted)
    from_arrays(
        *arrays.values(), name=text
    )  # checked before it is kept: what is wrong is said by name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScenarioError(
            f"cannot keep {text} in {path.parent}: {error.strerror}; make the folder writable"
        ) from None

    write_whole(path, lambda draft: np.savez_compressed(draft, allow_pickle=False, **arrays))
    keep(mark, _digest(path))
    return path


def _digest(path: Path) -> bytes:
    """SHA-256 of a kept file; empty if it cannot be read."""
    with suppress(OSError):
        return sha256_of(path).encode()
    return b""


def _fetch(wanted: _Wanted) -> dict[str, NDArray[Any]]:
    library = require("datasets", f"dataset = {wanted.text!r}")
    more = {k: v for k, v in wanted.options.items() if k == "revision"}
    try:
        splits = library.load_dataset(wanted.name, wanted.options.get("config"), **more)
    except (OSError, ValueError, RuntimeError) as error:  # also the library's own, and the hub's
        reason = " ".join(str(error).split())[:200]
        raise ScenarioError(
            f"dataset = {wanted.text!r} cannot be loaded ({type(error).__name__}: {reason}); "
            "check the name, the config and the network"
        ) from None
    if not isinstance(splits, Mapping):
        raise ScenarioError(f"dataset = {wanted.text!r} has no splits; name another")
    arrays: dict[str, NDArray[Any]] = {}
    for part, guesses in (("train", ("train",)), ("test", _TESTS)):
        split = splits[_pick(wanted, part, list(splits), guesses, "split")]
        columns = list(split.column_names)
        image = _pick(wanted, "image", columns, _IMAGES, "column")
        label = _pick(wanted, "label", columns, _LABELS, "column")
        arrays[f"x_{part}"] = _samples(wanted, f"{part}.{image}", split[image])
        arrays[f"y_{part}"] = _labels(wanted, f"{part}.{label}", split[label])
    return arrays


def columns_of(
    split: Any, where: str, label: str | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Samples and labels of a split of the package ``datasets``, by the usual names of columns."""
    columns = list(split.column_names)
    found = []
    for kind, guesses in (("image", _IMAGES), ("label", (label,) if label else _LABELS)):
        name = next((guess for guess in guesses if guess in columns), None)
        if name is None:
            raise ScenarioError(
                f"{where} has no column called {' or '.join(map(str, guesses))}, only "
                f"{', '.join(columns)}: rename one with rename_column(NAME, {kind!r})"
            )
        found.append(name)
    wanted = _Wanted(where, where, {})
    image, named = found
    return _samples(wanted, image, split[image]), _labels(wanted, named, split[named])


def _pick(
    wanted: _Wanted, option: str, known: list[str], guesses: tuple[str, ...], kind: str
) -> str:
    """The split or column that is asked for, or the first usual one."""
    asked = wanted.options.get(option)
    found = next((name for name in ((asked,) if asked else guesses) if name in known), None)
    if found is None:
        what = f"no {kind} {asked!r}" if asked else f"no {option} {kind} of a usual name"
        raise ScenarioError(
            f"dataset = {wanted.text!r} has {what}, only {', '.join(known)}; "
            f"write {HUB}{wanted.name}?{option}=NAME"
        )
    return found


def _samples(wanted: _Wanted, where: str, values: Any) -> NDArray[Any]:
    """Images as uint8 [n, height, width, channels], other samples as they are."""
    made: list[NDArray[Any]] = []
    for value in values:
        if hasattr(value, "convert"):  # a picture
            mode = "L" if value.mode in ("1", "L") else "RGB"
            pixels = np.asarray(value.convert(mode), np.uint8)
            made.append(pixels[..., None] if mode == "L" else pixels)
        else:
            made.append(np.asarray(value))
    shapes = sorted({one.shape for one in made})
    if len(shapes) != 1 or not made or made[0].dtype.kind not in "biuf":
        seen = f"{made[0].dtype}" if len(shapes) == 1 else f"the shapes {shapes[:3]}"
        raise ScenarioError(
            f"dataset = {wanted.text!r}: {where} holds {seen if made else 'nothing'}; samples must "
            "be pictures or numbers of one shape: resize them and save an .npz instead"
        )
    return np.stack(made)


def _labels(wanted: _Wanted, where: str, values: Any) -> NDArray[Any]:
    labels = np.asarray(list(values))
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise ScenarioError(
            f"dataset = {wanted.text!r}: {where} holds {labels.dtype} of shape {labels.shape}; "
            "labels must be whole numbers: choose another column with ?label=NAME"
        )
    return labels.astype(np.int64)
