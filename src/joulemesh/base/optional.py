"""Code that may be there or not: packages of extras, and the user's own in files."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from joulemesh.base.errors import JoulemeshError, ScenarioError

# What installs a module that the light installation lacks: the extra, or the package itself for
# one that a user may rather have alone. With what needs it, where nobody on the way there said so.
EXTRAS = {
    "jax": ("jax", "training"),
    "jaxlib": ("jax", "training"),
    "optax": ("jax", "training"),
    "flax": ("jax", "a Flax module"),
    "pooch": ("jax", "downloading a data set"),
    "matplotlib": ("figures", "drawing a figure"),
    "torch": ("torch", "a PyTorch module"),
    "array_api_compat": ("torch", "a PyTorch module"),
    "optuna": ("optuna", "this search"),
    "cryptography": ("deploy", "handling a fleet's keys"),
    "prometheus_client": ("deploy", "--metrics"),
    "mlflow": ("mlflow", "tracking by MLflow"),
    "wandb": ("wandb", "tracking by Weights & Biases"),
    "onnx": ("onnx", "--format onnx"),
    "pynvml": ("meters", "measuring an NVIDIA GPU"),
}
TITLES = {
    "python": "Python",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "jax": "JAX",
    "flax": "Flax",
    "torch": "PyTorch",
    "matplotlib": "Matplotlib",
}
"""What packages are called by those who write them."""


class MissingPackageError(JoulemeshError, ImportError):
    """An optional package is not installed; the text has the line that installs it."""


def installed(module: str) -> bool:
    """Whether a module is there; it is not imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def require(module: str, purpose: str, package: str | None = None) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        top, missing = module.split(".")[0], (error.name or "").split(".")[0]
        if top != missing:  # a package that is there may itself lack one; then that has to be named
            raise _refusal(missing, purpose) from None
        raise _refusal(top, purpose, package) from None


def explained(error: Exception) -> Exception:
    """An import's failure in words of what to install, if an optional package is what it lacks."""
    if type(error) is not ModuleNotFoundError:
        return error
    module = (error.name or "").split(".")[0]
    return _refusal(module, EXTRAS[module][1]) if module in EXTRAS else error


def _refusal(module: str, purpose: str, package: str | None = None) -> MissingPackageError:
    extra = f"'joulemesh[{EXTRAS[module][0]}]'" if module in EXTRAS else module
    name = package if package and "[" not in package else TITLES.get(module, module)
    return MissingPackageError(
        f"{purpose} needs {name}, which is not installed; pip install {package or extra}"
    )


def frame(columns: dict[str, Any], index: str | None = None) -> Any:
    made = require("pandas", "a data frame").DataFrame(columns)
    return made if index is None else made.set_index(index)


_PACKAGE = Path(__file__).resolve().parents[1]
_FILES: set[Path] = set()  # those that were run
_IN_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


def run_file(path: str | Path, asked: str) -> ModuleType:
    """Run a Python file of the user's own, as a module.

    What the file raises is passed on as it is; `place_in` finds the line.
    """
    path = Path(path)
    if not path.is_file():
        raise ScenarioError(f"{asked}: there is no such file; name a Python file")
    spec = spec_from_file_location(f"joulemesh_loaded_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ScenarioError(f"{asked}: this is not a Python file; name one that ends in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    _FILES.add(path.resolve())
    spec.loader.exec_module(module)
    return module


def in_file_parts(text: str) -> tuple[str, str] | None:
    """The file and the name in it; None if the text names nothing in a file."""
    found = _IN_FILE.fullmatch(text)
    return (found["path"], found["name"]) if found else None


def is_in_file(text: str) -> bool:
    """Does a scenario's text name something in a file of the user's own?"""
    return in_file_parts(text) is not None


@lru_cache(maxsize=16)
def _module(path: str, changed_ns: int) -> ModuleType:
    """The file, run once unless it has changed."""
    del changed_ns
    return run_file(path, path)


def in_file(text: str, field: str) -> Any:
    """What a file of the user's own calls by a name: ``"mine.py:quantile"``.

    A file that is not where the name says, as on a device that was told of it, is one of those
    that were loaded.
    """
    parts = in_file_parts(text)
    assert parts is not None
    path, name = Path(parts[0]), parts[1]
    if not path.is_file():
        loaded = [one for one in files_run() if one.name == path.name]
        if not loaded:
            raise ScenarioError(
                f"{field} = {text!r}: there is no file {path}; name one, or give it with --load"
            )
        path = loaded[-1]
    module = _module(str(path.resolve()), path.stat().st_mtime_ns)
    if not hasattr(module, name):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ScenarioError(
            f"{field} = {text!r}: {path} has no {name}; it has {', '.join(known[:8])}"
        )
    return getattr(module, name)


def files_run() -> tuple[Path, ...]:
    """The user's own files that `run_file` has run in this process."""
    return tuple(sorted(path for path in _FILES if path.is_file()))


def place_in(error: BaseException) -> str | None:
    """The last line of the user's own code that an error passed through."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, SyntaxError) and seen.filename and _is_own(seen.filename):
            return _words(seen.filename, seen.lineno or 1)
        places = [place for place in _places(seen) if _is_own(place[0])]
        if places:
            return _words(*places[-1])
        seen = seen.__cause__ or seen.__context__
    return None


def _places(error: BaseException) -> Iterator[tuple[str, int, str]]:
    frame = error.__traceback__
    while frame is not None:
        code = frame.tb_frame.f_code
        yield code.co_filename, frame.tb_lineno, code.co_name
        frame = frame.tb_next


def _is_own(filename: str) -> bool:
    """Whether a file was run, or lies beside one that was; installed packages do not count."""
    path = Path(filename).resolve()
    if path in _FILES:
        return True
    if not path.is_file():  # "<string>" and the like
        return False
    others = (_PACKAGE, Path(sys.prefix), Path(sys.base_prefix))
    if "site-packages" in path.parts or any(path.is_relative_to(other) for other in others):
        return False
    return any(path.is_relative_to(file.parent) for file in _FILES)


def _words(filename: str, line: int, function: str = "<module>") -> str:
    path = Path(filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    inside = "" if function.startswith("<") else f", in {function}"
    return f"{shown}, line {line}{inside}"


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined; its name alone if it lies in no file."""
    code = getattr(function, "__code__", None)
    if code is None:
        return str(getattr(function, "__name__", function))
    return _words(code.co_filename, code.co_firstlineno, code.co_name)


def require_call(function: Callable[..., Any], arguments: str, what: str) -> None:
    """Refuse a function of the user's own that cannot be called as it will be."""
    try:
        inspect.signature(function).bind(*arguments.split(", "))
    except TypeError as error:
        raise ScenarioError(f"{what} cannot be called with ({arguments}): {error}") from None
    except ValueError:  # a built-in function without a signature
        return
