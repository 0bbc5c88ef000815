"""What trains on a device: the scenario's model with the simulator's draws, or a user's object."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.optional import place_in, require_call, run_file
from joulemesh.deploy.device.host import Works
from joulemesh.deploy.effects import Evaluate, Event, Learner, Train, Trained, TrainFailed
from joulemesh.models.torch_model import is_torch

_METHODS = {"parameters": "", "load": "parameters", "train": "iteration, rounds", "evaluate": ""}
_EXAMPLE = "learner.py:make"


class LateLearner:
    """A learner that is made when it is first needed, in the thread that needs it.

    Loading JAX and data takes seconds, in which a node that is started again can already talk to
    its neighbours.

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

    @property
    def torch(self) -> bool:
        return bool(getattr(self._learner, "torch", False))

    def named(self, parameters: Vector) -> Mapping[str, NDArray[Any]]:
        name = getattr(self._learner, "named", None)
        return {"parameters": parameters} if name is None else name(parameters)

    def parameters(self) -> Vector:
        return self._learner.parameters()

    def load(self, parameters: Vector) -> None:
        self._learner.load(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        self._learner.train(iteration, rounds)

    def evaluate(self) -> Mapping[str, float]:
        return self._learner.evaluate()

    def save(self) -> Mapping[str, NDArray[Any]]:
        return self._learner.save()

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
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
        self._thing.train(iteration, rounds)

    def evaluate(self) -> Mapping[str, float]:
        """Figures of the present parameters, by name."""
        found = self._thing.evaluate()
        return dict(found) if isinstance(found, Mapping) else {"accuracy": float(found)}

    def save(self) -> Mapping[str, NDArray[Any]]:
        return {str(k): np.array(v) for k, v in self._thing.save().items()} if self._keeps else {}

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave; nothing before the first iteration."""
        if self._keeps and memory:
            self._thing.restore({name: np.array(array) for name, array in memory.items()})


def load_learner(asked: str, given: Mapping[str, Any]) -> OwnLearner:
    """The user's learner.

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


Tell = Callable[[str, dict[str, Any]], None]


class Training:
    """Carries out `Train` and `Evaluate`.

    Training comes first: of the evaluations that wait meanwhile only the newest is made. Nobody
    pays for evaluations, and none delays an exchange.
    """

    def __init__(
        self,
        learner: Learner,
        every: int = 1,
        device: int | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._learner, self._every, self._device = learner, every, device
        self._clock = clock
        self.last = 0
        """The last iteration of the plan, once it is known."""
        self._worker: Works | None = None
        self._waiting: Evaluate | None = None
        self._wanted = 0  # trainings that were asked for and are not over
        self._tell: Tell = lambda kind, figures: None

    def begin(self, worker: Works, tell: Tell, ready: Callable[[], None] = lambda: None) -> None:
        """Let the learner prepare itself in its thread, if it can.

        Loading JAX and compiling takes seconds, for which nobody should have to wait who is about
        to exchange with this device.
        """
        self._worker, self._tell = worker, tell
        prepare = getattr(self._learner, "prepare", None)

        def over(_: object, error: BaseException | None) -> None:
            if error is not None:  # it will be met again, and told, when training is wanted
                tell("not-prepared", {"reason": reason_of(error)})
            else:
                tell("prepared", {"trained_by": getattr(self._learner, "trained_by", "")})
            ready()

        if prepare is not None:
            self._worker.do(prepare, over)

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    @property
    def busy(self) -> bool:
        return self._worker is not None and self._worker.busy

    async def evaluated(self, within_s: float) -> None:
        """Wait for evaluations that were asked for, unless training keeps them waiting."""
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        while self.busy and not self._wanted and loop.time() < until:
            await asyncio.sleep(0.01)

    def train(self, wanted: Train, then: Callable[[Event], None]) -> None:
        """Run local rounds; ``then`` is called with `Trained` or `TrainFailed`."""
        assert self._worker is not None
        self._wanted += 1

        def over(event: Event | None, error: BaseException | None) -> None:
            self._wanted -= 1
            if event is None:
                event = TrainFailed(wanted.iteration, reason_of(error), wanted.attempt)
                self._tell("not-trained", {"iteration": event.iteration, "reason": event.reason})
            then(event)
            self._evaluate_next()

        self._worker.do(lambda: _train(self._learner, wanted, self._clock), over)

    def evaluate(self, wanted: Evaluate) -> None:
        """Evaluate when there is time, if it is the turn of this iteration and of this device."""
        if wanted.iteration != self.last and not self._has_turn(wanted):
            return
        self._waiting = wanted
        self._evaluate_next()

    def _has_turn(self, wanted: Evaluate) -> bool:
        number, between = divmod(wanted.iteration, self._every)
        if between or self._device is None or not wanted.holders:
            return not between
        return wanted.holders[number % len(wanted.holders)] == self._device

    def _evaluate_next(self) -> None:
        wanted = self._waiting
        if self._worker is None or wanted is None or self._wanted:
            return
        self._waiting = None
        iteration = wanted.iteration

        def over(figures: Mapping[str, float] | None, error: BaseException | None) -> None:
            if figures is None:
                figures = {}
                self._tell("not-evaluated", {"iteration": iteration, "reason": reason_of(error)})
            else:
                self._tell("evaluated", {"iteration": iteration, **figures})
            self._evaluate_next()

        self._worker.do(lambda: _evaluate(self._learner, wanted), over)


def _train(learner: Learner, wanted: Train, clock: Callable[[], float]) -> Trained:
    began = clock()
    learner.load(wanted.start.vector)
    learner.restore(wanted.start.memory)
    if wanted.rounds:
        learner.train(wanted.iteration, wanted.rounds)
    vector = own_vector(learner.parameters(), like=wanted.start.vector)
    if not np.isfinite(vector).all():
        raise ScenarioError(
            f"parameters are not finite after iteration {wanted.iteration}; lower the learning rate"
        )
    memory = {name: np.array(one) for name, one in learner.save().items()}
    repeatable = bool(getattr(learner, "repeatable", False))
    seconds = clock() - began
    return Trained(wanted.iteration, vector, memory, repeatable, wanted.attempt, seconds)


def own_vector(parameters: Any, like: Vector) -> NDArray[Any]:
    """A copy of what a learner gives as its parameters, if they are what they should be.

    >>> own_vector([1.0, 2.0], np.zeros(3))
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: the learner's parameters() gives 2 numbers of type float64, ...
    """
    vector = np.array(parameters)
    if vector.shape != like.shape or vector.dtype != like.dtype:
        shape = f"{vector.size} numbers" if vector.ndim == 1 else f"an array {vector.shape}"
        raise ScenarioError(
            f"the learner's parameters() gives {shape} of type {vector.dtype}, and {like.size} of "
            f"type {like.dtype} are wanted: give the same vector after every train()"
        )
    return vector


def _evaluate(learner: Learner, wanted: Evaluate) -> Mapping[str, float]:
    learner.load(wanted.vector)
    return {str(name): float(one) for name, one in dict(learner.evaluate()).items()}


def reason_of(error: BaseException | None) -> str:
    """One line about what a learner's code raised, with its place if it is the user's own."""
    if error is None:
        return "unknown"
    place = place_in(error)
    words = str(error) if isinstance(error, JoulemeshError) else f"{type(error).__name__}: {error}"
    return " ".join((words if place is None else f"{place}: {words}").split())[:400]
