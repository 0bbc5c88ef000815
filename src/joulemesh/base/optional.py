"""Packages that only some users have: imported when asked for, or refused with what to install."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from joulemesh.base.errors import JoulemeshError

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
    "starlette": ("studio", "the studio"),
    "uvicorn": ("studio", "the studio"),
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
    """An optional package's module."""
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
    """A pandas DataFrame."""
    made = require("pandas", "a data frame").DataFrame(columns)
    return made if index is None else made.set_index(index)
