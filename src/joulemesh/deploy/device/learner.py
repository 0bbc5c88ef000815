"""What trains on a device: the scenario's model with the simulator's draws, or a user's object."""

from __future__ import annotations

__all__ = ["LateLearner", "OwnLearner", "load_learner"]

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.base.errors import ScenarioError
from joulemesh.base.own_code import require_call, run_file
from joulemesh.deploy.plans import Learner
from joulemesh.models.torch_model import is_torch

_METHODS = {"parameters": "", "load": "parameters", "train": "iteration, rounds", "evaluate": ""}
_EXAMPLE = "learner.py:make"


class LateLearner:
    """A learner that is made when it is first needed, in the thread that needs it.

    Loading JAX and data takes seconds, in which a node that is started again can already talk to
    its neighbours.

    Args:
        make: gives the learner.
        parameters: length of the vector that the plan has priced.

    >>> LateLearner(lambda: OwnLearner(object(), "x.py:thing"), 3).parameters()
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: --learner x.py:thing has no parameters(): a learner has ...
    """

    def __init__(self, make: Callable[[], Learner], parameters: int) -> None:
        self._make, self._count = make, parameters
        self._made: Learner | None = None

    @property
    def _learner(self) -> Learner:
        if self._made is None:
            made = self._make()
            found = np.asarray(made.parameters())
            if found.shape != (self._count,) or found.dtype.kind != "f":
                raise ScenarioError(
                    f"the learner's parameters() gives an array {found.shape} of type "
                    f"{found.dtype}, and the plan was priced for one vector of {self._count:,} "
                    "floating-point numbers: plan again for this model"
                )
            self._made = made
        return self._made

    @property
    def made(self) -> bool:
        """Is there a learner already?"""
        return self._made is not None

    @property
    def repeatable(self) -> bool:
        """Does training from the same start end with the same bits again?"""
        return bool(getattr(self._learner, "repeatable", False))

    @property
    def trained_by(self) -> str:
        """What trains, with its version where that is known."""
        return str(getattr(self._learner, "trained_by", ""))

    def prepare(self) -> None:
        """Make the learner, and let it prepare what takes long, such as compiling."""
        getattr(self._learner, "prepare", lambda: None)()

    def parameters(self) -> Vector:
        """[P]: all parameters."""
        return self._learner.parameters()

    def load(self, parameters: Vector) -> None:
        """Take up other parameters."""
        self._learner.load(parameters)

    @property
    def torch(self) -> bool:
        """Is it a PyTorch module that is trained?"""
        return bool(getattr(self._learner, "torch", False))

    def named(self, parameters: Vector) -> Mapping[str, NDArray[Any]]:
        """A vector of parameters as the arrays of the model, by name."""
        name = getattr(self._learner, "named", None)
        return {"parameters": parameters} if name is None else name(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""
        self._learner.train(iteration, rounds)

    def evaluate(self) -> Mapping[str, float]:
        """Figures of the present parameters, by name."""
        return self._learner.evaluate()

    def save(self) -> Mapping[str, NDArray[Any]]:
        """What the optimiser remembers, as named arrays."""
        return self._learner.save()

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave."""
        self._learner.restore(memory)


class OwnLearner:
    """A user's object as a learner.

    It has ``parameters()``, a vector; ``load(parameters)``; ``train(iteration, rounds)``; and
    ``evaluate()``, figures by name. With ``named(parameters)`` it gives the arrays of its model by
    name, as which they are written into ``model.safetensors``; without, they are one vector. With
    ``save()`` and ``restore(memory)`` it keeps named arrays,
    such as an optimiser's momentum, through stops and crashes; without them it remembers nothing.
    With ``repeatable = True`` it says that training from the same start ends with the same bits
    again, so that what it has trained needs not be on the disk before it is sent. ``trained_by``
    names the library that trains, with its version, for the record.

    Args:
        thing: the object.
        asked: what names it, for refusals.

    Raises:
        ScenarioError: a method is missing, or cannot be called as it will be.
    """

    def __init__(self, thing: Any, asked: str) -> None:
        self._thing = thing
        for name, arguments in _METHODS.items():
            method = getattr(thing, name, None)
            if not callable(method):
                raise ScenarioError(
                    f"--learner {asked} has no {name}({arguments}): a learner has "
                    + ", ".join(f"{one}({given})" for one, given in _METHODS.items())
                )
            if arguments:
                require_call(method, arguments, f"--learner {asked}: {name}")
        self.repeatable = getattr(thing, "repeatable", False) is True
        self.trained_by = str(getattr(thing, "trained_by", "")) or Path(asked).name
        self._keeps = callable(getattr(thing, "save", None))
        if self._keeps != callable(getattr(thing, "restore", None)):
            raise ScenarioError(
                f"--learner {asked} has one of save() and restore(memory): give both, or neither"
            )

    def parameters(self) -> Vector:
        """[P]: all parameters."""
        return np.asarray(self._thing.parameters())

    def load(self, parameters: Vector) -> None:
        """Take up other parameters; the object may change what it is given."""
        self._thing.load(np.array(parameters))

    def named(self, parameters: Vector) -> Mapping[str, NDArray[Any]]:
        """A vector of parameters by name; one array where the object does not name them."""
        name = getattr(self._thing, "named", None)
        if not callable(name):
            return {"parameters": parameters}
        return {str(key): np.asarray(one) for key, one in name(np.array(parameters)).items()}

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""
        self._thing.train(iteration, rounds)

    def evaluate(self) -> Mapping[str, float]:
        """Figures of the present parameters, by name."""
        found = self._thing.evaluate()
        return dict(found) if isinstance(found, Mapping) else {"accuracy": float(found)}

    def save(self) -> Mapping[str, NDArray[Any]]:
        """What the object wants to remember."""
        return {str(k): np.array(v) for k, v in self._thing.save().items()} if self._keeps else {}

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave; nothing before the first iteration."""
        if self._keeps and memory:
            self._thing.restore({name: np.array(array) for name, array in memory.items()})


def load_learner(asked: str, given: Mapping[str, Any]) -> OwnLearner:
    """The user's learner.

    Args:
        asked: ``FILE.py:NAME``; NAME is the object, or a class or function that makes it.
        given: what such a function may ask for by the names of its parameters: ``device``,
            ``name``, ``seed``, ``data``.

    Raises:
        ScenarioError: there is no such file or name, or what it names is no learner.

    >>> load_learner("thing", {})
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: --learner thing names no object: write --learner FILE.py:NAME...
    """
    file, colon, name = asked.rpartition(":")
    if not (file and colon and name.isidentifier()):
        raise ScenarioError(
            f"--learner {asked} names no object: write --learner FILE.py:NAME, such as {_EXAMPLE}"
        )
    module = run_file(Path(file), f"--learner {file}")
    if not hasattr(module, name):
        raise ScenarioError(f"--learner {asked}: {file} has no {name!r}; correct the name")
    thing = getattr(module, name)
    if inspect.isclass(thing) or not hasattr(thing, "train"):
        thing = _called(thing, asked, given)
    if is_torch(thing):
        raise ScenarioError(
            f"--learner {asked} is a PyTorch module, and a learner trains by itself: name it as "
            f"the scenario's model, --set training.model={asked}"
        )
    return OwnLearner(thing, asked)


def _called(make: Any, asked: str, given: Mapping[str, Any]) -> Any:
    if not callable(make):
        raise ScenarioError(
            f"--learner {asked} is neither a learner nor a function that makes one; it has no "
            "train(iteration, rounds)"
        )
    wanted = inspect.signature(make).parameters.values()
    unknown = [
        one.name
        for one in wanted
        if one.name not in given
        and one.default is one.empty
        and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    if unknown:
        raise ScenarioError(
            f"--learner {asked} asks for {unknown[0]!r}, which nobody gives: it may ask for "
            f"{', '.join(given)}"
        )
    return make(**{one.name: given[one.name] for one in wanted if one.name in given})
